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
    """One arm: its own ``cost``, the ``total`` C_i of stopping there, and the rows it answered.

    ``stops`` is the share of rows at which the rule stops here. The others describe always stopping
    here: ``disagreement`` is the share of outputs that differ from the last arm's, ``error`` the
    share of wrong outputs in labelled rows, and ``loss`` is ``total`` plus ``error``.
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
    """Calibration of the predicted disagreement of a pair, on rows that were not fitted."""

    bins: tuple[ReliabilityBin, ...]
    calibration_error: float
    fit: Fit


class PairSummary(msgspec.Struct, frozen=True):
    """Two arms i < j: the rate of disagreement, and the gap C_j − C_i it is compared with.

    ``gain`` is E[1{j right} − 1{i right} | they disagree], estimated from the labels; None with
    fewer than 30 labelled rows in which they disagree. Arm j is worth its cost on average if
    gain·rate ≥ gap.
    """

    first: int
    second: int
    gap: float
    rows: int
    rate: Interval
    reliability: Reliability
    gain: Interval | None


class FrontierPoint(msgspec.Struct, frozen=True):
    """The rule with all costs multiplied by ``weight``; ``cost`` is in the original units."""

    weight: float
    cost: float
    disagreement: Interval
    error: Interval | None


class Saving(msgspec.Struct, frozen=True):
    """The saving of the rule: C_K minus its mean cost, per round and as a share of C_K.

    ``disagreement`` is how often the chosen arm's output differs from the last arm's.
    """

    per_round: Interval
    share: Interval
    disagreement: Interval


class Audit(msgspec.Struct, frozen=True):
    """Evaluation of the label-free rule on the ``rows`` that have a label and every output.

    ``rule_error``, ``rule_loss`` (error plus cost) and ``rule_depth`` (mean position of the stop)
    are the rule's; ``best_fixed`` is the arm of the best fixed depth. ``lost`` is the paired
    difference between the rule's loss and that of the best fixed depth: above zero the rule is
    worse. ``over_fixed`` is the same for every fixed depth. If ``differing``, the labelled rows are
    those in which arms disagree, and errors that all arms share are not counted.
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

    The extra cost over arm ``first`` is ``gap``, C_second − C_first.

    ``second`` is None if no deeper arm can be worth its cost on all rows; labels then decide
    whether the rule is better than always ``first``, and ``gap`` is the rule's mean cost minus
    C_first. ``gain`` is the estimate from the labels so far (as in `PairSummary`). The extra cost
    is worth paying if the gain is at least ``needed``: the gap, in units of one error, divided by
    the ``rate`` at which the two answers differ. This is impossible if ``needed`` exceeds 1.
    ``labels`` more labels, on random rows in which any arms disagree, estimate the gain to within
    ``width`` (95 %); 0 if no more are needed. ``rows`` are such rows of the log, numbered from 0.
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
    """The verdict as a keyword and as a headline, its reason, and further points."""

    answer: Answer
    headline: str
    reason: str
    points: tuple[str, ...]


class OverTime(msgspec.Struct, frozen=True):
    """Changes of disagreement, by row from 0, and the best half-life in rounds (None: infinite)."""

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
        Mean cost of a round of the log: C of the last arm that ran.
    error_cost : float
        The cost of a wrong answer in the unit of the costs; 1 if that is the unit.
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
        Changes of disagreement.
    by, tenants
        The column that identifies tenants, and their diagnoses, largest saving first.
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
