"""What a replay found: frozen values of plain numbers and words, ready for JSON."""

import math
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import Estimate
from stopwise.logs.diagnosis.intervals import around, wilson
from stopwise.logs.replay.tally import UNKNOWN, Tally

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Judge = Literal["total loss", "cost + disagreement"]

SAME = 1e-12  # losses that differ by less are equal but for rounding


class Played(msgspec.Struct, frozen=True):
    """What a policy, or a fixed depth, came to.

    All is per round, over the rounds that can be evaluated; intervals are at 95 %, Wilson's for
    shares and normal ones for means, as of independent rounds.

    Attributes
    ----------
    name : str
        As it was asked for; for a fixed depth the arm.
    rounds : int
        Rounds that can be evaluated.
    beyond : int
        Rounds decided deeper than the log knows: not among ``rounds``, and nothing was learned
        from them. If 0, its cost is exact, and its disagreement if all are ``compared``.
    depths : tuple of Estimate
        The share of rounds that ended at each arm.
    cost : Estimate or None
        Mean of C_stop. None, here and below, where no round tells; a mean (not a share) also
        where a single one does, from which no interval follows.
    compared, labelled, priced : int
        Rounds whose deepest output is known; whose right answer is; of which the log says what
        they really cost.
    disagreement : Estimate or None
        Share of the compared rounds whose answer was another than the deepest arm's.
    cost_and_disagreement : Estimate or None
        Mean of C_stop + disagreement over the compared rounds: no less than the total loss less
        the deepest arm's error.
    error, loss : Estimate or None
        Over the labelled rounds: share of wrong answers, and the mean of C_stop + error.
    money : Estimate or None
        Mean of what the priced rounds really cost up to the stop.
    as_played : Estimate or None
        Share of all rounds decided as the log says they were; None if it does not say.
    over_fixed : tuple of Estimate or None
        By how much what it is judged by (``Replay.judged_by``) exceeds that of each fixed depth,
        round by round. None unless all are exact, and for the fixed depths themselves.
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
        """Whether every decision could be looked up in the log (and so its cost)."""
        return self.beyond == 0

    def judged(self, by: Judge) -> Estimate | None:
        """Return what it is compared by."""
        return self.loss if by == "total loss" else self.cost_and_disagreement


class Replay(msgspec.Struct, frozen=True, eq=False):
    """What policies would have done with the rounds of a log; made by `replay`.

    Attributes
    ----------
    log : str
        Name of the file.
    arms : tuple of str
        In the order of the cascade.
    costs : tuple of float
        C_i, what stopping at each arm costs.
    rounds, labelled, failed, unanswered : int
        Rounds in the log; with a right answer; in which an arm failed; the first arm.
    truncated : int
        Rounds whose deeper outputs the log does not know, though no arm failed.
    degree : int
        Of the products of coordinates that policies made by name see.
    seed : int
        Of all that was left to chance.
    audit : float
        The share of labelled rounds whose right answer was told to policies that can use it.
    audited : int
        How many those are.
    judged_by : {"total loss", "cost + disagreement"}
        What comparisons are by: the loss, if 30 labelled rounds or more tell it.
    policies : tuple of Played
        Those asked for, best first; in the order given where they cannot be compared.
    fixed : tuple of Played
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
    judged_by: Judge
    policies: tuple[Played, ...]
    fixed: tuple[Played, ...]
    best_fixed: int | None
    notes: tuple[str, ...]
    decisions: dict[str, NDArray[np.uint8]]

    @property
    def exact(self) -> bool:
        """Whether every decision of every policy and fixed depth could be looked up."""
        return all(played.exact for played in (*self.policies, *self.fixed))

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


def played(
    name: str,
    tally: Tally,
    cascade: Cascade,
    *,
    rounds: int,
    tells_stops: bool,
    compare: Judge | None,
) -> Played:
    """Turn counts into numbers with intervals.

    Parameters
    ----------
    name : str
        Who played.
    tally : Tally
        The counts.
    cascade : Cascade
        For what stopping costs.
    rounds : int
        How many rounds the log has.
    tells_stops : bool
        Whether the log says how rounds were decided.
    compare : {"total loss", "cost + disagreement"} or None
        By what to tell the differences to fixed depths; None where they mean nothing.
    """
    costs = cascade.cumulative
    counts = tally.outcomes
    n = int(counts.sum())
    by_end = counts.sum(axis=(1, 2))
    errors, apart = counts.sum(axis=2)[:, :UNKNOWN], counts.sum(axis=1)[:, :UNKNOWN]
    with_event = costs[:, None] + np.array([0.0, 1.0])
    against = tally.against_wrong if compare == "total loss" else tally.against_apart
    return Played(
        name=name,
        rounds=n,
        beyond=tally.beyond,
        depths=tuple(wilson(int(m), n) for m in by_end),
        cost=_mean(costs, by_end),
        compared=int(apart.sum()),
        disagreement=_share(apart),
        cost_and_disagreement=_mean(with_event, apart),
        labelled=int(errors.sum()),
        error=_share(errors),
        loss=_mean(with_event, errors),
        priced=tally.money.n,
        money=around(tally.money.mean, tally.money.error) if tally.money.n > 1 else None,
        as_played=wilson(tally.same, rounds) if tells_stops else None,
        over_fixed=_differences(against, costs) if compare else None,
    )


def best_first(policies: list[Played], by: Judge) -> tuple[Played, ...]:
    """Put policies that can be compared in order; leave others as they are."""
    if not all(one.exact and one.judged(by) is not None for one in policies):
        return tuple(policies)
    return tuple(sorted(policies, key=lambda one: _value(one, by)))


def best_of(fixed: list[Played], by: Judge) -> int | None:
    """Return the best fixed depth, the shallowest of equals; None if that cannot be said."""
    if not all(one.exact and one.judged(by) is not None for one in fixed):
        return None
    values = [_value(one, by) for one in fixed]
    return next(i for i, value in enumerate(values) if value <= min(values) + SAME)


def _value(one: Played, by: Judge) -> float:
    judged = one.judged(by)
    return math.inf if judged is None else judged.value


def _share(counts: Counts) -> Estimate | None:
    total = int(counts.sum())
    return wilson(int(counts[:, 1].sum()), total) if total else None


def _mean(values: Floats, counts: Counts) -> Estimate | None:
    """Return the mean of values that came so often, with its normal interval.

    None if fewer than two came: their spread, and so the interval, is not known.
    """
    n = int(counts.sum())
    if n < 2:
        return None
    mean = float((values * counts).sum()) / n
    variance = float((counts * (values - mean) ** 2).sum()) / (n - 1)
    return around(mean, math.sqrt(variance / n))


def _differences(against: Counts, costs: Floats) -> tuple[Estimate, ...] | None:
    values = costs[:, None, None] - costs[None, :, None] + np.array([-1.0, 0.0, 1.0])
    found = [_mean(values, counts) for counts in against]
    return tuple(one for one in found if one is not None) if all(found) else None
