"""Counting what the decisions of a candidate lead to, a few rows at a time.

Everything but money is counted in whole numbers, so it makes no difference how many rows are
read at a time.
"""

import math
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.chunk import Chunk

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

UNKNOWN = 2  # beside 0, no, and 1, yes
ENOUGH = 30  # labelled rounds from which losses are compared (heuristic: normal intervals hold)


class Outcomes(msgspec.Struct, frozen=True, eq=False):
    """What rows of a log say about stopping at each arm.

    Attributes
    ----------
    reach, stops : ndarray of int64, shape (n,)
        The last arm whose output is known; where the round stopped when it was recorded.
    failed : ndarray of bool, shape (n,)
        Whether the arm after ``reach`` was run and failed.
    wrong : ndarray of uint8, shape (n, K), or None
        Whether each arm was wrong: 0, 1 or `UNKNOWN`; None if the log has no labels.
    differs : ndarray of uint8, shape (n, K)
        Whether each arm disagreed with the deepest: 0, 1 or `UNKNOWN`.
    both : ndarray of uint8, shape (n, K)
        3·wrong + differs.
    spent : ndarray of float64, shape (n, K), or None
        What the calls up to each arm really cost; NaN where that is not known.
    complete : bool
        Whether every output of every row is known.
    """

    reach: Ints
    stops: Ints
    failed: NDArray[np.bool_]
    wrong: Bytes | None
    differs: Bytes
    both: Bytes
    spent: Floats | None
    complete: bool

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.reach)

    @staticmethod
    def of(chunk: Chunk) -> "Outcomes":
        """Derive them from rows of a log."""
        rounds, n_arms = chunk.rounds, chunk.codes.shape[1]
        last = n_arms - 1
        to_last = rounds.reach == last
        differs = np.zeros((chunk.n, n_arms), dtype=np.uint8)
        # among the pairs in their order, (i, K−1) is the last of those that begin with i
        ends = list(accumulate(range(last, 0, -1)))
        differs[:, :last] = rounds.differ[:, [end - 1 for end in ends]]
        complete = bool(to_last.all())
        if not complete:
            differs[~to_last] = UNKNOWN
        wrong = np.uint8(UNKNOWN) if rounds.wrong is None else rounds.wrong
        return Outcomes(
            reach=rounds.reach,
            stops=chunk.stops,
            failed=rounds.failed,
            wrong=rounds.wrong,
            differs=differs,
            both=np.uint8(3) * wrong + differs,
            spent=None if chunk.costs is None else np.cumsum(chunk.costs, axis=1),
            complete=complete,
        )

    def ends(self, decided: Ints) -> Ints:
        """Return where rounds end with these decisions: −1 where no arm answers.

        A round in which an arm failed ends with the answers before that arm. Where the end lies
        beyond ``reach``, the log does not know the outcome.
        """
        if self.complete:
            return decided
        return np.where(self.failed, np.minimum(decided, self.reach), decided)

    def same(self, decided: Ints) -> int:
        """Count rounds that are decided as they were recorded; one that failed went on there."""
        return int(np.where(self.failed, decided > self.stops, decided == self.stops).sum())


class RunningMean:
    """Mean and variance of numbers that come in pieces (Chan's update)."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self._squares = 0.0  # Σ(v − mean)²

    def add(self, values: Floats) -> None:
        """Add numbers."""
        n = len(values)
        if not n:
            return
        mean = float(values.mean())
        shift, total = mean - self.mean, self.n + n
        self._squares += float(((values - mean) ** 2).sum()) + shift**2 * self.n * n / total
        self.mean += shift * n / total
        self.n = total

    @property
    def error(self) -> float:
        """The standard error of the mean, of independent numbers."""
        return math.sqrt(self._squares / (self.n - 1) / self.n) if self.n > 1 else 0.0


class ReplayTotals:
    """Counts of the rounds of one candidate, or of one fixed depth.

    Attributes
    ----------
    outcomes : ndarray of shape (K, 3, 3)
        Rounds by where they ended, whether the answer was wrong, and whether it differed from
        the deepest arm's; `UNKNOWN` is the last of three.
    beyond : int
        Rounds decided deeper than the log knows.
    unanswered : int
        Rounds in which the first arm failed.
    same : int
        Rounds decided as they were recorded.
    over_wrong, over_differs : ndarray of shape (K, K, K, 3)
        For each fixed depth: rounds by where this candidate ended, where that depth did, and the
        difference of their ``wrong``, or ``differs`` (−1, 0, 1), where both are known. ``differs``
        is no longer counted once there are `ENOUGH` labels.
    money : RunningMean
        What the rounds really cost, where the log says.
    """

    def __init__(self, n_arms: int, *, compare: bool) -> None:
        self._k = n_arms
        self._compared = range(n_arms if compare else 0)
        self.outcomes = np.zeros((n_arms, 3, 3), dtype=np.int64)
        self.over_wrong = np.zeros((n_arms, n_arms, n_arms, 3), dtype=np.int64)
        self.over_differs = np.zeros_like(self.over_wrong)
        self.beyond = self.unanswered = self.same = 0
        self.money = RunningMean()

    def add(self, known: Outcomes, decided: Ints) -> None:
        """Count rows with these decisions."""
        k, ends = self._k, known.ends(decided)
        self.same += known.same(decided)
        rows = np.arange(known.n)
        if not known.complete:
            beyond, silent = ends > known.reach, ends < 0
            self.beyond += int(beyond.sum())
            self.unanswered += int(silent.sum())
            rows = np.flatnonzero(~(beyond | silent))
            ends = ends[rows]
        cells = rows * k + ends  # in a table of rows by arms
        self.outcomes += _counts(9 * ends + known.both.take(cells), (k, 3, 3))
        if known.spent is not None:
            spent = known.spent.take(cells)
            self.money.add(spent[~np.isnan(spent)])
        for depth in self._compared:
            theirs = known.ends(np.full(known.n, depth))[rows]
            if self.labelled < ENOUGH:
                self.over_differs[depth] += self._over(known.differs, rows, ends, theirs)
            if known.wrong is not None:
                self.over_wrong[depth] += self._over(known.wrong, rows, ends, theirs)

    @property
    def labelled(self) -> int:
        """How many rounds are known to be right or wrong."""
        return int(self.outcomes[:, :UNKNOWN].sum())

    def _over(self, table: Bytes, rows: Ints, ends: Ints, theirs: Ints) -> Ints:
        """Count rounds by both ends and by the difference of what a table holds there."""
        mine, other = table.take(rows * self._k + ends), table.take(rows * self._k + theirs)
        cells: NDArray[Any] = (self._k * ends + theirs) * 3 + 1 + mine - other
        both = (mine != UNKNOWN) & (other != UNKNOWN)
        return _counts(cells if both.all() else cells[both], (self._k, self._k, 3))


def _counts(cells: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
