"""The result of a diagnosis: frozen values of plain numbers and text, ready for JSON.

Arms are 0-based positions. Intervals are at 95 %. Shares, rates and errors are between 0 and 1;
costs are in units of one error, per round.
"""

from typing import Literal

import msgspec

from stopwise.reporting.intervals import Estimate

Answer = Literal["learnable", "probably", "not from disagreement alone"]
Fit = Literal["good", "rough", "bad"]


class ArmSummary(msgspec.Struct, frozen=True):
    """One arm: its own cost, C_i of stopping there, and the rows it answered.

    ``stops`` is the share of rows at which the rule would stop here. If every round stopped here,
    ``disagreement`` of the outputs would differ from the last arm's; by the labels, ``error`` of
    them would be wrong, and ``loss`` is ``total`` plus that.
    """

    name: str
    cost: float
    total: float
    answered: int
    stops: Estimate
    disagreement: Estimate
    error: Estimate | None
    loss: Estimate | None


class ReliabilityBin(msgspec.Struct, frozen=True):
    """Rows with about the same predicted disagreement, and how many really disagreed."""

    rows: int
    predicted: float
    observed: Estimate


class Reliability(msgspec.Struct, frozen=True):
    """Whether the predicted disagreement of a pair is what was observed on other rows."""

    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    fit: Fit


class PairSummary(msgspec.Struct, frozen=True):
    """Two arms i < j: how often they disagree, beside the gap C_j − C_i it is compared with.

    By the labels: ``harm`` is W_ij = P(i right, j wrong), ``repair`` is P(i wrong, j right).
    """

    first: int
    second: int
    gap: float
    rows: int
    rate: Estimate
    reliability: Reliability
    harm: Estimate | None
    repair: Estimate | None


class GroupDisagreement(msgspec.Struct, frozen=True):
    """Disagreement of each pair, in the order of ``cascade.pairs()``, in one context group.

    ``coordinate`` names the context column, ``group`` its values: "low (up to 3.2)", or a value.
    """

    coordinate: str
    group: str
    rows: int
    rates: tuple[Estimate, ...]


class FrontierPoint(msgspec.Struct, frozen=True):
    """The rule with all costs multiplied by a weight; its cost in the original units."""

    weight: float
    cost: float
    disagreement: Estimate
    error: Estimate | None


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


class Audit(msgspec.Struct, frozen=True):
    """What the ``rows`` that have a label and every output show about the label-free rule.

    ``rule_error``, ``rule_loss`` (error plus cost) and ``rule_depth`` (mean position of the stop)
    are the rule's; ``best_fixed`` is the arm of the best fixed depth. ``lost`` is the rule's loss
    less that of the best fixed depth, row by row: above zero the rule is worse.
    """

    rows: int
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
    """The answer, the reason for it, and further points, as sentences for the reader."""

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
        Rows in the log; rows the models were fitted on; rows with every output; rows with a label
        and an output.
    logged_cost : float
        What a round of the log cost: C of the last arm that ran.
    context, groups
        The names of the context columns; disagreement of each pair by context group.
    saving, frontier
        What the rule would do, cross-fitted.
    audit, plan
        What the labels show; or, without labels, how many are needed.
    hint : Hint or None
        None with labels, fewer than three arms, few rows, or free text.
    notes : tuple of str
        Assumptions, sampling and truncation.
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
    pairs: tuple[PairSummary, ...]
    groups: tuple[GroupDisagreement, ...]
    saving: Saving
    frontier: tuple[FrontierPoint, ...]
    audit: Audit | None
    hint: Hint | None
    plan: LabelPlan | None
    verdict: Verdict
    notes: tuple[str, ...]
    seed: int
    unseen: float
    degree: int

    @property
    def asks(self) -> bool:
        """Whether the first point of the verdict is a question that labels answer."""
        return self.hint is not None and self.hint.worse is not None
