"""Counting what a player's decisions came to, a few rows at a time.

Everything but money is kept in whole numbers, so that it makes no difference how many rows are
taken at a time.
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


class Known(msgspec.Struct, frozen=True, eq=False):
    """What some rows of a log tell about every depth.

    Attributes
    ----------
    reach, stops : ndarray of int64, shape (n,)
        The last arm whose output is known; where the round stopped when it was played.
    failed : ndarray of bool, shape (n,)
        Whether the arm after ``reach`` was asked and failed.
    outcomes : ndarray of uint8, shape (n, K)
        Of each arm 3·wrong + apart: whether it was wrong, and whether it disagreed with the
        deepest; each is 0, 1 or `UNKNOWN`.
    wrong : ndarray of uint8, shape (n, K), or None
        The first of these alone; None if the log has no labels.
    apart : ndarray of uint8, shape (n, K)
        The second alone.
    spent : ndarray of float64, shape (n, K), or None
        What the calls up to each arm really cost; NaN where that is not known.
    whole : bool
        Whether every output of every row is known.
    """

    reach: Ints
    stops: Ints
    failed: NDArray[np.bool_]
    outcomes: Bytes
    wrong: Bytes | None
    apart: Bytes
    spent: Floats | None
    whole: bool

    @property
    def n(self) -> int:
        """How many rows there are."""
        return len(self.reach)

    @staticmethod
    def of(chunk: Chunk) -> "Known":
        """Gather what a chunk tells."""
        rounds, n_arms = chunk.rounds, chunk.codes.shape[1]
        last = n_arms - 1
        to_last = rounds.reach == last
        apart = np.zeros((chunk.n, n_arms), dtype=np.uint8)
        # among the pairs in their order, (i, K−1) is the last of those that begin with i
        ends = list(accumulate(range(last, 0, -1)))
        apart[:, :last] = rounds.differ[:, [end - 1 for end in ends]]
        whole = bool(to_last.all())
        if not whole:
            apart[~to_last] = UNKNOWN
        spent = None if chunk.costs is None else np.cumsum(chunk.costs, axis=1)
        wrong = np.uint8(UNKNOWN) if rounds.wrong is None else rounds.wrong
        outcomes = np.uint8(3) * wrong + apart
        return Known(
            rounds.reach, chunk.stops, rounds.failed, outcomes, rounds.wrong, apart, spent, whole
        )

    def ended(self, decided: Ints) -> Ints:
        """Return where rounds end if they are decided so: −1 where no arm answers.

        A round whose arm failed ends with the answers before it, whoever went on to that arm.
        Where the end lies beyond ``reach``, the log does not know.
        """
        if self.whole:
            return decided
        return np.where(self.failed, np.minimum(decided, self.reach), decided)


class Mean:
    """Mean and variance of numbers that come in pieces (Chan's update)."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self._squares = 0.0  # Σ(v − mean)²

    def add(self, values: Floats) -> None:
        """Take more numbers."""
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


class Tally:
    """Counts of a player's rounds.

    Attributes
    ----------
    outcomes : ndarray of shape (K, 3, 3)
        Rounds by where they ended, whether the answer was wrong, and whether it was another than
        the deepest arm's; `UNKNOWN` is the last of three.
    beyond : int
        Rounds decided deeper than the log knows.
    unanswered : int
        Rounds in which the first arm failed.
    same : int
        Rounds decided as when they were played.
    against_wrong, against_apart : ndarray of shape (K, K, K, 3)
        For each fixed depth: rounds by where this player ended, where that depth did, and the
        difference of their ``wrong``, or ``apart`` (−1, 0, 1), where both are known. ``apart`` is
        not looked at any more once there are `ENOUGH` labels to judge by.
    money : Mean
        What the rounds really cost, where the log says.
    """

    def __init__(self, n_arms: int, *, compare: bool) -> None:
        self._k = n_arms
        self._compared = range(n_arms if compare else 0)
        self.outcomes = np.zeros((n_arms, 3, 3), dtype=np.int64)
        self.against_wrong = np.zeros((n_arms, n_arms, n_arms, 3), dtype=np.int64)
        self.against_apart = np.zeros_like(self.against_wrong)
        self.beyond = self.unanswered = self.same = 0
        self.money = Mean()

    def add(self, known: Known, decided: Ints) -> None:
        """Count rows that were decided so."""
        k = self._k
        ends = known.ended(decided)
        self.same += _same(known, decided)
        rows = np.arange(known.n)
        if not known.whole:
            beyond, silent = ends > known.reach, ends < 0
            self.beyond += int(beyond.sum())
            self.unanswered += int(silent.sum())
            rows = np.flatnonzero(~(beyond | silent))
            ends = ends[rows]
        cells = rows * k + ends  # in a table of rows by arms
        outcomes = known.outcomes.take(cells)
        self.outcomes += _counted(9 * ends + outcomes, (k, 3, 3))
        if known.spent is not None:
            spent = known.spent.take(cells)
            self.money.add(spent[~np.isnan(spent)])
        if not self._compared:
            return
        if self.labelled < ENOUGH:
            self._compare(known, known.apart, rows, ends, self.against_apart)
        if known.wrong is not None:
            self._compare(known, known.wrong, rows, ends, self.against_wrong)

    @property
    def labelled(self) -> int:
        """How many rounds were found right or wrong."""
        return int(self.outcomes[:, :UNKNOWN].sum())

    def _compare(self, known: Known, table: Bytes, rows: Ints, ends: Ints, against: Ints) -> None:
        judged = table.take(rows * self._k + ends)
        for depth in self._compared:
            against[depth] += self._differences(known, table, depth, rows, ends, judged)

    def _differences(
        self, known: Known, table: Bytes, depth: int, rows: Ints, ends: Ints, judged: Bytes
    ) -> Ints:
        theirs: Any = depth
        if known.whole:
            there = table[:, depth]
        else:
            theirs = known.ended(np.full(known.n, depth))[rows]
            there = table[rows, theirs]  # unknown where the log does not reach
        cells: NDArray[Any] = (self._k * ends + theirs) * 3 + 1 + judged - there
        both = (judged != UNKNOWN) & (there != UNKNOWN)
        if not both.all():
            cells = cells[both]
        return _counted(cells, (self._k, self._k, 3))


def _counted(cells: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)


def _same(known: Known, decided: Ints) -> int:
    """Count rounds that are decided as they were played.

    One that failed was decided to go on, who knows how far.
    """
    if known.failed.any():
        as_played = np.where(known.failed, decided > known.stops, decided == known.stops)
        return int(as_played.sum())
    return int((decided == known.stops).sum())
