"""Counts of one cascade for the dashboard and the metrics, over time and in total."""

from collections.abc import Iterable
from itertools import zip_longest

import msgspec

from stopwise.records import Change

MAX_BUCKETS = 240
DAY = 86_400.0  # seconds
FIRST_WIDTH = 10.0  # initial width of a bucket, in seconds


class Counts(msgspec.Struct):
    """Counts of rounds over time, and of disagreements, in bounded memory.

    Time is divided into buckets of equal width. Beyond `MAX_BUCKETS` of them, adjacent buckets are
    merged and the width doubles.

    Examples
    --------
    >>> counts = Counts.blank(n_arms=2)
    >>> counts.add_stops(1000.0, [0, 1, 1])
    >>> counts.add_stops(1015.0, [0])
    >>> counts.stops, counts.stops_total
    ([[1, 2], [1, 0]], [2, 2])
    """

    width: float  # of a bucket, in seconds
    start: float  # of the first bucket, in seconds since 1970
    stops: list[list[int]]  # for each bucket: rounds that stopped at each arm
    stops_total: list[int]
    seen_total: list[int]  # for each pair of arms: rounds in which both answered
    differed_total: list[int]  # for each pair of arms: rounds in which they disagreed
    outputs_total: int = 0  # rounds that were learned from
    labels_total: int = 0
    changes_total: int = 0  # detected changes in the disagreement of a pair
    changes: list[tuple[float, Change]] = []  # the latest ones, with their time
    # The rounds in `stops` and `stops_total` that stopped there because a stage failed.
    early: list[list[int]] = []
    early_total: list[int] = []
    day: float = 0.0  # start of the newest day (UTC) with an opened round
    opened_total: int = 0  # rounds opened on that day, including those that expired
    unmatched_labels: int = 0  # how many of the latest labels in a row match no output

    @staticmethod
    def blank(n_arms: int) -> "Counts":
        """Return empty counts."""
        pairs = n_arms * (n_arms - 1) // 2
        counts = Counts(FIRST_WIDTH, 0.0, [], [0] * n_arms, [0] * pairs, [0] * pairs)
        counts.early_total = [0] * n_arms
        return counts

    def add_stops(self, time: float, stops: Iterable[int], *, early: bool = False) -> None:
        """Count rounds by the arm at which they stop; ``early`` if a stage failed."""
        self._extend(time)
        index = self._index(time)
        for stop in stops:
            self.stops[index][stop] += 1
            self.stops_total[stop] += 1
            if early:
                self.early[index][stop] += 1
                self.early_total[stop] += 1

    def add_opened(self, time: float, count: int) -> None:
        """Count opened rounds; some of them may never stop."""
        day = time - time % DAY
        # Clocks of several machines may differ around midnight, so rounds of the previous day are
        # added to the newest one. A larger step back means that the clock was wrong before.
        if day > self.day or day < self.day - DAY:
            self.day, self.opened_total = day, 0
        self.opened_total += count

    def opened_on(self, day: float) -> int:
        """Return the number of rounds opened on ``day``, the current day; no other days are stored.

        If the clock was set back, rounds of the later day are included.
        """
        return self.opened_total if self.day >= day else 0

    def add_label(self, *, matched: bool) -> None:
        """Count a label; ``matched`` if it equals the output of an arm."""
        self.labels_total += 1
        self.unmatched_labels = 0 if matched else self.unmatched_labels + 1

    def add_outputs(self, outputs: list[bytes]) -> None:
        """Count which arms disagreed in a round that the policy learned from."""
        self.outputs_total += 1
        n_arms = len(self.stops_total)
        for j in range(1, len(outputs)):
            for i in range(j):
                pair = i * (2 * n_arms - i - 1) // 2 + (j - i - 1)
                self.seen_total[pair] += 1
                self.differed_total[pair] += outputs[i] != outputs[j]

    def _index(self, time: float) -> int:
        """Return the index of the bucket for a time, even if the bucket does not exist yet.

        Earlier times are counted in the first bucket: clocks of several machines differ a little,
        and a clock may be set back.
        """
        return max(0, int((time - self.start) // self.width))

    def _extend(self, time: float) -> None:
        """Add buckets up to a time, and widen them if there would be too many."""
        if not self.stops:
            self.start = time - time % self.width
        while self._index(time) >= MAX_BUCKETS:
            self._double_width()
        while len(self.stops) <= self._index(time):
            self.stops.append(self._empty())
            self.early.append(self._empty())

    def _double_width(self) -> None:
        self.stops = self._merge_pairs(self.stops)
        self.early = self._merge_pairs(self.early)
        self.width *= 2

    def _merge_pairs(self, buckets: list[list[int]]) -> list[list[int]]:
        merged: list[list[int]] = []
        for first, second in zip_longest(buckets[::2], buckets[1::2]):
            other = self._empty() if second is None else second
            merged.append([a + b for a, b in zip(first, other, strict=True)])
        return merged

    def _empty(self) -> list[int]:
        return [0] * len(self.stops_total)
