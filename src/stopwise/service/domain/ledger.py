"""The rounds of one cascade: in a few bytes each, until their events are compacted away.

Rounds are numbered from 0. What must be known of old ones (a repeat, a conflict, a place in the
log) takes 19 bytes and 8 for each arm; only open ones hold their context.
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
NAMES = ("open", "learned", "expired")
KEEP_KEYS = 100_000  # Idempotency-Keys remembered for each cascade; the oldest go first
KEEP_WANTED = 10_000  # labels that are asked for and have not come
UNMATCHED_LIMIT = 10  # labels in a row that match no arm: a warning from then on
BLOCK = 1_000  # rounds that are forgotten together


class KeyedRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a request with an Idempotency-Key created: ``count`` rounds from ``first`` on."""

    first: int
    count: int
    digest: bytes  # of the request


class IdempotencyKeys(OrderedDict[str, KeyedRequest]):
    """Requests by their Idempotency-Key, the oldest first."""

    def find(self, key: str | None, digest: bytes) -> KeyedRequest | None:
        """Return what a request created when it was sent before; refuse another body."""
        known = None if key is None else self.get(key)
        if known is not None and known.digest != digest:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new key for a new one"
            )
        return known

    def add(self, key: str, created: KeyedRequest) -> None:
        """Remember a request, and forget the oldest beyond `KEEP_KEYS`."""
        self[key] = created
        if len(self) > KEEP_KEYS:
            self.popitem(last=False)


class Ledger:
    """The rounds of one cascade; ids contain a check on its name.

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
        self.first = 0  # the rounds before this one are forgotten, and in no column
        self.forgotten = b""  # their digest
        self.status = array("B")
        self.stops = array("b")  # the last arm to run; -1: not known
        self.rule_stops = array("b")
        self.outputs = array("Q")  # of every arm the fingerprint of its output; 0: not reported
        self.opened_at = array("q")  # position in the log
        self.ended_at = array("q")
        # Open rounds, oldest first: the context, or the round in progress where stages reveal it.
        self.open: dict[int, bytes | RoundInProgress] = {}
        self.partial: dict[int, dict[int, bytes]] = {}  # outputs of open rounds
        self.labels: dict[int, int] = {}  # fingerprints of labels
        self.label_requests: dict[int, LabelRequest] = {}  # labels asked for, the oldest first
        self.idempotency_keys = IdempotencyKeys()
        self.learned = 0
        self._oldest = 0  # no round before this one is open
        self.log_start = 0  # events before this one are known to be compacted away; not saved

    def __len__(self) -> int:
        return self.first + len(self.status)

    def id(self, number: int) -> str:
        """Return the name of a round in the API."""
        return f"{number}-{(number * 2654435761 ^ self._salt) >> 7 & 0xFFFFF:05x}"

    def number(self, text: str) -> int:
        """Return the number of a round by its id, or refuse: there is none."""
        digits = text.partition("-")[0]
        if digits.isascii() and digits.isdecimal() and len(digits) < 19:
            number = int(digits)
            if number < len(self) and self.id(number) == text:
                return number
        raise UnknownRound(text)

    def row(self, number: int) -> int:
        """Return where the columns have a round, or refuse: it is forgotten."""
        if number < self.first:
            raise RoundGone("this round has ended, and its events were compacted away")
        return number - self.first

    # -- changes ------------------------------------------------------------------------------

    def add(
        self,
        contexts: Sequence[bytes | RoundInProgress],
        stops: Sequence[int],
        rule_stops: Sequence[int],
        position: int,
    ) -> None:
        """Add rounds, which are open from now on."""
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
        """Note that the policy has learned from a round."""
        row = self.row(number)
        self.status[row], self.ended_at[row] = LEARNED, position
        self.learned += 1
        del self.open[number]
        self.partial.pop(number, None)

    def add_label_request(self, number: int, request: LabelRequest) -> None:
        """Note that a label is asked for, and give up the oldest beyond `KEEP_WANTED`."""
        self.label_requests[number] = request
        if len(self.label_requests) > KEEP_WANTED:
            del self.label_requests[next(iter(self.label_requests))]

    def answerable_labels(self) -> dict[int, LabelRequest]:
        """Return the labels asked for that can still be given: the log has their rounds."""
        asked, first, at = dict(self.label_requests), self.first, self.opened_at
        return {n: asked[n] for n in asked if n >= first and at[n - first] >= self.log_start}

    def forget(self, log_start: int) -> None:
        """Forget ended rounds all of whose events are before this one, which the log has not."""
        self.log_start, n = max(self.log_start, log_start), 0
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
        """Return a digest of the rounds up to a row: the same, however many are forgotten."""
        digest, widths = self.forgotten, (1, 1, 1, self.n_arms, 1, 1)
        for k in range(0, rows, BLOCK):
            parts = zip(self.columns(), widths, strict=True)
            block = [column[k * w : min(k + BLOCK, rows) * w].tobytes() for column, w in parts]
            digest = sha256(b"".join([digest, *block])).digest()
        return digest

    def _expire(self) -> None:
        # A function of the log alone, so that every replica gives up the same rounds.
        waiting, number = self.open, self._oldest
        for _ in range(len(waiting) - self.keep_open):
            # (The first key of a dict is slow to find once many before it were deleted.)
            while number not in waiting:
                number += 1
            del waiting[number]
            self.partial.pop(number, None)
            self.status[self.row(number)] = EXPIRED
        self._oldest = number

    def fingerprint(self, number: int, arm: int) -> int:
        """Return the fingerprint of an arm's output; 0 if it was not reported."""
        return self.outputs[self.row(number) * self.n_arms + arm]

    def set_fingerprint(self, number: int, arm: int, fingerprint: int) -> None:
        """Note the fingerprint of an arm's output."""
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
        """Return what is known of every round from `first` on, by column."""
        rounds = (self.status, self.stops, self.rule_stops, self.outputs)
        return (*rounds, self.opened_at, self.ended_at)

    def saved(self, *, hashed: bool = False) -> "LedgerSnapshot":
        """Return all but the columns as plain values; if ``hashed`` with a digest of them."""
        return LedgerSnapshot(
            0 if hashed else self.first,
            self.digest(len(self.status)) if hashed else self.forgotten,
            [] if hashed else [len(column) * column.itemsize for column in self.columns()],
            {n: one for n, one in self.open.items() if isinstance(one, bytes)},
            {n: one.state() for n, one in self.open.items() if isinstance(one, RoundInProgress)},
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
        """Become what `saved` returned; ``columns(n)`` gives the next n bytes of the columns."""
        self.first, self.forgotten = saved.first, saved.forgotten
        for column, size in zip(self.columns(), saved.sizes, strict=True):
            column.frombytes(columns(size))
        in_progress = {number: resume(one) for number, one in saved.in_progress.items()}
        self.open = dict(sorted((saved.contexts | in_progress).items()))
        self.partial = saved.partial
        self.labels = saved.labels
        self.label_requests = saved.wanted
        self.idempotency_keys = IdempotencyKeys(saved.repeats)
        self._oldest = min(self.open, default=len(self))
        self.learned = saved.learned


class LedgerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A ledger in a snapshot, without its columns."""

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
