"""The counts of a replay of some rounds, and the numbers that follow from them.

Everything but money is counted in whole numbers, so the results do not depend on how many rows
are read at a time, and those of two sets of rounds add up exactly.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH
from stopwise.errors import InvalidLogError
from stopwise.intervals import Interval, normal_interval, wilson
from stopwise.logs.chunk import Chunk
from stopwise.logs.log import Log
from stopwise.logs.replay.results import CandidateResult, Criterion, Replay
from stopwise.logs.units import error_cost, totals
from stopwise.logs.vocabulary import Vocabulary
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.protocol import Policy

SAME = 1e-12  # losses that differ by less are equal but for rounding
ROUNDING = 1e-12  # a relative difference that is smaller is rounding error
UNKNOWN = 2  # beside 0, no, and 1, yes


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

    def add(
        self, chunk: Chunk, decided: Ints, wrong: Bytes, differs: Bytes, spent: Floats | None
    ) -> None:
        """Count rows with these decisions.

        ``wrong`` and ``differs`` (n, K) say whether each arm was wrong, and whether it disagreed
        with the deepest; ``spent`` what the calls up to it really cost, NaN if that is not known.
        """
        k, ends, failed = self._k, _ends(chunk, decided), chunk.rounds.failed
        # in a round that failed, the decision was to continue
        self.same += int(np.where(failed, decided > chunk.stops, decided == chunk.stops).sum())
        beyond, unanswered = ends >= chunk.rounds.answered, ends < 0
        self.beyond += int(beyond.sum())
        self.unanswered += int(unanswered.sum())
        rows = np.flatnonzero(~(beyond | unanswered))
        ends = ends[rows]
        missed, differed = wrong[rows, ends], differs[rows, ends]
        self.outcomes += _counts(9 * ends + 3 * missed + differed, (k, 3, 3))
        if spent is not None:
            paid = spent[rows, ends]
            paid = paid[~np.isnan(paid)]
            self.money += [len(paid), paid.sum(), (paid**2).sum()]
        for depth in self._compared:
            others = _ends(chunk, np.full(chunk.n, depth))[rows]
            for over, mine, table in (
                (self.over_wrong, missed, wrong),
                (self.over_differs, differed, differs),
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


def _ends(chunk: Chunk, decided: Ints) -> Ints:
    """Return where rounds end with these decisions: −1 where no arm answers.

    A round in which an arm failed ends with the answers before that arm. Where the end lies beyond
    the last answer, the log does not have the outcome.
    """
    rounds = chunk.rounds
    return np.where(rounds.failed, np.minimum(decided, rounds.answered - 1), decided)


def _counts(cells: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)


class Tally:
    """What the decisions of some policies lead to, and what fixed depths do."""

    def __init__(self, log: Log, cascade: Cascade, names: Sequence[str], seed: int) -> None:
        k = cascade.n_arms
        self._log, self._cascade, self._names, self._seed = log.path.name, cascade, names, seed
        self._vocabulary, self._columns = Vocabulary(cascade.names), log.encoding.describe()
        self._says_stop = log.layout.stop is not None
        # the policies, then the fixed depths
        self._lines = [ReplayTotals(k, compare=True) for _ in names]
        self._lines += [ReplayTotals(k, compare=False) for _ in range(k)]
        self._shallowest = self._lines[len(names)]
        self._decisions: list[list[Bytes]] = [[] for _ in names]
        # of all rounds; of labels that each policy asked for, and that it got
        self._counts, self._asked, self._answered = Counter[str](), Counter[str](), Counter[str]()

    @property
    def answered(self) -> bool:
        """Whether any round has an answer, so that there is something to evaluate."""
        return self._shallowest.unanswered < self._counts["rounds"]

    def add(self, chunk: Chunk, stops: Sequence[Ints]) -> None:
        """Count these rounds, which each policy decided so."""
        self._vocabulary.add(chunk)
        rounds, codes, k = chunk.rounds, chunk.codes, self._cascade.n_arms
        differs = (codes != codes[:, -1:]).view(np.uint8)
        differs[codes[:, -1] < 0] = UNKNOWN
        wrong = np.full_like(differs, UNKNOWN)
        if rounds.right is not None:
            known = chunk.labelled[:, None] & (codes >= 0)
            wrong[known] = ~rounds.right[known]
        spent = None if chunk.costs is None else np.cumsum(chunk.costs, axis=1)
        fixed = [np.full(chunk.n, depth) for depth in range(k)]
        for decided, line in zip((*stops, *fixed), self._lines, strict=True):
            line.add(chunk, decided, wrong, differs, spent)
        for decided, decisions in zip(stops, self._decisions, strict=True):
            decisions.append(decided.astype(np.uint8))
        self._counts["rounds"] += chunk.n
        self._counts["labelled"] += int((chunk.labelled | (chunk.labels >= 0)).sum())
        self._counts["failed"] += int(rounds.failed.sum())
        self._counts["truncated"] += int(((rounds.answered < k) & ~rounds.failed).sum())

    def add_labels(self, policies: Sequence[Policy]) -> None:
        """Count the labels that the policies asked for and got, when all rounds are played."""
        for name, policy in zip(self._names, policies, strict=True):
            if isinstance(policy, PairwisePolicy) and policy.labels.asked:
                self._asked[name], self._answered[name] = policy.labels.asked, policy.labels.came

    def empty(self, log: Log) -> "Tally":
        """Return one for the same policies, of no rounds."""
        return Tally(log, self._cascade, self._names, self._seed)

    def __add__(self, other: "Tally") -> "Tally":
        """Add the counts of other rounds to these; not their decisions."""
        for one, more in zip(self._lines, other._lines, strict=True):
            one.add_counts(more)
        self._vocabulary.merge(other._vocabulary)
        self._counts.update(other._counts)
        self._asked.update(other._asked)
        self._answered.update(other._answered)
        return self

    def result(self, by: Criterion | None = None) -> Replay:
        """Turn all counts into numbers; ``by`` is what lines are compared by, if that is given."""
        arms = self._cascade.names
        if not self.answered:
            raise InvalidLogError(
                f"{self._log}: the first arm, {arms[0]!r}, failed in every round, so there "
                "is no answer to evaluate"
            )
        doubts = filter(
            None, (*self._vocabulary.warnings(self._cascade), self._vocabulary.label_mismatch())
        )
        if by is None:
            enough = self._shallowest.labelled >= ENOUGH
            by = "total loss" if enough else "cost + disagreement"
        exact = not any(line.beyond for line in self._lines)
        n, counts = len(self._names), self._counts
        recorded = counts["rounds"] if self._says_stop or counts["truncated"] else None
        lines = [
            result_of(name, line, self._cascade, recorded, by if exact and k < n else None)
            for k, (name, line) in enumerate(zip((*self._names, *arms), self._lines, strict=True))
        ]
        policies, fixed = lines[:n], lines[n:]
        if values := values_of(policies, by):
            policies = [policies[i] for i in sorted(range(len(values)), key=values.__getitem__)]
        best = None
        if values := values_of(fixed, by):  # the shallowest of equals
            best = next(i for i, value in enumerate(values) if value <= min(values) + SAME)
        decided = (np.concatenate(one) if one else np.empty(0, np.uint8) for one in self._decisions)
        return Replay(
            log=self._log,
            arms=arms,
            costs=tuple(totals(self._cascade).tolist()),
            error_cost=error_cost(self._cascade),
            rounds=counts["rounds"],
            labelled=counts["labelled"],
            failed=counts["failed"],
            truncated=counts["truncated"],
            unanswered=self._shallowest.unanswered,
            seed=self._seed,
            asked=dict(self._asked),
            answered=dict(self._answered),
            judged_by=by,
            policies=tuple(policies),
            fixed=tuple(fixed),
            best_fixed=best,
            notes=tuple(f"Warning: {doubt}." for doubt in doubts),
            columns=self._columns,
            answers=self._vocabulary.table(),
            decisions=dict(zip(self._names, decided, strict=True)),
        )


def result_of(
    name: str,
    line: ReplayTotals,
    cascade: Cascade,
    recorded: int | None,
    compare: Criterion | None,
) -> CandidateResult:
    """Turn counts into numbers with intervals, in the unit of the cascade's costs.

    ``recorded`` counts the rounds of the log, None if it does not say where they stopped;
    ``compare`` is by what to compare with fixed depths, None where that means nothing.
    """
    costs, one_error, counts = totals(cascade), error_cost(cascade), line.outcomes
    n = int(counts.sum())
    by_end = counts.sum(axis=(1, 2))
    errors, differing = counts.sum(axis=2)[:, :UNKNOWN], counts.sum(axis=1)[:, :UNKNOWN]
    with_event = costs[:, None] + np.array([0.0, one_error])
    over = line.over_wrong if compare == "total loss" else line.over_differs
    extra = costs[:, None, None] - costs[None, :, None] + one_error * np.array([-1.0, 0.0, 1.0])
    differences = [_mean(extra, one) for one in over] if compare else []
    known = tuple(one for one in differences if one is not None)
    return CandidateResult(
        name=name,
        rounds=n,
        beyond=line.beyond,
        depths=tuple(wilson(int(m), n) for m in by_end),
        cost=_mean(costs, by_end),
        compared=int(differing.sum()),
        disagreement=_share(differing),
        cost_and_disagreement=_mean(with_event, differing),
        labelled=int(errors.sum()),
        error=_share(errors),
        loss=_mean(with_event, errors),
        priced=int(line.money[0]),
        money=_estimate(*line.money.tolist()),
        as_played=None if recorded is None else wilson(line.same, recorded),
        over_fixed=known if len(known) == len(costs) else None,
    )


def values_of(results: Sequence[CandidateResult], by: Criterion) -> list[float] | None:
    """Return the number by which each is compared; None unless all can be."""
    values = [one.value(by) for one in results if one.exact]
    known = [value.value for value in values if value is not None]
    return known if len(known) == len(results) else None


def _share(counts: Ints) -> Interval | None:
    total = int(counts.sum())
    return wilson(int(counts[:, 1].sum()), total) if total else None


def _mean(values: Floats, counts: Ints) -> Interval | None:
    """Return the mean of values, each with how often it occurred."""
    return _estimate(counts.sum(), (values * counts).sum(), (values**2 * counts).sum())


def _estimate(n: float, total: float, squares: float) -> Interval | None:
    """Return the mean of n numbers; None if there are fewer than two."""
    if n < 2:
        return None
    mean, spread = float(total / n), float(squares - total**2 / n)
    if spread < ROUNDING * squares:  # all are equal
        spread = 0.0
    return normal_interval(mean, math.sqrt(spread / (n - 1) / n))
