"""The rounds of one cascade: in a few bytes each, until their events are compacted away.

Rounds are numbered from 0. What must be known of old ones (a repeat, a conflict, a place in the
log) takes 19 bytes and 8 for each arm; only open ones hold their context.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import zip_longest
from typing import Any
from zlib import crc32

import msgspec

from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import Change, LabelRequest
from stopwise.service.domain.errors import Conflict, RoundGone, UnknownRound

OPEN, LEARNED, EXPIRED = range(3)
NAMES = ("open", "learned", "expired")
KEEP_KEYS = 100_000  # Idempotency-Keys remembered for each cascade; the oldest go first
KEEP_WANTED = 10_000  # labels that are asked for and have not come
MANY_UNMATCHED = 10  # labels in a row that match no arm: a warning from then on
BLOCK = 1_000  # rounds that are forgotten together
MAX_BUCKETS = 240  # of `Counts`
DAY = 86_400.0  # seconds
FIRST_WIDTH = 10.0  # seconds that each of them lasts at first


class Repeat(msgspec.Struct, frozen=True, array_like=True):
    """What a request with an Idempotency-Key created: ``count`` rounds from ``first`` on."""

    first: int
    count: int
    digest: bytes  # of the request


class Repeats(OrderedDict[str, Repeat]):
    """Requests by their Idempotency-Key, the oldest first."""

    def find(self, key: str | None, digest: bytes) -> Repeat | None:
        """Return what a request created when it was sent before; refuse another body."""
        known = None if key is None else self.get(key)
        if known is not None and known.digest != digest:
            raise Conflict(
                "this Idempotency-Key was used for another request; use a new key for a new one"
            )
        return known

    def add(self, key: str, created: Repeat) -> None:
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
        self.wanted: dict[int, LabelRequest] = {}  # labels asked for, the oldest first
        self.repeats = Repeats()
        self.learned = 0
        self._oldest = 0  # no round before this one is open
        self.logged_from = 0  # events before this one are known to be compacted away; not saved

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

    def want(self, number: int, request: LabelRequest) -> None:
        """Note that a label is asked for, and give up the oldest beyond `KEEP_WANTED`."""
        self.wanted[number] = request
        if len(self.wanted) > KEEP_WANTED:
            del self.wanted[next(iter(self.wanted))]

    def answerable(self) -> dict[int, LabelRequest]:
        """Return the labels asked for that can still be given: the log has their rounds."""
        asked, first, at = dict(self.wanted), self.first, self.opened_at
        return {n: asked[n] for n in asked if n >= first and at[n - first] >= self.logged_from}

    def forget(self, logged_from: int) -> None:
        """Forget ended rounds all of whose events are before this one, which the log has not."""
        self.logged_from, n = max(self.logged_from, logged_from), 0
        ended = min(self.open, default=len(self)) - self.first
        while n + BLOCK <= ended and logged_from > max(
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

    def stamp(self, number: int, arm: int, fingerprint: int) -> None:
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
            self.wanted,
            dict(self.repeats),
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
        self.wanted = saved.wanted
        self.repeats = Repeats(saved.repeats)
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
    repeats: dict[str, Repeat]
    learned: int


class Counts(msgspec.Struct):
    """Counts of rounds by time, and of disagreements, in memory that does not grow.

    Time is cut into buckets of equal width. When there are too many, neighbours are joined and the
    width doubles: a day of minutes becomes a month of hours.

    Examples
    --------
    >>> counts = Counts.blank(n_arms=2)
    >>> counts.opened(1000.0, [0, 1, 1])
    >>> counts.opened(1015.0, [0])
    >>> counts.stops, counts.stops_total
    ([[1, 2], [1, 0]], [2, 2])
    """

    width: float  # seconds that a bucket lasts
    start: float  # of the first one, in seconds since 1970
    stops: list[list[int]]  # for every bucket: rounds that stopped at each arm
    stops_total: list[int]
    seen_total: list[int]  # for every pair of arms: rounds in which both answered
    differed_total: list[int]  # of these: rounds in which they disagreed
    outputs_total: int = 0  # rounds that were learned from
    labels_total: int = 0
    changes_total: int = 0  # noticed in how often a pair disagrees
    changes: list[tuple[float, Change]] = []  # the latest, with the time
    # Of the rounds in `stops` and `stops_total` those that stopped there because a stage failed.
    early: list[list[int]] = []
    early_total: list[int] = []
    day: float = 0.0  # when the newest day (UTC) with an opened round began
    opened_total: int = 0  # rounds opened on that day, whatever became of them
    unmatched_labels: int = 0  # the latest labels in a row that no arm's output equals

    @staticmethod
    def blank(n_arms: int) -> "Counts":
        """Return empty counts."""
        pairs = n_arms * (n_arms - 1) // 2
        counts = Counts(FIRST_WIDTH, 0.0, [], [0] * n_arms, [0] * pairs, [0] * pairs)
        counts.early_total = [0] * n_arms
        return counts

    def opened(self, time: float, stops: Iterable[int], *, early: bool = False) -> None:
        """Count rounds that stop at these arms, or did so ``early`` since a stage failed."""
        self._reach(time)
        index = self._index(time)
        for stop in stops:
            self.stops[index][stop] += 1
            self.stops_total[stop] += 1
            if early:
                self.early[index][stop] += 1
                self.early_total[stop] += 1

    def began(self, time: float, count: int) -> None:
        """Count rounds that were opened, of which some may never stop anywhere."""
        day = time - time % DAY
        # Clocks of several machines may differ at midnight; one that was days ahead was wrong.
        if day > self.day or day < self.day - DAY:
            self.day, self.opened_total = day, 0
        self.opened_total += count

    def opened_on(self, day: float) -> int:
        """Return how many rounds were opened on a day, the newest one or later.

        If the clock was set back, rounds of the day that it had before count as well.
        """
        return self.opened_total if self.day >= day else 0

    def labelled(self, *, matched: bool) -> None:
        """Count a label, by whether it equals the output of an arm."""
        self.labels_total += 1
        self.unmatched_labels = 0 if matched else self.unmatched_labels + 1

    def learned(self, outputs: list[bytes]) -> None:
        """Count a round that was learned from, by the outputs of its arms."""
        self.outputs_total += 1
        n_arms = len(self.stops_total)
        for j in range(1, len(outputs)):
            for i in range(j):
                pair = i * (2 * n_arms - i - 1) // 2 + (j - i - 1)
                self.seen_total[pair] += 1
                self.differed_total[pair] += outputs[i] != outputs[j]

    def _index(self, time: float) -> int:
        """Return the index of the bucket of a time, which may be beyond the last one.

        Times before the first bucket belong to it: clocks of several machines differ a little,
        and a clock may be set back.
        """
        return max(0, int((time - self.start) // self.width))

    def _reach(self, time: float) -> None:
        """Extend the window to a time, with wider buckets where there would be too many."""
        if not self.stops:
            self.start = time - time % self.width
        while self._index(time) >= MAX_BUCKETS:
            self._join_neighbours()
        while len(self.stops) <= self._index(time):
            self.stops.append(self._empty())
            self.early.append(self._empty())

    def _join_neighbours(self) -> None:
        """Make every bucket twice as wide."""
        self.stops = self._joined(self.stops)
        self.early = self._joined(self.early)
        self.width *= 2

    def _joined(self, buckets: list[list[int]]) -> list[list[int]]:
        joined: list[list[int]] = []
        for first, second in zip_longest(buckets[::2], buckets[1::2]):
            other = self._empty() if second is None else second
            joined.append([a + b for a, b in zip(first, other, strict=True)])
        return joined

    def _empty(self) -> list[int]:
        return [0] * len(self.stops_total)
