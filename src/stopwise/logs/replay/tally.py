"""Counts of a replay, and the results computed from them.

Everything except money is counted in integers, so results do not depend on the chunk size, and
counts of two sets of rounds add up exactly.
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

TIE = 1e-12  # losses that differ by less are equal up to rounding
ROUNDING = 1e-12  # smaller relative differences are rounding errors
UNKNOWN = 2  # code besides 0 (no) and 1 (yes)


class ReplayTotals:
    """Counts of the rounds of one candidate, or of one fixed depth."""

    def __init__(self, n_arms: int, *, compare: bool) -> None:
        self._k = n_arms
        self._compared = range(n_arms if compare else 0)
        # [last arm, wrong, differs from the deepest arm's answer]; the latter are 0, 1 or UNKNOWN
        self.outcomes = np.zeros((n_arms, 3, 3), dtype=np.int64)
        # [fixed depth, last arm, last arm at that depth, 1 + difference of wrong (or differs)], for
        # rounds in which both are known
        self.over_wrong = np.zeros((n_arms, n_arms, n_arms, 3), dtype=np.int64)
        self.over_differs = np.zeros_like(self.over_wrong)
        self.beyond = 0  # rounds in which the decision was deeper than the log
        self.unanswered = 0  # rounds in which the first arm failed
        self.same = 0  # rounds decided as recorded
        self.money = np.zeros(3)  # count, sum and sum of squares of the actual costs

    def add(
        self, chunk: Chunk, decided: Ints, wrong: Bytes, differs: Bytes, spent: Floats | None
    ) -> None:
        """Count rows with these decisions.

        ``wrong`` and ``differs`` (n, K) are 1 if an arm was wrong or disagreed with the deepest
        arm, respectively, else 0, or `UNKNOWN`; ``spent`` (n, K) is the actual cost up to each arm,
        NaN if unknown.
        """
        k = self._k
        stops = _last_arms(chunk, decided)
        failed = chunk.rounds.failed
        # in a round that failed, the decision was to continue
        self.same += int(np.where(failed, decided > chunk.stops, decided == chunk.stops).sum())
        beyond, unanswered = stops >= chunk.rounds.answered, stops < 0
        self.beyond += int(beyond.sum())
        self.unanswered += int(unanswered.sum())
        rows = np.flatnonzero(~(beyond | unanswered))
        stops = stops[rows]
        was_wrong, differed = wrong[rows, stops], differs[rows, stops]
        self.outcomes += _counts(9 * stops + 3 * was_wrong + differed, (k, 3, 3))
        if spent is not None:
            paid = spent[rows, stops]
            paid = paid[~np.isnan(paid)]
            self.money += [len(paid), paid.sum(), (paid**2).sum()]
        for depth in self._compared:
            depths = _last_arms(chunk, np.full(chunk.n, depth))[rows]
            for over, own, table in (
                (self.over_wrong, was_wrong, wrong),
                (self.over_differs, differed, differs),
            ):
                other = table[rows, depths]
                cells = (k * stops + depths) * 3 + 1 + own - other
                over[depth] += _counts(cells[(own != UNKNOWN) & (other != UNKNOWN)], (k, k, 3))

    def add_counts(self, other: "ReplayTotals") -> None:
        """Add the counts of other rounds."""
        for name in ("outcomes", "over_wrong", "over_differs", "beyond", "unanswered", "same"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.money += other.money

    @property
    def labelled(self) -> int:
        """The number of rounds with a label."""
        return int(self.outcomes[:, :UNKNOWN].sum())


def _last_arms(chunk: Chunk, decided: Ints) -> Ints:
    """Return the last arm that answers in each round with these decisions; −1 if none does.

    A round in which an arm failed ends with the answers before that arm. If the result is beyond
    the last logged answer, the log does not have the outcome.
    """
    rounds = chunk.rounds
    return np.where(rounds.failed, np.minimum(decided, rounds.answered - 1), decided)


def _counts(cells: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)


class Tally:
    """Outcome counts of some policies and of every fixed depth."""

    def __init__(self, log: Log, cascade: Cascade, names: Sequence[str], seed: int) -> None:
        k = cascade.n_arms
        self._log = log.path.name
        self._cascade = cascade
        self._names = names
        self._seed = seed
        self._vocabulary = Vocabulary(cascade.names)
        self._columns = log.encoding.describe()
        self._has_stops = log.layout.stop is not None
        # the policies, then the fixed depths
        self._totals = [ReplayTotals(k, compare=True) for _ in names]
        self._totals += [ReplayTotals(k, compare=False) for _ in range(k)]
        self._shallowest = self._totals[len(names)]
        self._decisions: list[list[Bytes]] = [[] for _ in names]
        self._counts = Counter[str]()  # of rounds
        self._asked = Counter[str]()  # labels requested, by policy
        self._answered = Counter[str]()  # of these, labels that the log has

    @property
    def answered(self) -> bool:
        """Whether any round has an answer that can be evaluated."""
        return self._shallowest.unanswered < self._counts["rounds"]

    def add(self, chunk: Chunk, stops: Sequence[Ints]) -> None:
        """Count the rounds of a chunk; ``stops`` are the decisions of each policy."""
        self._vocabulary.add(chunk)
        rounds, codes, k = chunk.rounds, chunk.codes, self._cascade.n_arms
        differs = (codes != codes[:, -1:]).view(np.uint8)
        differs[codes[:, -1] < 0] = UNKNOWN
        wrong = np.full_like(differs, UNKNOWN)
        if rounds.right is not None:
            evaluable = chunk.labelled[:, None] & (codes >= 0)
            wrong[evaluable] = ~rounds.right[evaluable]
        spent = None if chunk.costs is None else np.cumsum(chunk.costs, axis=1)
        fixed = [np.full(chunk.n, depth) for depth in range(k)]
        for decided, counted in zip((*stops, *fixed), self._totals, strict=True):
            counted.add(chunk, decided, wrong, differs, spent)
        for decided, decisions in zip(stops, self._decisions, strict=True):
            decisions.append(decided.astype(np.uint8))
        self._counts["rounds"] += chunk.n
        self._counts["labelled"] += int((chunk.labelled | (chunk.labels >= 0)).sum())
        self._counts["failed"] += int(rounds.failed.sum())
        self._counts["truncated"] += int(((rounds.answered < k) & ~rounds.failed).sum())

    def add_labels(self, policies: Sequence[Policy]) -> None:
        """Count the labels that policies requested and received, after the last round."""
        for name, policy in zip(self._names, policies, strict=True):
            if isinstance(policy, PairwisePolicy) and policy.labels.requested:
                self._asked[name] = policy.labels.requested
                self._answered[name] = policy.labels.received

    def empty(self, log: Log) -> "Tally":
        """Return a tally of the same policies without rounds."""
        return Tally(log, self._cascade, self._names, self._seed)

    def __add__(self, other: "Tally") -> "Tally":
        """Add the counts of other rounds in place, without their decisions."""
        for mine, theirs in zip(self._totals, other._totals, strict=True):
            mine.add_counts(theirs)
        self._vocabulary.merge(other._vocabulary)
        self._counts.update(other._counts)
        self._asked.update(other._asked)
        self._answered.update(other._answered)
        return self

    def result(self, by: Criterion | None = None) -> Replay:
        """Return the results; ``by`` overrides the criterion for comparing options."""
        arms = self._cascade.names
        if not self.answered:
            raise InvalidLogError(
                f"{self._log}: the first arm, {arms[0]!r}, failed in every round, so no "
                "round can be evaluated"
            )
        warnings = [*self._vocabulary.warnings(self._cascade)]
        if mismatch := self._vocabulary.label_mismatch():
            warnings.append(mismatch)
        if by is None:
            enough = self._shallowest.labelled >= ENOUGH
            by = "total loss" if enough else "cost + disagreement"
        exact = not any(counted.beyond for counted in self._totals)
        n, counts = len(self._names), self._counts
        recorded = counts["rounds"] if self._has_stops or counts["truncated"] else None
        results = [
            result_of(name, counted, self._cascade, recorded, by if exact and k < n else None)
            for k, (name, counted) in enumerate(
                zip((*self._names, *arms), self._totals, strict=True)
            )
        ]
        policies, fixed = results[:n], results[n:]
        if values := values_of(policies, by):
            policies = [policies[i] for i in sorted(range(len(values)), key=values.__getitem__)]
        best = None
        if values := values_of(fixed, by):  # of ties, the shallowest
            best = next(i for i, value in enumerate(values) if value <= min(values) + TIE)
        decided = (
            np.concatenate(chunks) if chunks else np.empty(0, np.uint8)
            for chunks in self._decisions
        )
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
            notes=tuple(f"Warning: {warning}." for warning in warnings),
            columns=self._columns,
            answers=self._vocabulary.table(),
            decisions=dict(zip(self._names, decided, strict=True)),
        )


def result_of(
    name: str,
    counted: ReplayTotals,
    cascade: Cascade,
    recorded: int | None,
    compare: Criterion | None,
) -> CandidateResult:
    """Return results with intervals, in the unit of the cascade's costs.

    ``recorded`` is the number of rounds, None if the log does not have their stops; ``compare`` is
    the criterion for comparing with fixed depths, None if they cannot be compared.
    """
    costs, one_error, counts = totals(cascade), error_cost(cascade), counted.outcomes
    n = int(counts.sum())
    by_end = counts.sum(axis=(1, 2))
    errors, differing = counts.sum(axis=2)[:, :UNKNOWN], counts.sum(axis=1)[:, :UNKNOWN]
    with_event = costs[:, None] + np.array([0.0, one_error])
    over = counted.over_wrong if compare == "total loss" else counted.over_differs
    extra = costs[:, None, None] - costs[None, :, None] + one_error * np.array([-1.0, 0.0, 1.0])
    differences = [_mean(extra, table) for table in over] if compare else []
    over_fixed = tuple(mean for mean in differences if mean is not None)
    return CandidateResult(
        name=name,
        rounds=n,
        beyond=counted.beyond,
        depths=tuple(wilson(int(m), n) for m in by_end),
        cost=_mean(costs, by_end),
        compared=int(differing.sum()),
        disagreement=_share(differing),
        cost_and_disagreement=_mean(with_event, differing),
        labelled=int(errors.sum()),
        error=_share(errors),
        loss=_mean(with_event, errors),
        priced=int(counted.money[0]),
        money=_estimate(*counted.money.tolist()),
        as_played=None if recorded is None else wilson(counted.same, recorded),
        over_fixed=over_fixed if len(over_fixed) == len(costs) else None,
    )


def values_of(results: Sequence[CandidateResult], by: Criterion) -> list[float] | None:
    """Return the value of the criterion for each result; None unless all are exact and have one."""
    intervals = [result.value(by) for result in results if result.exact]
    values = [interval.value for interval in intervals if interval is not None]
    return values if len(values) == len(results) else None


def _share(counts: Ints) -> Interval | None:
    total = int(counts.sum())
    return wilson(int(counts[:, 1].sum()), total) if total else None


def _mean(values: Floats, counts: Ints) -> Interval | None:
    """Return the mean of values that occur ``counts`` times, with its interval."""
    return _estimate(counts.sum(), (values * counts).sum(), (values**2 * counts).sum())


def _estimate(n: float, total: float, squares: float) -> Interval | None:
    """Return the mean of n numbers, given their sum and sum of squares; None if n < 2."""
    if n < 2:
        return None
    mean, spread = float(total / n), float(squares - total**2 / n)
    if spread < ROUNDING * squares:  # all values are equal
        spread = 0.0
    return normal_interval(mean, math.sqrt(spread / (n - 1) / n))
