"""One request with all its tries, without any input or output: retries, answers, errors.

An exchange is a generator. It yields a step (`Send`, `Pause`, `Ask`), is sent the outcome or has an
exception thrown in, and returns the result. `drive` of a client does the steps, blocking or not.
"""

import re
import time
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from stopwise.errors import ServiceError
from stopwise.running.round_loop import Ask
from stopwise.running.stage import seconds
from stopwise.service.messages import ErrorAnswer
from stopwise.version import __version__

T = TypeVar("T")

# The service answers the first and the third for "later"; proxies in front of it answer the others
# when it is away. Every request may be repeated: it has a key, or names the round it is about.
TRY_AGAIN = frozenset({429, 502, 503, 504})
# Heuristics: a restart takes a second or two, and a service that is overloaded needs room.
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
LEAST_TRY = 0.1  # seconds; a try with less time left is of no use
AGENT = f"stopwise/{__version__}"


class Call(NamedTuple, Generic[T]):
    """What is asked of the service."""

    method: str
    path: str
    answer: type[T]  # what a success is decoded into
    body: msgspec.Struct | None = None
    key: str | None = None  # the Idempotency-Key, the same for every try


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
        self.lasting = lasting  # whether it would be so next time too


Step: TypeAlias = Send | Pause | Ask
Exchange: TypeAlias = Generator[Step, Any, T]


class Retries:
    """Turns requests into exchanges that try again; see `Client` for the parameters."""

    def __init__(
        self, url: str, key: str | None, timeout: float, deadline: float, rng: np.random.Generator
    ) -> None:
        self.url = url
        self.timeout = seconds(timeout, most=None)
        self.deadline = seconds(deadline, "deadline", most=None)
        self.clock: Callable[[], float] = time.monotonic
        self._rng = rng  # of the waits; idempotency keys must differ between clients
        self._headers = {"Accept": "application/json", "User-Agent": AGENT}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    def answer(self, call: Call[T]) -> Exchange[T]:
        """Try until there is an answer, a refusal that will not change, or no time left."""
        began, tries, defects = self.clock(), 0, 0
        while True:
            left = self.deadline - (self.clock() - began)
            tries += 1
            try:
                reply: Reply = yield self.send(call, min(self.timeout, max(left, LEAST_TRY)))
            except ConnectionLost as lost:
                error = ServiceError(f"{self.url}: {lost}", status=0, code=lost.code)
                again, least = not lost.lasting, 0.0
            else:
                if 200 <= reply.status < 300:
                    return decoded(reply, call.answer)
                error = refusal(reply, self.url)
                defects += reply.status == 500  # may have been a bad moment: once more, not twice
                again = reply.status in TRY_AGAIN or (reply.status == 500 and defects == 1)
                least = retry_after(reply.retry_after)
            wait = self.wait(tries, least)
            spent = self.clock() - began
            if not again or spent + wait + LEAST_TRY > self.deadline:
                if tries > 1:
                    error.add_note(f"This was the last of {tries} tries in {spent:.1f} s.")
                raise error
            yield Pause(wait)

    def send(self, call: Call[Any], timeout: float) -> Send:
        """Return one try of a request."""
        headers = dict(self._headers)
        content = None
        if call.method == "POST":
            headers["Content-Type"] = "application/json"
            content = b"{}" if call.body is None else msgspec.json.encode(call.body)
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        return Send(call.method, self.url + call.path, headers, content, timeout)

    def wait(self, tries: int, least: float) -> float:
        """Return how long to wait after so many tries: at least so long, and by chance longer.

        Full jitter, uniform in [0, FIRST_WAIT·2ⁿ⁻¹], keeps clients that failed together from
        coming back together.
        """
        most = min(FIRST_WAIT * 2.0 ** (min(tries, 60) - 1), LONGEST_WAIT)
        return min(least, LONGEST_WAIT) + float(self._rng.uniform(0.0, most))


def retry_after(header: str | None) -> float:
    """Return the seconds that a Retry-After header asks for; 0 if it has no number.

    Examples
    --------
    >>> retry_after("2"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after(None)
    (2.0, 0.0, 0.0)
    """
    header = (header or "").strip()
    return float(min(int(header), LONGEST_WAIT)) if re.fullmatch("[0-9]+", header) else 0.0


def decoded(reply: Reply, answer: type[T]) -> T:
    """Return the answer in a success."""
    try:
        return _decoder(answer).decode(reply.content)
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
    try:
        fault = _decoder(ErrorAnswer).decode(reply.content).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ServiceError(
            f"{url} answered {reply.status} in a form that is not the service's: is there a proxy "
            "in between, or another program at this address?",
            status=reply.status,
            code="bad_answer",
        )
    field = fault.field if isinstance(fault.field, str) else None
    at = "" if field is None else f", at {field}"
    return ServiceError(
        f"{fault.message} ({reply.status} {fault.code}{at})",
        status=reply.status,
        code=fault.code,
        field=field,
    )


@cache
def _decoder(answer: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(answer)
