"""What a replay found: frozen values of plain numbers and words, ready for JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from stopwise.cascade import Cascade
from stopwise.logs.chunk import Bytes, Floats, Ints
from stopwise.logs.replay.totals import UNKNOWN, ReplayTotals
from stopwise.reporting.intervals import Estimate, around, wilson

Criterion = Literal["total loss", "cost + disagreement"]

ROUNDING = 1e-12  # a relative difference that is smaller is rounding error


class CandidateResult(msgspec.Struct, frozen=True):
    """The numbers of a policy, or of a fixed depth.

    All are per round, over the rounds that can be evaluated; intervals are at 95 %, Wilson's for
    shares and normal ones for means.

    Attributes
    ----------
    name : str
        As it was given; for a fixed depth the arm.
    rounds : int
        Rounds that can be evaluated.
    beyond : int
        Rounds decided deeper than the log goes: not among ``rounds``, and nothing was learned
        from them. If 0, the cost is exact, and the disagreement if all rounds are ``compared``.
    depths : tuple of Estimate
        The share of rounds that ended at each arm.
    cost : Estimate or None
        Mean of C_stop. None, here and below, where it is not known; a mean (not a share) also
        where it is known of a single round, from which no interval follows.
    compared, labelled, priced : int
        Rounds whose deepest output, right answer, real cost is known.
    disagreement : Estimate or None
        Share of the compared rounds whose answer differs from the deepest arm's.
    cost_and_disagreement : Estimate or None
        Mean of C_stop + disagreement over the compared rounds.
    error, loss : Estimate or None
        Over the labelled rounds: share of wrong answers, and the mean of C_stop + error.
    money : Estimate or None
        Mean of what the priced rounds really cost up to the stop.
    as_played : Estimate or None
        Share of all rounds decided as the log says they were; None if it does not say.
    over_fixed : tuple of Estimate or None
        By how much its `Replay.judged_by` exceeds that of each fixed depth, round by round.
        None unless all are exact, and for the fixed depths themselves.
    """

    name: str
    rounds: int
    beyond: int
    depths: tuple[Estimate, ...]
    cost: Estimate | None
    compared: int
    disagreement: Estimate | None
    cost_and_disagreement: Estimate | None
    labelled: int
    error: Estimate | None
    loss: Estimate | None
    priced: int
    money: Estimate | None
    as_played: Estimate | None
    over_fixed: tuple[Estimate, ...] | None

    @property
    def exact(self) -> bool:
        """Whether the log has the outcome of every decision (and so its cost)."""
        return self.beyond == 0

    def value(self, by: Criterion) -> Estimate | None:
        """Return the number by which lines are compared."""
        return self.loss if by == "total loss" else self.cost_and_disagreement


class Replay(msgspec.Struct, frozen=True, eq=False):
    """What policies would have done with the rounds of a log; returned by `replay`.

    Attributes
    ----------
    log : str
        The name of the file.
    arms, costs : tuple
        Of the cascade; costs are cumulative, C_i.
    rounds, labelled : int
        Rounds of the log, and those with a right answer.
    failed, unanswered : int
        Rounds in which an arm failed; in which it was the first arm.
    truncated : int
        Rounds without the outputs of the deeper arms, though no arm failed.
    seed : int
        As given.
    asked, answered : dict of str to int
        How many labels each policy asked for, of those that did, and how many the log had.
    judged_by : {"total loss", "cost + disagreement"}
        What lines are compared by: the loss, if at least 30 rounds have labels.
    policies : tuple of CandidateResult
        Best first; in the order given where they cannot be compared.
    fixed : tuple of CandidateResult
        Every fixed depth, the shallowest first.
    best_fixed : int or None
        The best of them in hindsight; None where the log does not say.
    notes : tuple of str
        Warnings: what is likely to be wrong with the log.
    columns : dict of str to str
        What was done to each column of the context.
    decisions : dict of str to ndarray of uint8
        Every policy's stops, round by round. Not in the JSON, and empty for several
        tenants.
    weight : float
        By which the costs were multiplied.
    tenants : dict of str to Replay
        The same for each tenant.
    grid : dict of float to Replay
        The same for each of several weights, of which this is the one that was chosen.
    """

    log: str
    arms: tuple[str, ...]
    costs: tuple[float, ...]
    rounds: int
    labelled: int
    failed: int
    unanswered: int
    truncated: int
    seed: int
    asked: dict[str, int]
    answered: dict[str, int]
    judged_by: Criterion
    policies: tuple[CandidateResult, ...]
    fixed: tuple[CandidateResult, ...]
    best_fixed: int | None
    notes: tuple[str, ...]
    columns: dict[str, str]
    decisions: dict[str, Bytes]
    weight: float = 1.0
    tenants: "Mapping[str, Replay]" = {}
    grid: "Mapping[float, Replay]" = {}

    @property
    def exact(self) -> bool:
        """Whether the log has the outcome of every decision of every line."""
        return all(one.exact for one in (*self.policies, *self.fixed))

    @property
    def sentences(self) -> list[str]:
        """The conclusions, in words."""
        from stopwise.logs.replay.words import sentences

        return sentences(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the decisions; of each tenant, what policies did."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        del fields["decisions"], fields["tenants"], fields["grid"]
        if self.tenants:
            fields["tenants"] = {
                name: {"rounds": one.rounds, "policies": one.policies}
                for name, one in self.tenants.items()
            }
        if self.grid:
            fields["grid"] = [one.as_dict() | {"weight": w} for w, one in self.grid.items()]
        return fields | {"exact": self.exact, "sentences": self.sentences}

    def to_json(self) -> bytes:
        """Return everything but the decisions, as JSON for people and programs."""
        fields = {"format": 1} | self.as_dict()
        return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def result_of(
    name: str,
    totals: ReplayTotals,
    cascade: Cascade,
    *,
    recorded: int | None,
    compare: Criterion | None,
) -> CandidateResult:
    """Turn counts into numbers with intervals.

    ``recorded`` counts the rounds of the log, None if it does not say where they stopped;
    ``compare`` is by what to compare with fixed depths, None where that means nothing.
    """
    costs, counts = cascade.cumulative, totals.outcomes
    n = int(counts.sum())
    by_end = counts.sum(axis=(1, 2))
    errors, differing = counts.sum(axis=2)[:, :UNKNOWN], counts.sum(axis=1)[:, :UNKNOWN]
    with_event = costs[:, None] + np.array([0.0, 1.0])
    over = totals.over_wrong if compare == "total loss" else totals.over_differs
    extra = costs[:, None, None] - costs[None, :, None] + np.array([-1.0, 0.0, 1.0])
    differences = [_mean(extra, one) for one in over] if compare else []
    known = tuple(one for one in differences if one is not None)
    return CandidateResult(
        name=name,
        rounds=n,
        beyond=totals.beyond,
        depths=tuple(wilson(int(m), n) for m in by_end),
        cost=_mean(costs, by_end),
        compared=int(differing.sum()),
        disagreement=_share(differing),
        cost_and_disagreement=_mean(with_event, differing),
        labelled=int(errors.sum()),
        error=_share(errors),
        loss=_mean(with_event, errors),
        priced=int(totals.money[0]),
        money=_estimate(*totals.money.tolist()),
        as_played=None if recorded is None else wilson(totals.same, recorded),
        over_fixed=known if len(known) == len(costs) else None,
    )


def values_of(results: Sequence[CandidateResult], by: Criterion) -> list[float] | None:
    """Return the number by which each is compared; None unless all can be."""
    values = [one.value(by) for one in results if one.exact]
    known = [value.value for value in values if value is not None]
    return known if len(known) == len(results) else None


def _share(counts: Ints) -> Estimate | None:
    total = int(counts.sum())
    return wilson(int(counts[:, 1].sum()), total) if total else None


def _mean(values: Floats, counts: Ints) -> Estimate | None:
    """Return the mean of values, each with how often it occurred."""
    return _estimate(counts.sum(), (values * counts).sum(), (values**2 * counts).sum())


def _estimate(n: float, total: float, squares: float) -> Estimate | None:
    """Return the mean of n numbers; None if there are fewer than two."""
    if n < 2:
        return None
    mean, spread = float(total / n), float(squares - total**2 / n)
    if spread < ROUNDING * squares:  # all are equal
        spread = 0.0
    return around(mean, math.sqrt(spread / (n - 1) / n))
