"""Count what the decisions of a candidate lead to, a few rows at a time.

Everything but money is counted in whole numbers, so the results do not depend on how many rows
are read at a time.
"""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.chunk import Bools, Bytes, Chunk, Floats, Ints

UNKNOWN = 2  # beside 0, no, and 1, yes


class Outcomes(msgspec.Struct, frozen=True, eq=False):
    """What n rows of a log say about stopping at each of K arms."""

    reach: Ints  # the last arm whose output is known
    stops: Ints  # where the recorded round stopped
    failed: Bools  # whether the arm after ``reach`` was run and failed
    wrong: Bytes  # (n, K): whether each arm was wrong, 0, 1 or `UNKNOWN`
    differs: Bytes  # (n, K): whether it disagreed with the deepest
    spent: Floats | None  # (n, K): what the calls up to each arm really cost; NaN if not known

    @staticmethod
    def of(chunk: Chunk) -> "Outcomes":
        """Derive them from rows of a log."""
        rounds, codes = chunk.rounds, chunk.codes
        differs = (codes != codes[:, -1:]).view(np.uint8)
        differs[codes[:, -1] < 0] = UNKNOWN
        wrong = np.full_like(differs, UNKNOWN) if rounds.wrong is None else rounds.wrong
        spent = None if chunk.costs is None else np.cumsum(chunk.costs, axis=1)
        return Outcomes(rounds.reach, chunk.stops, rounds.failed, wrong, differs, spent)

    def ends(self, decided: Ints) -> Ints:
        """Return where rounds end with these decisions: −1 where no arm answers.

        A round in which an arm failed ends with the answers before that arm. Where the end lies
        beyond ``reach``, the log does not have the outcome.
        """
        return np.where(self.failed, np.minimum(decided, self.reach), decided)

    def same(self, decided: Ints) -> int:
        """Count rounds decided as recorded; in one that failed, the decision was to continue."""
        return int(np.where(self.failed, decided > self.stops, decided == self.stops).sum())


class ReplayTotals:
    """Counts of the rounds of one candidate, or of one fixed depth."""

    def __init__(self, n_arms: int, *, compare: bool) -> None:
        self._k = n_arms
        self._compared = range(n_arms if compare else 0)
        # by where rounds ended, whether the answer was wrong, and whether it differed from the
        # deepest arm's; `UNKNOWN` is the last of three
        self.outcomes = np.zeros((n_arms, 3, 3), dtype=np.int64)
        # for each fixed depth: by where this candidate ended, where that depth did, and the
        # difference of their ``wrong``, or ``differs`` (−1, 0, 1), where both are known
        self.over_wrong = np.zeros((n_arms, n_arms, n_arms, 3), dtype=np.int64)
        self.over_differs = np.zeros_like(self.over_wrong)
        # decided deeper than the log goes; the first arm failed; decided as recorded
        self.beyond = self.unanswered = self.same = 0
        self.money = np.zeros(3)  # of what rounds v really cost: how many, Σv and Σv²

    def add(self, known: Outcomes, decided: Ints) -> None:
        """Count rows with these decisions."""
        k, ends = self._k, known.ends(decided)
        self.same += known.same(decided)
        beyond, unanswered = ends > known.reach, ends < 0
        self.beyond += int(beyond.sum())
        self.unanswered += int(unanswered.sum())
        rows = np.flatnonzero(~(beyond | unanswered))
        ends = ends[rows]
        wrong, differs = known.wrong[rows, ends], known.differs[rows, ends]
        self.outcomes += _counts(9 * ends + 3 * wrong + differs, (k, 3, 3))
        if known.spent is not None:
            spent = known.spent[rows, ends]
            spent = spent[~np.isnan(spent)]
            self.money += [len(spent), spent.sum(), (spent**2).sum()]
        for depth in self._compared:
            others = known.ends(np.full(len(known.reach), depth))[rows]
            for over, mine, table in (
                (self.over_wrong, wrong, known.wrong),
                (self.over_differs, differs, known.differs),
            ):
                other = table[rows, others]
                cells = (k * ends + others) * 3 + 1 + mine - other
                over[depth] += _counts(cells[(mine != UNKNOWN) & (other != UNKNOWN)], (k, k, 3))

    def add_counts(self, other: "ReplayTotals") -> None:
        """Add the counts of other rounds."""
        for name in ("outcomes", "over_wrong", "over_differs", "beyond", "unanswered", "same"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.money += other.money

    @property
    def labelled(self) -> int:
        """How many rounds are known to be right or wrong."""
        return int(self.outcomes[:, :UNKNOWN].sum())


def _counts(cells: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
