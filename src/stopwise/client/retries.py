"""Requests with retries, as generators that do no I/O.

An exchange is a generator that yields steps: `Send` a request, `Pause` before a retry, `Ask` a
stage. The client performs each step (blocking or async), then sends its outcome to the generator or
throws an exception into it.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from stopwise.errors import ServiceError
from stopwise.running.round_loop import Ask
from stopwise.running.stage import seconds
from stopwise.service.domain.messages import ErrorAnswer

T = TypeVar("T")

# The service responds with 429 or 503 if a retry may succeed; proxies respond with the others if
# the service is down. All requests are safe to repeat: they have a key or name their round.
RETRY_STATUSES = frozenset({429, 502, 503, 504})
# Seconds (heuristic): a restart takes one or two, and an overloaded service needs time to recover.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
SHORTEST_TRY = 0.1  # seconds; a try with less time would hardly succeed


class Send(NamedTuple):
    """Step: send a request. The outcome is a `Reply`, or a `ConnectionLost` exception."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    timeout: float


class Pause(NamedTuple):
    """Step: wait."""

    seconds: float


class Reply(NamedTuple):
    """An HTTP response."""

    status: int
    content: bytes
    retry_after: str | None = None


class ConnectionLost(Exception):
    """No response arrived; the request may or may not have been executed."""

    def __init__(self, message: str, code: str = "unreachable", *, permanent: bool = False) -> None:
        super().__init__(message)
        self.code = code  # "timeout" or "unreachable"
        self.permanent = permanent  # whether a retry would fail too


Step: TypeAlias = Send | Pause | Ask
Exchange: TypeAlias = Generator[Step, Any, T]


class Retries:
    """Sends requests and retries those that fail temporarily; see `Client` for the parameters."""

    def __init__(self, timeout: float, deadline: float, rng: np.random.Generator | None) -> None:
        self.timeout = seconds(timeout, most=None)
        self.deadline = seconds(deadline, "deadline", most=None)
        self.clock: Callable[[], float] = time.monotonic
        self._rng = np.random.default_rng() if rng is None else rng

    def request(self, send: Send, answer_type: type[T]) -> Exchange[T]:
        """Send a request until it succeeds, fails permanently, or the deadline passes."""
        began = self.clock()
        tries = 0
        server_errors = 0
        while True:
            tries += 1
            remaining = self.deadline - (self.clock() - began)
            retry_after = 0.0
            try:
                timeout = min(self.timeout, max(remaining, SHORTEST_TRY))
                reply: Reply = yield send._replace(timeout=timeout)
            except ConnectionLost as lost:
                error = ServiceError(f"{send.url}: {lost}", status=0, code=lost.code)
                retry = not lost.permanent
            else:
                if 200 <= reply.status < 300:
                    return _decode(reply, answer_type)
                error = service_error(reply, send.url)
                server_errors += reply.status == 500  # retry a 500 only once
                retry = reply.status in RETRY_STATUSES or (
                    reply.status == 500 and server_errors == 1
                )
                if reply.retry_after is not None and reply.retry_after.strip().isdecimal():
                    retry_after = min(float(reply.retry_after), LONGEST_WAIT)
            # Full jitter keeps clients that failed together from retrying together.
            backoff = min(FIRST_WAIT * 2.0 ** (min(tries, 60) - 1), LONGEST_WAIT)
            wait = retry_after + float(self._rng.uniform(0.0, backoff))
            elapsed = self.clock() - began
            if not retry or elapsed + wait + SHORTEST_TRY > self.deadline:
                if tries > 1:
                    error.add_note(f"Gave up after {tries} tries in {elapsed:.1f} s.")
                raise error
            yield Pause(wait)


def _decode(reply: Reply, answer_type: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.content, type=answer_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise ServiceError(
            f"unexpected response body ({reason}); check that the URL belongs to a Stopwise "
            "service whose version this client supports",
            status=reply.status,
            code="bad_answer",
        ) from None


def service_error(reply: Reply, url: str) -> ServiceError:
    """Return the exception for an error response.

    Examples
    --------
    >>> body = b'{"error": {"code": "conflict", "message": "was 1 before", "field": "outputs"}}'
    >>> error = service_error(Reply(409, body), "http://127.0.0.1:8350")
    >>> print(error, error.status, error.code, error.field)
    was 1 before (409 conflict, at outputs) 409 conflict outputs
    """
    status = reply.status
    try:
        fault = msgspec.json.decode(reply.content, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServiceError(
            f"{url} responded with {status}, but not as a Stopwise service does; check whether a "
            "proxy or another program answers at this address",
            status=status,
            code="bad_answer",
        )
    field = fault.field if isinstance(fault.field, str) else None
    location = "" if field is None else f", at {field}"
    message = f"{fault.message} ({status} {fault.code}{location})"
    return ServiceError(message, status=status, code=fault.code, field=field)
