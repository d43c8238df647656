"""What both clients need of httpx, which is optional and imported when a client is made."""

import ssl
import time
from typing import TYPE_CHECKING

from stopwise.client.retries import ConnectionLost, Reply
from stopwise.errors import InvalidParameterError, missing_package

if TYPE_CHECKING:
    import httpx

LONGEST_CONNECT = 5.0  # seconds: a machine that is there answers sooner (heuristic)


def check(url: str) -> None:
    """Raise what a client cannot be made for: httpx is missing, or cannot read the address."""
    try:
        import httpx
    except ImportError:
        raise missing_package("the client", "httpx", "client") from None
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
        content += piece
        if time.monotonic() > until:
            raise late()
    return reply(response, bytes(content))


def reply(response: "httpx.Response", content: bytes) -> Reply:
    """Return what the exchange needs of a response."""
    return Reply(response.status_code, content, response.headers.get("Retry-After"))


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
