"""Counters of one process, exported as metrics."""

from bisect import bisect_left
from collections import Counter

# Upper bounds of the histogram buckets, in seconds; the last bucket is unbounded.
BOUNDS = (2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER = "other"  # the route label of requests that match no route


class Histogram:
    """A histogram of durations: a count per bucket, and the total in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Counters:
    """Counters of one process since its start."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Histogram] = {}  # by route and status
        self.commits = Histogram()
        self.failed_writes = 0  # transitions from working to failing writes
        self.snapshots = 0
        self.cascade_failures: Counter[str] = Counter()  # by cascade
        self.proxy: Counter[tuple[str, str]] = Counter()  # by cascade and event

    def count_response(self, route: str, status: int, seconds: float) -> None:
        """Count a response; ``route`` is the name of a route, not a path with ids."""
        if (route, status) not in self.answers:
            self.answers[route, status] = Histogram()
        self.answers[route, status].add(seconds)
