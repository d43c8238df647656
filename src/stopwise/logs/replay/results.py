"""What a replay found: frozen values of plain numbers and words, ready for JSON."""

import math
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import Estimate
from stopwise.logs.diagnosis.intervals import around, wilson
from stopwise.logs.replay.totals import UNKNOWN, ReplayTotals

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Criterion = Literal["total loss", "cost + disagreement"]

SAME = 1e-12  # losses that differ by less are equal but for rounding


class CandidateResult(msgspec.Struct, frozen=True):
    """The numbers of a policy, or of a fixed depth.

    All are per round, over the rounds that can be evaluated; intervals are at 95 %, Wilson's for
    shares and normal ones for means, as of independent rounds.

    Attributes
    ----------
    name : str
        As it was given; for a fixed depth the arm.
    rounds : int
        Rounds that can be evaluated.
    beyond : int
        Rounds decided deeper than the log knows: not among ``rounds``, and nothing was learned
        from them. If 0, the cost is exact, and the disagreement if all rounds are ``compared``.
    depths : tuple of Estimate
        The share of rounds that ended at each arm.
    cost : Estimate or None
        Mean of C_stop. None, here and below, where no round tells; a mean (not a share) also
        where a single one does, from which no interval follows.
    compared, labelled, priced : int
        Rounds whose deepest output is known; whose right answer is; of which the log says what
        they really cost.
    disagreement : Estimate or None
        Share of the compared rounds whose answer differs from the deepest arm's.
    cost_and_disagreement : Estimate or None
        Mean of C_stop + disagreement over the compared rounds: no less than the total loss minus
        the deepest arm's error.
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
        """Whether the log knows the outcome of every decision (and so its cost)."""
        return self.beyond == 0

    def value(self, by: Criterion) -> Estimate | None:
        """Return the number by which lines are compared."""
        return self.loss if by == "total loss" else self.cost_and_disagreement


class Replay(msgspec.Struct, frozen=True, eq=False):
    """What policies would have done with the rounds of a log; returned by `replay`.

    Attributes
    ----------
    log : str
        Name of the file.
    arms : tuple of str
        In the order of the cascade.
    costs : tuple of float
        C_i, the cost of stopping at each arm.
    rounds, labelled, failed, unanswered : int
        Rounds in the log; with a right answer; in which an arm failed; the first arm.
    truncated : int
        Rounds whose deeper outputs the log does not know, though no arm failed.
    degree : int
        Of the products of coordinates that policies given by name see.
    seed : int
        Of everything random.
    audit : float
        The share of labelled rounds whose right answer was given to policies that use it.
    audited : int
        How many those are.
    judged_by : {"total loss", "cost + disagreement"}
        What lines are compared by: the loss, if at least 30 rounds have labels.
    policies : tuple of CandidateResult
        Those asked for, best first; in the order given where they cannot be compared.
    fixed : tuple of CandidateResult
        Every fixed depth, the shallowest first.
    best_fixed : int or None
        The best of them in hindsight; None where the log does not know enough to say.
    notes : tuple of str
        Warnings: what is likely to be wrong with the log.
    decisions : dict of str to ndarray of uint8
        Every policy's stops, round by round. Not in the JSON.
    """

    log: str
    arms: tuple[str, ...]
    costs: tuple[float, ...]
    rounds: int
    labelled: int
    failed: int
    unanswered: int
    truncated: int
    degree: int
    seed: int
    audit: float
    audited: int
    judged_by: Criterion
    policies: tuple[CandidateResult, ...]
    fixed: tuple[CandidateResult, ...]
    best_fixed: int | None
    notes: tuple[str, ...]
    decisions: dict[str, NDArray[np.uint8]]

    @property
    def exact(self) -> bool:
        """Whether the log knows the outcome of every decision of every line."""
        return all(one.exact for one in (*self.policies, *self.fixed))

    @property
    def sentences(self) -> list[str]:
        """What to take from it, in words."""
        from stopwise.logs.replay.words import sentences

        return sentences(self)

    def to_json(self) -> bytes:
        """Return everything but the decisions, as JSON for people and programs."""
        fields: dict[str, Any] = {"format": 1}
        fields |= {name: getattr(self, name) for name in self.__struct_fields__}
        del fields["decisions"]
        fields |= {"exact": self.exact, "sentences": self.sentences}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def result_of(
    name: str,
    totals: ReplayTotals,
    cascade: Cascade,
    *,
    rounds: int,
    tells_stops: bool,
    compare: Criterion | None,
) -> CandidateResult:
    """Turn counts into numbers with intervals.

    ``rounds`` are those of the log; ``tells_stops`` whether it says where they stopped;
    ``compare`` by what to compare with fixed depths, None where that means nothing.
    """
    costs = cascade.cumulative
    counts = totals.outcomes
    n = int(counts.sum())
    by_end = counts.sum(axis=(1, 2))
    errors, differing = counts.sum(axis=2)[:, :UNKNOWN], counts.sum(axis=1)[:, :UNKNOWN]
    with_event = costs[:, None] + np.array([0.0, 1.0])
    over = totals.over_wrong if compare == "total loss" else totals.over_differs
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
        priced=totals.money.n,
        money=around(totals.money.mean, totals.money.error) if totals.money.n > 1 else None,
        as_played=wilson(totals.same, rounds) if tells_stops else None,
        over_fixed=_differences(over, costs) if compare else None,
    )


def best_first(results: list[CandidateResult], by: Criterion) -> tuple[CandidateResult, ...]:
    """Sort results that can be compared; leave others as they are."""
    if not all(one.exact and one.value(by) is not None for one in results):
        return tuple(results)
    return tuple(sorted(results, key=lambda one: _number(one, by)))


def best_of(fixed: list[CandidateResult], by: Criterion) -> int | None:
    """Return the best fixed depth, the shallowest of equals; None if the log cannot tell."""
    if not all(one.exact and one.value(by) is not None for one in fixed):
        return None
    values = [_number(one, by) for one in fixed]
    return next(i for i, value in enumerate(values) if value <= min(values) + SAME)


def _number(one: CandidateResult, by: Criterion) -> float:
    value = one.value(by)
    return math.inf if value is None else value.value


def _share(counts: Counts) -> Estimate | None:
    total = int(counts.sum())
    return wilson(int(counts[:, 1].sum()), total) if total else None


def _mean(values: Floats, counts: Counts) -> Estimate | None:
    """Return the mean of values that occurred so often; None if fewer than two did."""
    n = int(counts.sum())
    if n < 2:
        return None
    mean = float((values * counts).sum()) / n
    variance = float((counts * (values - mean) ** 2).sum()) / (n - 1)
    return around(mean, math.sqrt(variance / n))


def _differences(over: Counts, costs: Floats) -> tuple[Estimate, ...] | None:
    values = costs[:, None, None] - costs[None, :, None] + np.array([-1.0, 0.0, 1.0])
    found = [_mean(values, counts) for counts in over]
    return tuple(one for one in found if one is not None) if all(found) else None
