"""The result of a diagnosis: frozen values of plain numbers and text, ready for JSON.

Arms are 0-based positions. Intervals are at 95 %. Shares, rates and errors are between 0 and 1;
costs are in units of one error, per round.
"""

from typing import Literal

import msgspec

Answer = Literal["learnable", "probably", "not from disagreement alone"]
Fit = Literal["good", "rough", "bad"]


class Estimate(msgspec.Struct, frozen=True):
    """A number and its 95 % interval; all three are equal where it is exact."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class ArmSummary(msgspec.Struct, frozen=True):
    """One arm: its name, its own cost, C_i of stopping there, and the rows it answered."""

    name: str
    cost: float
    total: float
    answered: int


class PairDisagreement(msgspec.Struct, frozen=True):
    """How often two arms i < j disagree, beside the gap C_j − C_i it is compared with."""

    first: int
    second: int
    gap: float
    rows: int
    rate: Estimate


class GroupDisagreement(msgspec.Struct, frozen=True):
    """Disagreement of each pair, in the order of ``cascade.pairs()``, in one context group.

    ``coordinate`` names the context column, ``group`` its values: "low (up to 3.2)", or a value.
    """

    coordinate: str
    group: str
    rows: int
    rates: tuple[Estimate, ...]


class ReliabilityBin(msgspec.Struct, frozen=True):
    """Rows with about the same predicted disagreement, and how many really disagreed."""

    rows: int
    predicted: float
    observed: Estimate


class Reliability(msgspec.Struct, frozen=True):
    """Whether the predicted disagreement of a pair is what was observed on other rows."""

    first: int
    second: int
    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    fit: Fit


class StopShare(msgspec.Struct, frozen=True):
    """The share of rows at which the rule would stop at this arm."""

    arm: int
    share: Estimate


class FrontierPoint(msgspec.Struct, frozen=True):
    """The rule with all costs multiplied by a weight; its cost in the original units."""

    weight: float
    cost: float
    disagreement: Estimate
    error: Estimate | None
    shares: tuple[float, ...]


class FixedDepthPoint(msgspec.Struct, frozen=True):
    """Stopping always at one arm; ``error`` and ``loss`` (cost plus error) by the labels."""

    arm: int
    cost: float
    disagreement: Estimate
    error: Estimate | None
    loss: Estimate | None


class Saving(msgspec.Struct, frozen=True):
    """What the rule saves: C_K less its mean cost, the same as a share of C_K.

    ``disagreement`` is how often the chosen arm's output differs from the last arm's.
    """

    per_round: Estimate
    share: Estimate
    disagreement: Estimate


class Hint(msgspec.Struct, frozen=True):
    """How often each arm seems right, from agreement alone; only if arms err independently.

    ``worse`` is an expensive arm that seems less accurate than ``better``, a cheaper one: a
    question that labels answer. None if there is no such arm.
    """

    accuracies: tuple[float, ...]
    worse: int | None = None
    better: int | None = None


class PairAudit(msgspec.Struct, frozen=True):
    """By the labels: harm W_ij = P(i right, j wrong) and repair P(i wrong, j right), i < j."""

    first: int
    second: int
    harm: Estimate
    repair: Estimate


class Audit(msgspec.Struct, frozen=True):
    """What the labelled rows show.

    Attributes
    ----------
    rows : int
        Labelled rows that every arm answered.
    errors : tuple of Estimate
        The error rate of each arm.
    pairs : tuple of PairAudit
        In the order of ``cascade.pairs()``.
    rule_error, rule_loss, rule_depth
        Error, error plus cost, and mean position of the stop, of the label-free rule.
    best_fixed, best_fixed_loss
        The arm of the best fixed depth, and its error plus cost.
    lost : Estimate
        ``rule_loss`` less ``best_fixed_loss``, row by row; above zero the rule is worse.
    """

    rows: int
    errors: tuple[Estimate, ...]
    pairs: tuple[PairAudit, ...]
    rule_error: Estimate
    rule_loss: Estimate
    rule_depth: float
    best_fixed: int
    best_fixed_loss: Estimate
    lost: Estimate


class LabelPlan(msgspec.Struct, frozen=True):
    """How many labels show whether arm ``second`` is worth the ``gap`` C_second − C_first.

    Labels on so many random ``rows`` give the difference of the two error rates to within
    ``half_width`` (95 %). The fewest that are ``enough``; None if more are needed.
    """

    first: int
    second: int
    gap: float
    rows: tuple[int, ...]
    half_width: tuple[float, ...]
    enough: int | None


class Verdict(msgspec.Struct, frozen=True):
    """The answer, the reason for it, and what else to know: sentences for who decides."""

    answer: Answer
    reason: str
    points: tuple[str, ...]


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything found in one log.

    Attributes
    ----------
    log : str
        The name of the file.
    rows, used, full_depth, labelled : int
        Rows in the log; rows the models were fitted on; rows with every output; rows with a label.
    logged_cost : float
        What a round of the log cost: C of the last arm that ran.
    arms, context
        The arms in order, and the names of the context columns.
    pairs, groups, reliability
        Disagreement of each pair: overall, by context group, and as fitted.
    stops, saving, frontier, fixed
        What the rule would do, cross-fitted, and every fixed depth beside it.
    audit : Audit or None
        None without labels.
    hint : Hint or None
        None with labels, fewer than three arms, few rows, or free text.
    plan : LabelPlan or None
        None with labels.
    verdict, notes
        The answer; assumptions, sampling and truncation.
    seed, degree : int
        Of the sampling; of the models of disagreement.
    unseen : float
        The share of rows of kinds that never went to the last arm: nothing is known of them.
    """

    log: str
    rows: int
    used: int
    full_depth: int
    labelled: int
    logged_cost: float
    arms: tuple[ArmSummary, ...]
    context: tuple[str, ...]
    pairs: tuple[PairDisagreement, ...]
    groups: tuple[GroupDisagreement, ...]
    reliability: tuple[Reliability, ...]
    stops: tuple[StopShare, ...]
    saving: Saving
    frontier: tuple[FrontierPoint, ...]
    fixed: tuple[FixedDepthPoint, ...]
    audit: Audit | None
    hint: Hint | None
    plan: LabelPlan | None
    verdict: Verdict
    notes: tuple[str, ...]
    seed: int
    unseen: float
    degree: int
