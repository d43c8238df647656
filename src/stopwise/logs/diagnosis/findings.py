"""What a diagnosis found: frozen values of plain numbers and words, ready for JSON.

Arms are 0-based positions. An interval is at 95 % unless it says otherwise. Shares, rates and
errors are between 0 and 1; costs are in units of one error, per round.
"""

from typing import Literal

import msgspec

Answer = Literal["learnable", "probably", "not from disagreement alone"]


class Estimate(msgspec.Struct, frozen=True):
    """A number and its 95 % interval; all three are equal where it is exact.

    Examples
    --------
    >>> print(Estimate(0.123, 0.1, 0.15))
    0.123 (0.100 to 0.150)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class Arm(msgspec.Struct, frozen=True):
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
    """Disagreement among the rows of one context group.

    Attributes
    ----------
    coordinate : str
        The name of the context column.
    group : str
        Which of its values, in words: "low (below 3.2)", or the value itself.
    rows : int
        How many rows of the sample are in the group.
    rates : tuple of Estimate
        One for each pair, in the order of ``cascade.pairs()``.
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
    """Whether the fitted disagreement of a pair means what it says, out of sample."""

    first: int
    second: int
    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    features: int = 0


class StopShare(msgspec.Struct, frozen=True):
    """The share of rows at which the rule would stop at this arm."""

    arm: int
    share: Estimate


class Margins(msgspec.Struct, frozen=True):
    """What the rule had to spare, min_j (C_j − C_i − p̂_ij(x)), where it stopped at arm i.

    Attributes
    ----------
    arm : int
        i; never the last arm, which is compared with nothing.
    rows : int
        How many rows stop there.
    quantiles : tuple of float
        At 5, 25, 50, 75 and 95 %.
    share_thin : float
        The share of these rows within 0.02 of the other decision.
    """

    arm: int
    rows: int
    quantiles: tuple[float, ...]
    share_thin: float


class FrontierPoint(msgspec.Struct, frozen=True):
    """The rule with all costs multiplied by a weight; its cost in the original units."""

    weight: float
    cost: float
    disagreement: Estimate
    error: Estimate | None
    shares: tuple[float, ...]


class FixedDepthPoint(msgspec.Struct, frozen=True):
    """Stopping always at one arm."""

    arm: int
    cost: float
    disagreement: Estimate
    error: Estimate | None
    loss: Estimate | None


class Saving(msgspec.Struct, frozen=True):
    """What the rule saves against always going to the last arm.

    Attributes
    ----------
    per_round : Estimate
        C_K less the mean cost of the rule.
    share : Estimate
        The same as a share of C_K.
    disagreement : Estimate
        How often the chosen arm's output differs from the last arm's.
    """

    per_round: Estimate
    share: Estimate
    disagreement: Estimate


class AccuracyEstimate(msgspec.Struct, frozen=True):
    """How often an arm is right, as estimated from agreement alone."""

    arm: int
    accuracy: Estimate


class IndependenceCheck(msgspec.Struct, frozen=True):
    """Whether the agreements look as they would if arms erred independently.

    Where ``checked`` is false, nothing is known: ``passed`` is false too, the statistic 0, the
    p-value 1.
    """

    checked: bool
    passed: bool
    statistic: float
    p_value: float
    words: str


class WorseArm(msgspec.Struct, frozen=True):
    """A dearer arm that looks less accurate than a cheaper one.

    Attributes
    ----------
    worse, better : int
        The dear arm, and the cheaper arm that looks better.
    difference : Estimate
        Accuracy of ``better`` less that of ``worse``.
    cost_now, cost_without : float
        Cost per round of the rule with the arm, and without it (its own cost saved too).
    loss_now, loss_without : float
        The same with the estimated error of the answers added.
    words : str
        All that for a person who decides.
    drives : bool
        Whether the rule goes there often enough, and loses enough by it, to matter.
    confirmed : bool
        Whether labels say so too. Without, arms that share mistakes would look the same.
    """

    worse: int
    better: int
    difference: Estimate
    cost_now: float
    cost_without: float
    loss_now: float
    loss_without: float
    words: str
    drives: bool = True
    confirmed: bool = False


class Agreement(msgspec.Struct, frozen=True):
    """What the agreement of three or more arms says about who is right.

    Attributes
    ----------
    classes : int or None
        The number of different outputs, None for free text.
    accuracies, check, worse
        How often each arm is right, what can be checked of that, and the arms that look worse.
    losses, rule_loss : tuple of float, float
        Total cost plus estimated error of stopping always at each arm, and of the rule.
    refuted : tuple of str
        Arms that looked worse until labels said otherwise, in words.
    """

    classes: int | None
    accuracies: tuple[AccuracyEstimate, ...]
    check: IndependenceCheck
    worse: tuple[WorseArm, ...]
    losses: tuple[float, ...] = ()
    rule_loss: float = 0.0
    refuted: tuple[str, ...] = ()


class PairAudit(msgspec.Struct, frozen=True):
    """What labels say of two arms i < j.

    Attributes
    ----------
    first, second, rows : int
        The arms, and the labelled rows that both answered.
    harm : Estimate
        W_ij = P(i right, j wrong).
    repair : Estimate
        P(i wrong, j right).
    """

    first: int
    second: int
    rows: int
    harm: Estimate
    repair: Estimate


class Audit(msgspec.Struct, frozen=True):
    """What the labelled rows say.

    Attributes
    ----------
    rows : int
        Labelled rows that every arm answered.
    errors : tuple of Estimate
        The error rate of each arm.
    pairs : tuple of PairAudit
        In the order of ``cascade.pairs()``.
    weakly_dominant : Estimate
        The share of rows whose best arm i*(x), estimated from the labels, has
        C_j − C_i* > p_ij(x) for all j > i*: where the label-free rule is right.
    rule_loss : Estimate
        Error plus cost per round of the label-free rule.
    best_fixed : int
        The arm of the best fixed depth.
    best_fixed_loss : Estimate
        Its error plus cost.
    lost : Estimate
        ``rule_loss`` less ``best_fixed_loss``, row by row; above zero the rule is worse.
    rule_depth : float
        The mean number of the arm at which the rule stops there, from 0.
    """

    rows: int
    errors: tuple[Estimate, ...]
    pairs: tuple[PairAudit, ...]
    weakly_dominant: Estimate
    rule_loss: Estimate
    best_fixed: int
    best_fixed_loss: Estimate
    lost: Estimate
    rule_depth: float = 0.0


class AuditPlan(msgspec.Struct, frozen=True):
    """What labels on so many random rows would settle: a 95 % interval of ± ``half_width``."""

    rows: int
    half_width: float
    words: str


class Verdict(msgspec.Struct, frozen=True):
    """The answer, why, and what else to know: sentences for the person who decides."""

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
    arms, context
        The arms in order, and the names of the context columns.
    pairs, groups, reliability
        Disagreement of each pair: overall, by context group, and as fitted.
    stops, saving, margins, frontier, fixed
        What the rule would do, cross-fitted, and every fixed depth beside.
    agreement : Agreement or None
        None with fewer than three arms.
    audit : Audit or None
        None without labels.
    plan : tuple of AuditPlan
        What labels would settle; empty with labels.
    verdict : Verdict
        The answer.
    notes : tuple of str
        Assumptions, sampling and truncation, in words.
    seed : int
        Of the sampling and the bootstrap.
    unseen : float
        The share of rows of kinds that never went to the last arm, of which nothing is said.
    degree : int
        Of the models of disagreement.
    """

    log: str
    rows: int
    used: int
    full_depth: int
    labelled: int
    arms: tuple[Arm, ...]
    context: tuple[str, ...]
    pairs: tuple[PairDisagreement, ...]
    groups: tuple[GroupDisagreement, ...]
    reliability: tuple[Reliability, ...]
    stops: tuple[StopShare, ...]
    saving: Saving
    margins: tuple[Margins, ...]
    frontier: tuple[FrontierPoint, ...]
    fixed: tuple[FixedDepthPoint, ...]
    agreement: Agreement | None
    audit: Audit | None
    plan: tuple[AuditPlan, ...]
    verdict: Verdict
    notes: tuple[str, ...]
    seed: int
    unseen: float = 0.0
    degree: int = 1
