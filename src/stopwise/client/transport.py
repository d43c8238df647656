"""What both clients need of httpx, which is optional and imported when a client is made."""

import ssl
import time
from typing import TYPE_CHECKING

from stopwise.client.retries import ConnectionLost, Reply
from stopwise.errors import InvalidParameterError, MissingPackageError, ServiceError

if TYPE_CHECKING:
    import httpx

LONGEST_CONNECT = 5.0  # seconds: a machine that is there answers sooner (heuristic)
LARGEST = 64 << 20  # bytes of an answer; a service's are far below


def check(url: str) -> None:
    """Raise what a client cannot be made for: httpx is missing, or cannot read the address."""
    try:
        import httpx
    except ImportError:
        raise MissingPackageError(
            'the client needs httpx: pip install "stopwise[client]"'
        ) from None
    try:
        httpx.URL(url)
    except httpx.InvalidURL as reason:
        raise InvalidParameterError(f"{url!r} is no address of a service: {reason}") from None


def time_limits(seconds: float) -> "httpx.Timeout":
    """Return the limits of one try."""
    import httpx

    return httpx.Timeout(seconds, connect=min(seconds, LONGEST_CONNECT))


def read(response: "httpx.Response", until: float) -> Reply:
    """Return a response, if it comes before a time of the monotonic clock.

    httpx limits the wait for each piece, and so not how long a server may trickle.
    """
    content = bytearray()
    for piece in response.iter_bytes():
        _add(content, piece, response)
        if time.monotonic() > until:
            raise late()
    return _reply(response, content)


async def read_async(response: "httpx.Response") -> Reply:
    """Return a response."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        _add(content, piece, response)
    return _reply(response, content)


def late() -> ConnectionLost:
    """Return that time was up."""
    return ConnectionLost("no answer in time", "timeout")


def lost(error: "httpx.RequestError") -> ConnectionLost:
    """Return why there was no response."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return late()
    lasting = isinstance(
        error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.DecodingError
    )
    cause: BaseException | None = error
    while cause is not None and not lasting:  # a certificate will be as wrong next time
        lasting = isinstance(cause, ssl.SSLError)
        cause = cause.__cause__ or cause.__context__
    reason = str(error) or type(error).__name__
    return ConnectionLost(f"the service cannot be reached ({reason})", lasting=lasting)


def _add(content: bytearray, piece: bytes, response: "httpx.Response") -> None:
    content += piece
    if len(content) > LARGEST:
        raise ServiceError(
            f"the answer has more than {LARGEST >> 20} MB; is this a Stopwise service?",
            status=response.status_code,
            code="bad_answer",
        )


def _reply(response: "httpx.Response", content: bytearray) -> Reply:
    return Reply(response.status_code, bytes(content), response.headers.get("Retry-After"))
