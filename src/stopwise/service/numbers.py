"""What the hot path counts: whole numbers and one search in a short list, nothing else."""

from bisect import bisect_left

# Seconds; the last bucket is open. Finest around a millisecond, where decisions are.
BOUNDS = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
MOST_SERIES = 1_000  # a slip that counts paths instead of routes must not fill the memory
OTHER = "other"


class Histogram:
    """How often something took how long.

    Attributes
    ----------
    counts : list of int
        Per bucket: as many as ``BOUNDS``, and one for all beyond.
    total : float
        Seconds in all.

    Examples
    --------
    >>> histogram = Histogram()
    >>> for seconds in (0.0001, 0.003, 0.005, 60):
    ...     histogram.add(seconds)
    >>> histogram.counts[0], histogram.counts[4], histogram.counts[-1]
    (1, 2, 1)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Numbers:
    """What one process has done since it started. Everything else the metrics read from the state.

    Attributes
    ----------
    answers : dict of Histogram
        How many answers, and how long each took, by (route, status).
    commits : Histogram
        How many blocks were committed, and how long each took.
    failed_writes : int
        How often writing began to fail.
    snapshots : int
        Snapshots written.

    Examples
    --------
    >>> numbers = Numbers()
    >>> numbers.answered("decisions", 201, 0.0004)
    >>> sum(numbers.answers["decisions", 201].counts)
    1
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Histogram] = {}
        self.commits = Histogram()
        self.failed_writes = 0
        self.snapshots = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer; ``route`` is a pattern, never a path with ids in it."""
        histogram = self.answers.get((route, status))
        if histogram is None:
            key = (route if len(self.answers) < MOST_SERIES else OTHER, status)
            histogram = self.answers.setdefault(key, Histogram())
        # what Histogram.add does, without the call
        histogram.counts[bisect_left(BOUNDS, seconds)] += 1
        histogram.total += seconds
