"""One request with all its tries, as a generator that does no I/O.

An exchange yields a step (`Send`, `Pause`, `Ask`), is sent the outcome or has an
exception thrown in, and returns the result. A client does the steps, blocking or not.
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

# The service answers 429 and 503 for "later"; proxies in front of it answer the others when it is
# down. Every request may be repeated: it has a key, or names the round it is about.
TRY_AGAIN = frozenset({429, 502, 503, 504})
# Heuristics: a restart takes a second or two, and an overloaded service needs room.
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
LEAST_TRY = 0.1  # seconds; a try with less time left is of no use


class Send(NamedTuple):
    """Step: send a request; the outcome is a `Reply`, or `ConnectionLost` is thrown in."""

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
    """No response came; whether the request was carried out is not known."""

    def __init__(self, message: str, code: str = "unreachable", *, lasting: bool = False) -> None:
        super().__init__(message)
        self.code = code  # "timeout" or "unreachable"
        self.lasting = lasting  # whether another try would fail too


Step: TypeAlias = Send | Pause | Ask
Exchange: TypeAlias = Generator[Step, Any, T]


class Retries:
    """Retries requests that failed temporarily; see `Client` for the parameters."""

    def __init__(self, timeout: float, deadline: float, rng: np.random.Generator | None) -> None:
        self.timeout = seconds(timeout, most=None)
        self.deadline = seconds(deadline, "deadline", most=None)
        self.clock: Callable[[], float] = time.monotonic
        self._rng = np.random.default_rng() if rng is None else rng

    def answer(self, send: Send, kind: type[T]) -> Exchange[T]:
        """Try until there is an answer, a refusal that will not change, or no time left."""
        began, tries, server_errors = self.clock(), 0, 0
        while True:
            left = self.deadline - (self.clock() - began)
            tries, least = tries + 1, 0.0
            try:
                limit = min(self.timeout, max(left, LEAST_TRY))
                reply: Reply = yield send._replace(timeout=limit)
            except ConnectionLost as lost:
                error = ServiceError(f"{send.url}: {lost}", status=0, code=lost.code)
                again = not lost.lasting
            else:
                if 200 <= reply.status < 300:
                    return _decoded(reply, kind)
                error = refusal(reply, send.url)
                server_errors += reply.status == 500  # retry a 500 only once
                again = reply.status in TRY_AGAIN or (reply.status == 500 and server_errors == 1)
                if reply.retry_after is not None and reply.retry_after.strip().isdecimal():
                    least = min(float(reply.retry_after), LONGEST_WAIT)
            # full jitter keeps clients that failed together from coming back together
            most = min(FIRST_WAIT * 2.0 ** (min(tries, 60) - 1), LONGEST_WAIT)
            wait = least + float(self._rng.uniform(0.0, most))
            spent = self.clock() - began
            if not again or spent + wait + LEAST_TRY > self.deadline:
                if tries > 1:
                    error.add_note(f"This was the last of {tries} tries in {spent:.1f} s.")
                raise error
            yield Pause(wait)


def _decoded(reply: Reply, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as reason:
        raise ServiceError(
            f"the answer cannot be read ({reason}); is this a Stopwise service, and of a version "
            "that this client knows?",
            status=reply.status,
            code="bad_answer",
        ) from None


def refusal(reply: Reply, url: str) -> ServiceError:
    """Return a reply that is no success as an exception.

    Examples
    --------
    >>> body = b'{"error": {"code": "conflict", "message": "was 1 before", "field": "outputs"}}'
    >>> error = refusal(Reply(409, body), "http://127.0.0.1:8350")
    >>> print(error, error.status, error.code, error.field)
    was 1 before (409 conflict, at outputs) 409 conflict outputs
    """
    status = reply.status
    try:
        fault = msgspec.json.decode(reply.content, type=ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServiceError(
            f"{url} answered {status} in a form that is not the service's: is there a proxy in "
            "between, or another program at this address?",
            status=status,
            code="bad_answer",
        )
    field = fault.field if isinstance(fault.field, str) else None
    text = f"{fault.message} ({status} {fault.code}{'' if field is None else f', at {field}'})"
    return ServiceError(text, status=status, code=fault.code, field=field)
