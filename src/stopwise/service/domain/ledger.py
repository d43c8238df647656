"""The rounds of one cascade, until their events are compacted away.

Rounds are numbered from 0. An ended round takes 19 bytes plus 8 per arm: enough to recognise a
repeat or a conflict, and to find its events in the log. Only open rounds keep their context.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from zlib import crc32

import msgspec

from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import LabelRequest
from stopwise.service.domain.errors import Conflict, RoundGone, UnknownRound

OPEN, LEARNED, EXPIRED = range(3)
STATUS_NAMES = ("open", "learned", "expired")
KEEP_KEYS = 100_000  # Idempotency-Keys stored per cascade; the oldest are dropped first
KEEP_LABEL_REQUESTS = 10_000  # pending label requests per cascade; the oldest are dropped first
UNMATCHED_LIMIT = 10  # consecutive labels that match no output before a warning
BLOCK = 1_000  # rounds that are forgotten together


class KeyedRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request with an Idempotency-Key, which created ``count`` rounds from ``first`` on."""

    first: int
    count: int
    digest: bytes  # of the request


class IdempotencyKeys(OrderedDict[str, KeyedRequest]):
    """Requests by their Idempotency-Key, the oldest first."""

    def find(self, key: str | None, digest: bytes) -> KeyedRequest | None:
        """Return the earlier request with this key, if any; reject a key used for another body."""
        request = None if key is None else self.get(key)
        if request is not None and request.digest != digest:
            raise Conflict(
                "this Idempotency-Key was used for a different request; use a new key for each "
                "request"
            )
        return request

    def add(self, key: str, request: KeyedRequest) -> None:
        """Store a request; drop the oldest one if there are more than `KEEP_KEYS`."""
        self[key] = request
        if len(self) > KEEP_KEYS:
            self.popitem(last=False)


class Ledger:
    """The rounds of one cascade; their ids contain a checksum that depends on its name.

    Examples
    --------
    >>> ledger = Ledger("triage", n_arms=2, keep_open=10)
    >>> ledger.add([bytes(24)], [1], [1], position=7)
    >>> ledger.id(0), ledger.number(ledger.id(0)), len(ledger.open)
    ('0-47859', 0, 1)
    """

    def __init__(self, name: str, n_arms: int, keep_open: int) -> None:
        self.n_arms = n_arms
        self.keep_open = keep_open
        self._salt = crc32(name.encode())
        self._blank = bytes(8 * n_arms)
        self.first = 0  # earlier rounds are forgotten: the columns have no rows for them
        self.forgotten = b""  # digest of the forgotten rounds
        self.status = array("B")
        self.stops = array("b")  # the last arm to run; -1: not decided yet
        self.rule_stops = array("b")
        self.outputs = array("Q")  # fingerprint of the output of each arm; 0: not reported
        self.opened_at = array("q")  # position in the log
        self.ended_at = array("q")
        # Open rounds, oldest first: the context, or the round in progress if stages reveal it.
        self.open: dict[int, bytes | RoundInProgress] = {}
        self.partial: dict[int, dict[int, bytes]] = {}  # outputs of open rounds
        self.labels: dict[int, int] = {}  # fingerprints of labels
        self.label_requests: dict[int, LabelRequest] = {}  # pending ones, oldest first
        self.idempotency_keys = IdempotencyKeys()
        self.learned = 0
        self._oldest = 0  # no round before this one is open
        self.log_start = 0  # earlier events were compacted away; not part of snapshots

    def __len__(self) -> int:
        return self.first + len(self.status)

    def id(self, number: int) -> str:
        """Return the id by which the API refers to a round."""
        return f"{number}-{(number * 2654435761 ^ self._salt) >> 7 & 0xFFFFF:05x}"

    def number(self, text: str) -> int:
        """Return the number of the round with an id; raise `UnknownRound` if there is none."""
        digits = text.partition("-")[0]
        if digits.isascii() and digits.isdecimal() and len(digits) < 19:
            number = int(digits)
            if number < len(self) and self.id(number) == text:
                return number
        raise UnknownRound(text)

    def row(self, number: int) -> int:
        """Return the row of a round in the columns; raise `RoundGone` if it is forgotten."""
        if number < self.first:
            raise RoundGone("this round has ended and its events were compacted away")
        return number - self.first

    # -- changes ------------------------------------------------------------------------------

    def add(
        self,
        contexts: Sequence[bytes | RoundInProgress],
        stops: Sequence[int],
        rule_stops: Sequence[int],
        position: int,
    ) -> None:
        """Add open rounds."""
        number, n = len(self), len(contexts)
        self.status.frombytes(bytes(n))
        self.stops.extend(stops)
        self.rule_stops.extend(rule_stops)
        self.outputs.frombytes(self._blank * n)
        self.opened_at.extend([position] * n)
        self.ended_at.extend([0] * n)
        for context in contexts:
            self.open[number] = context
            number += 1
        if number > self.keep_open:
            self._expire()

    def end(self, number: int, position: int) -> None:
        """Mark an open round as ended and learned from."""
        row = self.row(number)
        self.status[row], self.ended_at[row] = LEARNED, position
        self.learned += 1
        del self.open[number]
        self.partial.pop(number, None)

    def add_label_request(self, number: int, request: LabelRequest) -> None:
        """Add a pending request; drop the oldest one beyond `KEEP_LABEL_REQUESTS`."""
        self.label_requests[number] = request
        if len(self.label_requests) > KEEP_LABEL_REQUESTS:
            del self.label_requests[next(iter(self.label_requests))]

    def answerable_labels(self) -> dict[int, LabelRequest]:
        """Return the pending label requests whose rounds are still in the log."""
        requests, first, at = dict(self.label_requests), self.first, self.opened_at
        return {n: requests[n] for n in requests if n >= first and at[n - first] >= self.log_start}

    def forget(self, log_start: int) -> None:
        """Forget whole blocks of ended rounds whose events all come before ``log_start``."""
        self.log_start = max(self.log_start, log_start)
        n = 0
        ended = min(self.open, default=len(self)) - self.first
        while n + BLOCK <= ended and log_start > max(
            self.opened_at[n + BLOCK - 1], *self.ended_at[n : n + BLOCK]
        ):
            n += BLOCK
        if n:
            self.forgotten = self.digest(n)
            self.first += n
            for column in self.columns():
                del column[: n * (self.n_arms if column is self.outputs else 1)]

    def digest(self, rows: int) -> bytes:
        """Return a digest of all rounds before a row; forgetting rounds does not change it."""
        digest, widths = self.forgotten, (1, 1, 1, self.n_arms, 1, 1)
        for k in range(0, rows, BLOCK):
            block = [
                column[k * width : min(k + BLOCK, rows) * width].tobytes()
                for column, width in zip(self.columns(), widths, strict=True)
            ]
            digest = sha256(b"".join([digest, *block])).digest()
        return digest

    def _expire(self) -> None:
        # Depends on the log alone, so that the same rounds expire on every replica.
        number = self._oldest
        for _ in range(len(self.open) - self.keep_open):
            # Finding the first key of a dict is slow after many deletions at its front.
            while number not in self.open:
                number += 1
            del self.open[number]
            self.partial.pop(number, None)
            self.status[self.row(number)] = EXPIRED
        self._oldest = number

    def fingerprint(self, number: int, arm: int) -> int:
        """Return the fingerprint of an arm's output; 0 if it was not reported."""
        return self.outputs[self.row(number) * self.n_arms + arm]

    def set_fingerprint(self, number: int, arm: int, fingerprint: int) -> None:
        """Store the fingerprint of an arm's output."""
        self.outputs[self.row(number) * self.n_arms + arm] = fingerprint

    def next_arm(self, number: int) -> int:
        """Return the first arm whose output was not reported."""
        start = self.row(number) * self.n_arms
        for arm in range(self.n_arms):
            if self.outputs[start + arm] == 0:
                return arm
        return self.n_arms

    # -- to and from a snapshot ---------------------------------------------------------------

    def columns(self) -> tuple["array[Any]", ...]:
        """Return the columns, whose rows are the rounds from `first` on."""
        return (
            self.status,
            self.stops,
            self.rule_stops,
            self.outputs,
            self.opened_at,
            self.ended_at,
        )

    def snapshot(self, *, hashed: bool = False) -> "LedgerSnapshot":
        """Return everything except the columns; if ``hashed``, a digest replaces them."""
        return LedgerSnapshot(
            0 if hashed else self.first,
            self.digest(len(self.status)) if hashed else self.forgotten,
            [] if hashed else [len(column) * column.itemsize for column in self.columns()],
            {n: context for n, context in self.open.items() if isinstance(context, bytes)},
            {n: r.state() for n, r in self.open.items() if isinstance(r, RoundInProgress)},
            self.partial,
            self.labels,
            self.label_requests,
            dict(self.idempotency_keys),
            self.learned,
        )

    def restore(
        self,
        saved: "LedgerSnapshot",
        columns: Callable[[int], bytes],
        resume: Callable[[Any], RoundInProgress],
    ) -> None:
        """Restore a snapshot; ``columns(n)`` returns the next n bytes of the columns."""
        self.first, self.forgotten = saved.first, saved.forgotten
        for column, size in zip(self.columns(), saved.sizes, strict=True):
            column.frombytes(columns(size))
        in_progress = {number: resume(state) for number, state in saved.in_progress.items()}
        self.open = dict(sorted((saved.contexts | in_progress).items()))
        self.partial = saved.partial
        self.labels = saved.labels
        self.label_requests = saved.wanted
        self.idempotency_keys = IdempotencyKeys(saved.repeats)
        self._oldest = min(self.open, default=len(self))
        self.learned = saved.learned


class LedgerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A ledger without its columns, as part of a snapshot."""

    first: int
    forgotten: bytes
    sizes: list[int]
    contexts: dict[int, bytes]
    in_progress: dict[int, dict[str, Any]]
    partial: dict[int, dict[int, bytes]]
    labels: dict[int, int]
    wanted: dict[int, LabelRequest]
    repeats: dict[str, KeyedRequest]
    learned: int
