"""The result of a diagnosis: frozen values of plain numbers and text, ready for JSON.

Arms are 0-based positions. Intervals are at 95 %. Shares, rates and errors are between 0 and 1;
amounts are per round, in the unit in which the costs were given: one wrong answer, or a currency.
"""

from typing import Literal

import msgspec

from stopwise.intervals import Interval
from stopwise.logs.recommendation import Recommendation
from stopwise.logs.vocabulary import AnswerTable
from stopwise.records import Change

Answer = Literal[
    "learnable", "probably", "labels needed", "nothing to learn", "not from disagreement alone"
]
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
    stops: Interval
    disagreement: Interval
    error: Interval | None
    loss: Interval | None


class ReliabilityBin(msgspec.Struct, frozen=True):
    """Rows with about the same predicted disagreement, and how many really disagreed."""

    rows: int
    predicted: float
    observed: Interval


class Reliability(msgspec.Struct, frozen=True):
    """Whether the predicted disagreement of a pair is what was observed on other rows."""

    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    fit: Fit


class PairSummary(msgspec.Struct, frozen=True):
    """Two arms i < j: how often they disagree, beside the gap C_j − C_i it is compared with.

    By the labels, ``gain`` is E[1{j right} − 1{i right} | they disagree]; None of fewer than 30
    labelled rows in which they do. Arm j is worth it on average if gain·rate ≥ gap.
    """

    first: int
    second: int
    gap: float
    rows: int
    rate: Interval
    reliability: Reliability
    gain: Interval | None


class FrontierPoint(msgspec.Struct, frozen=True):
    """The rule with all costs multiplied by a weight; its cost in the original units."""

    weight: float
    cost: float
    disagreement: Interval
    error: Interval | None


class Saving(msgspec.Struct, frozen=True):
    """What the rule saves: C_K less its mean cost, the same as a share of C_K.

    ``disagreement`` is how often the chosen arm's output differs from the last arm's.
    """

    per_round: Interval
    share: Interval
    disagreement: Interval


class Audit(msgspec.Struct, frozen=True):
    """What the ``rows`` that have a label and every output show about the label-free rule.

    ``rule_error``, ``rule_loss`` (error plus cost) and ``rule_depth`` (mean position of the stop)
    are the rule's; ``best_fixed`` is the arm of the best fixed depth. ``lost`` is the rule's loss
    less that of the best fixed depth, row by row: above zero the rule is worse; ``over_fixed`` is
    the same for every fixed depth. If ``differing``, the labels are of rows in which arms disagree:
    errors that all arms make alike are not counted.
    """

    rows: int
    rule_error: Interval
    rule_loss: Interval
    rule_depth: float
    best_fixed: int
    best_fixed_loss: Interval
    lost: Interval
    over_fixed: tuple[Interval, ...]
    differing: bool


class LabelPlan(msgspec.Struct, frozen=True):
    """How many labels show whether arm ``second`` is worth the ``gap`` C_second − C_first.

    ``second`` is None where no deeper arm can be worth its cost on all rows: then the question is
    whether stopping by the rule is worth the ``gap`` of its mean cost to C_first. It is if the
    ``gain`` by the labels so far (as of a pair) is ``needed`` or more: the gap, in units of one
    error, divided by the ``rate`` at which the two answers differ; above 1 it never is. So many
    more ``labels``, on random rows in which any arms disagree, give the gain to within ``width``
    (95 %); 0 if that is settled. ``rows`` are such rows of the log, by their numbers from 0.
    """

    first: int
    second: int | None
    gap: float
    rate: float
    needed: float
    gain: Interval | None
    width: float
    labels: int
    rows: tuple[int, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The answer, in a word and in a headline, the reason for it, and further points."""

    answer: Answer
    headline: str
    reason: str
    points: tuple[str, ...]


class OverTime(msgspec.Struct, frozen=True):
    """Changes of disagreement, by row from 0, and the best half-life in rounds; None is no end."""

    changes: tuple[Change, ...]
    half_life: int | None


class TenantFinding(msgspec.Struct, frozen=True):
    """The rows with one value of a column, diagnosed alone; or why they cannot be."""

    name: str
    rows: int
    answer: Answer | None
    saving: Saving | None
    problem: str = ""


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
    error_cost : float
        What one wrong answer costs in the unit of the costs; 1 if that is the unit.
    context : tuple of str
        The names of the context columns.
    saving, frontier
        What the rule would do, cross-fitted.
    audit, plan
        What the labels show, None of fewer than 30; how many more are needed.
    verdict, recommendation
        The answer; what to take, by the rules of `stopwise.logs.recommendation`.
    answers : AnswerTable
        The distinct answers of each arm, counted.
    notes : tuple of str
        Warnings, assumptions, sampling and truncation.
    columns : dict of str to str
        What was done to each column of the context.
    seed, degree : int
        Of the sampling; of the models of disagreement.
    over_time : OverTime
        Whether disagreement has changed.
    by, tenants
        The column by which rows were told apart, and its values, those that save most first.
    """

    log: str
    rows: int
    used: int
    full_depth: int
    labelled: int
    logged_cost: float
    error_cost: float
    arms: tuple[ArmSummary, ...]
    context: tuple[str, ...]
    pairs: tuple[PairSummary, ...]
    saving: Saving
    frontier: tuple[FrontierPoint, ...]
    audit: Audit | None
    plan: LabelPlan
    verdict: Verdict
    recommendation: Recommendation
    answers: AnswerTable
    notes: tuple[str, ...]
    columns: dict[str, str]
    seed: int
    degree: int
    over_time: OverTime
    by: str | None = None
    tenants: tuple[TenantFinding, ...] = ()
