"""Counts over time, for pages and metrics, in memory that does not grow.

Time is cut into buckets of equal width. When there are too many, neighbours are joined and the
width doubles: a day of minutes becomes a month of hours.
"""

import msgspec

MAX_BUCKETS = 240
FIRST_WIDTH = 10.0  # seconds


class Tally(msgspec.Struct):
    """How often what happened, by time.

    Attributes
    ----------
    width : float
        Seconds that a bucket lasts.
    start : float
        When the first one begins, in seconds since 1970.
    stops : list of list of int
        For every bucket how many decisions stopped at each arm.
    seen, differed : list of list of int
        For every bucket and pair of arms (in the order of ``cascade.pairs()``): rounds that
        revealed both, and those in which they disagreed.
    stops_total, seen_total, differed_total : list of int
        The same over all time.
    outputs_total, labels_total : int
        Rounds whose outputs, and whose labels, were told.

    Examples
    --------
    >>> tally = Tally.blank(n_arms=2)
    >>> tally.decided(1000.0, [0, 1, 1])
    >>> tally.decided(1015.0, [0])
    >>> tally.stops, tally.stops_total
    ([[1, 2], [1, 0]], [2, 2])
    """

    width: float
    start: float
    stops: list[list[int]]
    seen: list[list[int]]
    differed: list[list[int]]
    stops_total: list[int]
    seen_total: list[int]
    differed_total: list[int]
    outputs_total: int = 0
    labels_total: int = 0

    @staticmethod
    def blank(n_arms: int) -> "Tally":
        """Return a tally of nothing yet."""
        pairs = n_arms * (n_arms - 1) // 2
        return Tally(FIRST_WIDTH, 0.0, [], [], [], [0] * n_arms, [0] * pairs, [0] * pairs)

    def decided(self, time: float, stops: list[int]) -> None:
        """Count decisions."""
        here = self.stops[self._bucket(time)]
        for stop in set(stops):
            n = stops.count(stop)
            here[stop] += n
            self.stops_total[stop] += n

    def decided_one(self, time: float, stop: int) -> None:
        """Count a decision."""
        k = int((time - self.start) // self.width)
        if not 0 <= k < len(self.stops):
            k = self._bucket(time)
        self.stops[k][stop] += 1
        self.stops_total[stop] += 1

    def told(self, time: float, outputs: list[bytes]) -> None:
        """Count a round whose outputs became known, arm 0 first."""
        bucket = self._bucket(time)
        seen, differed = self.seen[bucket], self.differed[bucket]
        self.outputs_total += 1
        n_arms = len(self.stops_total)
        for j in range(1, len(outputs)):
            for i in range(j):
                pair = i * (2 * n_arms - i - 1) // 2 + (j - i - 1)
                seen[pair] += 1
                self.seen_total[pair] += 1
                if outputs[i] != outputs[j]:
                    differed[pair] += 1
                    self.differed_total[pair] += 1

    def _bucket(self, time: float) -> int:
        """Return the bucket of a time, made if there is none."""
        buckets = self.stops
        if not buckets:
            self.start = time - time % self.width
        # Clocks of several machines differ a little: what is too early counts for the first.
        k = max(0, int((time - self.start) // self.width))
        if k < len(buckets):
            return k
        while k >= MAX_BUCKETS:
            self._join()
            k //= 2
        while len(self.stops) <= k:
            self.stops.append([0] * len(self.stops_total))
            self.seen.append([0] * len(self.seen_total))
            self.differed.append([0] * len(self.seen_total))
        return k

    def _join(self) -> None:
        for table in (self.stops, self.seen, self.differed):
            if len(table) % 2:
                table.append([0] * len(table[0]))
            table[:] = [
                [a + b for a, b in zip(table[k], table[k + 1], strict=True)]
                for k in range(0, len(table), 2)
            ]
        self.width *= 2
