"""The counts of a replay of some rounds; those of two sets of rounds add up exactly."""

from collections.abc import Sequence

import numpy as np

from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH
from stopwise.errors import InvalidLogError
from stopwise.logs.chunk import Bytes, Chunk, Ints
from stopwise.logs.labels import LabelCheck
from stopwise.logs.log import Log
from stopwise.logs.replay.candidates import Candidate
from stopwise.logs.replay.results import CandidateResult, Criterion, Replay, result_of, values_of
from stopwise.logs.replay.totals import Outcomes, ReplayTotals
from stopwise.logs.vocabulary import Vocabulary
from stopwise.policies.contextual import Contextual

SAME = 1e-12  # losses that differ by less are equal but for rounding


class Tally:
    """What the decisions of some policies lead to, and what fixed depths do."""

    def __init__(
        self, log: Log, cascade: Cascade, names: Sequence[str], seed: int, said: Vocabulary
    ) -> None:
        k = cascade.n_arms
        self._log, self._cascade, self._names, self._seed = log.path.name, cascade, names, seed
        self._said, self._columns = said, log.encoding.described()
        self._says_stop = log.layout.stop is not None
        self._totals = [ReplayTotals(k, compare=True) for _ in names]
        self._fixed = [ReplayTotals(k, compare=False) for _ in range(k)]
        self.decisions: list[list[Bytes]] = [[] for _ in names]
        self.rows = self._labelled = self._failed = self._truncated = 0
        self._labels = LabelCheck()
        self._asked: dict[str, int] = {}
        self._answered: dict[str, int] = {}

    @property
    def answered(self) -> bool:
        """Whether any round has an answer, so that there is something to evaluate."""
        return self._fixed[0].unanswered < self.rows

    def add(self, chunk: Chunk, stops: Sequence[Ints]) -> None:
        """Count these rounds, which each policy decided so."""
        rounds, known = chunk.rounds, Outcomes.of(chunk)
        for decided, totals, decisions in zip(stops, self._totals, self.decisions, strict=True):
            totals.add(known, decided)
            decisions.append(decided.astype(np.uint8))
        for depth, totals in enumerate(self._fixed):
            totals.add(known, np.full(chunk.n, depth))
        self.rows += chunk.n
        self._labelled += int((chunk.labels >= 0).sum())
        self._failed += int(rounds.failed.sum())
        self._truncated += int(((rounds.reach < self._cascade.n_arms - 1) & ~rounds.failed).sum())
        self._labels.add(chunk)

    def ask(self, played: Sequence[Candidate]) -> None:
        """Count the labels that the policies asked for and got, when all rounds are played."""
        for name, policy, _ in played:
            if isinstance(policy, Contextual) and policy.asked:
                self._asked[name], self._answered[name] = policy.asked, policy.labelled

    def empty(self, log: Log) -> "Tally":
        """Return one for the same policies, of no rounds."""
        return Tally(log, self._cascade, self._names, self._seed, Vocabulary(log.arms))

    def __add__(self, other: "Tally") -> "Tally":
        """Add the counts of other rounds to these; not their decisions."""
        mine, others = (*self._totals, *self._fixed), (*other._totals, *other._fixed)
        for one, more in zip(mine, others, strict=True):
            one.add_counts(more)
        for name in ("rows", "_labelled", "_failed", "_truncated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._labels.add_counts(other._labels)
        self._said.add(other._said)
        for counts, more in ((self._asked, other._asked), (self._answered, other._answered)):
            counts |= {name: counts.get(name, 0) + n for name, n in more.items()}
        return self

    def result(self, by: Criterion | None = None) -> Replay:
        """Turn all counts into numbers; ``by`` is what lines are compared by, if that is given."""
        arms = self._cascade.names
        if not self.answered:
            raise InvalidLogError(
                f"{self._log}: the first arm, {arms[0]!r}, failed in every round, so there "
                "is no answer to evaluate"
            )
        doubts = filter(None, (*self._said.doubts(), self._labels.unlike()))
        if by is None:
            enough = self._fixed[0].labelled >= ENOUGH
            by = "total loss" if enough else "cost + disagreement"
        exact = not any(totals.beyond for totals in (*self._totals, *self._fixed))
        policies = self._results(self._names, self._totals, by if exact else None)
        fixed = self._results(arms, self._fixed, None)
        if values := values_of(policies, by):
            policies = [policies[i] for i in sorted(range(len(values)), key=values.__getitem__)]
        best = None
        if values := values_of(fixed, by):  # the shallowest of equals
            best = next(i for i, value in enumerate(values) if value <= min(values) + SAME)
        decided = (np.concatenate(one) if one else np.empty(0, np.uint8) for one in self.decisions)
        return Replay(
            log=self._log,
            arms=arms,
            costs=tuple(self._cascade.cumulative.tolist()),
            rounds=self.rows,
            labelled=self._labelled,
            failed=self._failed,
            unanswered=self._fixed[0].unanswered,
            truncated=self._truncated,
            seed=self._seed,
            asked=self._asked,
            answered=self._answered,
            judged_by=by,
            policies=tuple(policies),
            fixed=tuple(fixed),
            best_fixed=best,
            notes=tuple(f"Warning: {doubt}." for doubt in doubts),
            columns=self._columns,
            decisions=dict(zip(self._names, decided, strict=True)),
        )

    def _results(
        self, names: Sequence[str], totals: Sequence[ReplayTotals], compare: Criterion | None
    ) -> list[CandidateResult]:
        rounds = self.rows if self._says_stop or self._truncated else None
        return [
            result_of(name, one, self._cascade, recorded=rounds, compare=compare)
            for name, one in zip(names, totals, strict=True)
        ]
