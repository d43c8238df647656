"""The result of a diagnosis: frozen records of numbers and text, serialisable as JSON.

Arms are 0-based positions. Intervals are at 95 %. Shares, rates and errors are between 0 and 1;
amounts are per round, in the unit of the costs: one wrong answer, or a currency.
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
    """One arm: the ``cost`` of running it and the ``total`` cost C_i of stopping there.

    ``answered`` is the number of rows with an output of the arm, and ``stops`` the share of rows in
    which the rule stops at this arm. The other fields describe always stopping at this arm:
    ``disagreement`` is the share of outputs that differ from the last arm's, ``error`` the share of
    wrong outputs in labelled rows, and ``loss`` is ``total`` plus the cost of the errors.
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
    """Rows with about the same predicted disagreement, and their observed disagreement."""

    rows: int
    predicted: float
    observed: Interval


class Reliability(msgspec.Struct, frozen=True):
    """Calibration of the predicted disagreement of a pair, on rows held out from the fit."""

    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    fit: Fit


class PairSummary(msgspec.Struct, frozen=True):
    """Two arms i < j: the rate at which they disagree, and the gap C_j − C_i in cost.

    ``gain`` is E[1{j right} − 1{i right} | i and j disagree], estimated from the labels; None with
    fewer than 30 labelled rows in which i and j disagree. Arm j is worth its extra cost on average
    if gain·rate ≥ gap, with all amounts in units of one error.
    """

    first: int
    second: int
    gap: float
    rows: int
    rate: Interval
    reliability: Reliability
    gain: Interval | None


class FrontierPoint(msgspec.Struct, frozen=True):
    """Results of the rule with all costs multiplied by ``weight``; ``cost`` is not multiplied."""

    weight: float
    cost: float
    disagreement: Interval
    error: Interval | None


class Saving(msgspec.Struct, frozen=True):
    """The saving: C_K minus the mean cost of the rule, per round and as a share of C_K.

    ``disagreement`` is how often the chosen arm's output differs from the last arm's.
    """

    per_round: Interval
    share: Interval
    disagreement: Interval


class Audit(msgspec.Struct, frozen=True):
    """Evaluation of the label-free rule on the ``rows`` that have a label and every output.

    ``rule_error`` is the error rate of the rule, ``rule_loss`` its mean cost including that of the
    errors, and ``rule_depth`` the mean position of the stop. ``best_fixed`` is the arm of the best
    fixed depth. ``lost`` is the paired difference in loss, rule minus best fixed depth: if it is
    above zero, the rule is worse. ``over_fixed`` has this difference for every fixed depth. If
    ``differing``, only rows in which arms disagree were labelled, and errors that all arms share
    are not counted.
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
    """How many labels are needed to decide whether arm ``second`` is worth its extra cost.

    The extra cost over arm ``first`` is ``gap``, C_second − C_first. If no deeper arm can be worth
    its cost on all rows, ``second`` is None: labels then decide whether the rule is better than
    always ``first``, and ``gap`` is the mean cost of the rule minus C_first.

    ``gain`` is the estimate from the labels so far (as in `PairSummary`), and ``rate`` is how often
    the two answers that are compared differ. The extra cost is worth paying if the gain is at least
    ``needed``: the gap, in units of one error, divided by the rate. No gain is enough if ``needed``
    exceeds 1. ``labels`` is the number of additional labels, on random rows in which any arms
    disagree, that estimate the gain to within ``width`` (95 %); 0 if no more are needed. ``rows``
    are the rows of the log to label, numbered from 0.
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
    """The verdict as a keyword and as a headline, with the reason and further points."""

    answer: Answer
    headline: str
    reason: str
    points: tuple[str, ...]


class OverTime(msgspec.Struct, frozen=True):
    """Changes in disagreement, at rows counted from 0, and the best half-life in rounds, or None.

    The half-life is None if no half-life predicts better than never forgetting.
    """

    changes: tuple[Change, ...]
    half_life: int | None


class TenantFinding(msgspec.Struct, frozen=True):
    """The diagnosis of the rows with one value of a column, or the reason why there is none."""

    name: str
    rows: int
    answer: Answer | None
    saving: Saving | None
    problem: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """The diagnosis of a log.

    Attributes
    ----------
    log : str
        The name of the file.
    rows, used, full_depth, labelled : int
        Rows in the log; rows the models were fitted on; rows with every output; rows with a label
        and an output.
    logged_cost : float
        Mean cost of a logged round, C_i for the last arm i that ran.
    error_cost : float
        The cost of a wrong answer in the unit of the costs; 1 if costs are measured in wrong
        answers.
    context : tuple of str
        The names of the context columns.
    saving, frontier
        Results of the rule, cross-fitted.
    audit, plan
        Evaluation on the labelled rows, None with fewer than 30; how many more labels are needed.
    verdict, recommendation
        Whether the cascade can be learned; the option recommended by the rules of
        `stopwise.logs.recommendation`.
    answers : AnswerTable
        The distinct answers of each arm, counted.
    notes : tuple of str
        Warnings, assumptions, sampling and truncation.
    columns : dict of str to str
        How each context column was encoded.
    seed, degree : int
        Seed of the sample; degree of the models of disagreement.
    over_time : OverTime
        Changes in disagreement, and the half-life that predicts best.
    by, tenants
        The column that identifies tenants; the diagnoses of the tenants, largest saving first.
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
