"""Counters of one process, which the metrics show."""

from bisect import bisect_left
from collections import Counter

# Upper bounds of the buckets of a histogram, in seconds; the last bucket has none.
BOUNDS = (2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OTHER = "other"  # the route of requests that have none


class Histogram:
    """How often something took how long: counts for each bucket, and seconds in total."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Counters:
    """What one process has done since it started."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Histogram] = {}  # by route and status
        self.commits = Histogram()
        self.failed_writes = 0  # how often writing began to fail
        self.snapshots = 0
        self.cascade_failures: Counter[str] = Counter()  # by cascade
        self.proxy: Counter[tuple[str, str]] = Counter()  # by cascade and what happened

    def count_response(self, route: str, status: int, seconds: float) -> None:
        """Count an answer; ``route`` is a name, never a path with ids in it."""
        if (route, status) not in self.answers:
            self.answers[route, status] = Histogram()
        self.answers[route, status].add(seconds)
