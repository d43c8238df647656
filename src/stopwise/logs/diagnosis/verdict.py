"""The verdict: whether a cascade can be learned without labels, and the next step."""

from collections.abc import Sequence
from typing import NamedTuple

from stopwise.cascade import cost_unit_warning
from stopwise.logs.diagnosis.findings import (
    Answer,
    ArmSummary,
    Audit,
    LabelPlan,
    PairSummary,
    Saving,
    Verdict,
)
from stopwise.logs.recommendation import Recommendation
from stopwise.reporting.wording import number, percent, percent_interval, plural

# Learnable: the rule loses at most this share of the best fixed depth's loss …
TOLERATED = 0.02
# … and the labels exclude a loss of more than this share.
RULED_OUT = 0.10
# At or above this share of rows at one arm, the rule is treated as a fixed depth.
ALL_BUT_ALWAYS = 0.995

# Sign (so that the badge does not depend on colour) and colour class of the badge.
BADGES: dict[Answer, tuple[str, str]] = {
    "learnable": ("✓", "held"),
    "probably": ("?", "open"),
    "labels needed": ("?", "open"),
    "nothing to learn": ("=", "open"),
    "not from disagreement alone": ("✗", "failed"),
}

UNVERIFIED = (
    "Weak dominance cannot be verified without labels: where an arm is best, reaching any deeper "
    "arm must cost more than the probability that the two disagree. Where this fails, Stopwise "
    "goes deeper than it should."
)
POLICIES = (
    "stopwise replay plays three policies on this log and recommends one of them or a fixed depth: "
    "uss-anchor needs no labels; uss-laplace can learn from labels (labels=100, for example) where "
    "continuing corrects answers; uss-pd has proven bounds."
)
DISTINGUISHES_ZERO = (
    ", enough to distinguish it from zero. If the result is too close to call, the next diagnosis "
    "says how many more are needed."
)
SHARED = "Errors that all arms share are not counted: they do not affect comparisons."


class Evidence(NamedTuple):
    """The inputs of a verdict; an error costs ``one_error`` in the unit of all amounts.

    ``higher_degree`` is the next degree of the models if `better_degree` returns one, else None.
    """

    arms: Sequence[ArmSummary]
    pairs: Sequence[PairSummary]
    saving: Saving
    plan: LabelPlan
    recommendation: Recommendation
    audit: Audit | None = None
    higher_degree: int | None = None
    one_error: float = 1.0

    @property
    def names(self) -> list[str]:
        """The names of the arms."""
        return [arm.name for arm in self.arms]


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict, with its headline, its reason and further points.

    With labels, the losses of the label-free rule and of the best fixed depth decide. The verdict
    is "not from disagreement alone" if the loss of the rule is more than 2 % higher and the 95 %
    interval of the difference excludes 0; "learnable" if it is at most 2 % higher, the interval
    excludes more than 10 %, and the rule saves something; otherwise "probably". Without labels, the
    verdict is "labels needed", or "not from disagreement alone" if the models do not fit. It is
    "nothing to learn" if there are no labels and none are needed, because neither a deeper arm nor
    the rule can be worth its cost; or if the rule stops at the same arm in at least 99.5 % of the
    rows, unless labels are still needed or the verdict is "not from disagreement alone".
    """
    names, plan, audit = evidence.names, evidence.plan, evidence.audit
    misfitting = [p for p in evidence.pairs if p.reliability.fit != "good"]
    misfit = _misfit(names, misfitting, evidence.higher_degree) if misfitting else ""
    if audit is not None:
        answer, reason = _by_labels(evidence, audit)
        points = [_worse_by_labels(names, evidence.pairs), _labels_needed(evidence)]
    else:
        answer: Answer = "labels needed"
        if any(p.reliability.fit == "bad" for p in misfitting):
            answer, reason, misfit = "not from disagreement alone", misfit, ""
        else:
            reason = _without_labels(evidence)
        points = [_labels_needed(evidence), UNVERIFIED]
    most = max(evidence.arms, key=lambda arm: arm.stops.value)
    settled = audit is not None or not plan.labels
    nearly_all = settled and most.stops.value >= ALL_BUT_ALWAYS
    no_labels_needed = settled and answer == "labels needed"
    if nearly_all:
        share = f"{percent(most.stops.value)} of the rows"
        same = f"the same as always {most.name}"
        reason = f"Stopwise would stop at {most.name} in {share}: {same}. {reason}"
    if no_labels_needed or (nearly_all and answer != "not from disagreement alone"):
        answer = "nothing to learn"
    totals = [arm.total / evidence.one_error for arm in evidence.arms]
    if warning := cost_unit_warning(names, totals):
        reason = f"Warning: {warning}; to use amounts of money, add --error-cost. {reason}"
    points = [*points, *_too_expensive(evidence), misfit, POLICIES]
    return Verdict(answer, _headline(evidence, answer), reason, tuple(filter(None, points)))


def needs_other_models(pairs: Sequence[PairSummary], audit: Audit | None) -> bool:
    """Return whether calibration or the audit shows that the models of disagreement do not fit."""
    return any(p.reliability.fit != "good" for p in pairs) or (
        audit is not None and _loses(audit) and audit.rule_depth <= audit.best_fixed
    )


def _loses(audit: Audit) -> bool:
    return audit.lost.value > TOLERATED * audit.best_fixed_loss.value and audit.lost.low > 0


def _headline(evidence: Evidence, answer: Answer) -> str:
    names, plan, chosen = evidence.names, evidence.plan, evidence.recommendation
    always = f"always {chosen.name}" if chosen.kind == "fixed depth" else ""
    match answer:
        case "learnable" if always:
            return f"This cascade can learn where to stop, and {always} does as well"
        case "learnable":
            return "This cascade can learn where to stop, without labels"
        case "probably" if always:
            return f"More labels are needed to say whether Stopwise is better than {always}"
        case "probably":
            return "This cascade can probably learn where to stop, without labels"
        case "nothing to learn" if evidence.audit is None:
            return f"There is nothing to learn: no arm after {names[plan.first]} is worth its cost"
        case "nothing to learn":
            most = max(evidence.arms, key=lambda arm: arm.stops.value)
            return f"There is nothing to learn: Stopwise would always stop at {most.name}"
        case "not from disagreement alone" if evidence.audit is not None:
            return "This cascade cannot learn where to stop from disagreement alone"
        case _:
            pass
    if not plan.labels:
        return f"No arm after {names[plan.first]} is worth its cost on all rows"
    return f"Labels on {plural(plan.labels, 'row')} are needed to say whether {_question(evidence)}"


def _question(evidence: Evidence) -> str:
    first, second = evidence.names[evidence.plan.first], evidence.plan.second
    if second is None:
        return f"Stopwise is better than always stopping at {first}"
    return f"{evidence.names[second]} is worth its price"


def _without_labels(evidence: Evidence) -> str:
    worst = max(evidence.pairs, key=lambda p: p.reliability.calibration_error)
    off = f"{100 * worst.reliability.calibration_error:.1f} points"
    fit = f"Disagreement is predicted to within {off} on average"
    last = evidence.names[-1]
    if evidence.saving.per_round.low <= 0:
        return f"{fit}. At these costs Stopwise would hardly ever stop before {last}: no saving."
    less = percent(evidence.saving.share.value)
    if not evidence.plan.labels:
        first = evidence.names[evidence.plan.first]
        return (
            f"{fit}. Deeper arms disagree with {first} too rarely to be worth their extra cost, "
            f"even if they are always right: always {first} saves {less} of the cost of always "
            f"{last}."
        )
    return (
        f"{fit}, and stopping early saves {less} of the cost of always {last}; but without labels "
        f"it cannot be said whether {_question(evidence)}."
    )


def _labels_needed(evidence: Evidence) -> str:
    names, plan = evidence.names, evidence.plan
    gap, gain = number(plan.gap), plan.gain
    first = names[plan.first]
    if plan.second is None:
        question = (
            f"whether Stopwise is worth its extra cost of {gap} per round over always "
            f"stopping at {first}"
        )
        rows, better = "Where the two answers differ", "Stopwise"
    else:
        second = names[plan.second]
        question = f"whether {second} is worth its extra cost of {gap} over {first} on all rows"
        rows, better = f"Where {first} and {second} disagree", second
    required = (
        f"{better} must correct more answers than it spoils, by at least {percent(plan.needed)} of "
        "these rows"
    )
    if not plan.labels:
        if gain is None or plan.second is None:
            return ""
        worth = "is" if gain.value >= plan.needed else "is not"
        return (
            f"The labels show that {names[plan.second]} {worth} worth its extra cost of {gap} over "
            f"{first} on all rows. {rows}, {required}; the estimate is {percent_interval(gain)}."
        )
    precision = f"the labels estimate this share to within ±{100 * plan.width:.2g} points (95 %)"
    if gain is None:
        needed, closing = "are needed to say", f"{DISTINGUISHES_ZERO} "
    else:
        needed, closing = "would decide", ". "
    more = "more " if gain else ""
    return (
        f"Labels on {plan.labels:,} {more}random rows in which arms disagree{_too_few(plan)} "
        f"{needed} {question}. {rows}, {required}; {precision}{closing}{_where(plan)}"
    )


def _too_few(plan: LabelPlan) -> str:
    some = len(plan.rows)
    few = f" (the log has only {some:,} such rows without a label, which are too few)"
    return few if some < plan.labels else ""


def _where(plan: LabelPlan) -> str:
    if plan.rows:
        return "--label-rows FILE.csv writes these rows."
    return "They must come from new rounds."


def _too_expensive(evidence: Evidence) -> list[str]:
    """Name the arms that cost more than they can correct on all rows, even if always right."""
    names, sentences = evidence.names, dict[int, str]()
    for p in evidence.pairs:
        if p.rate.value < p.gap / evidence.one_error:
            sentences[p.second] = (
                f"{names[p.second]} costs {number(p.gap)} more than {names[p.first]}, and the two "
                f"disagree in {percent(p.rate.value)} of the rows: on all rows {names[p.second]} "
                "is not worth its cost, even if it is always right. No labels are needed to say so."
            )
    return list(sentences.values())


def _worse_by_labels(names: Sequence[str], pairs: Sequence[PairSummary]) -> str:
    """Name the arm that spoils more answers of a cheaper arm than it corrects, at 95 %."""
    worse = [(p.rate.value * p.gain.value, p) for p in pairs if p.gain and p.gain.high < 0]
    if not worse:
        return ""
    change, p = min(worse, key=lambda item: item[0])
    return (
        f"In labelled rows, {names[p.second]} spoils more answers of {names[p.first]} than it "
        f"corrects (by {percent(-change)} of the rows), and it costs more. Leave it out of the "
        "outputs and diagnose the remaining arms again."
    )


def _by_labels(evidence: Evidence, audit: Audit) -> tuple[Answer, str]:
    names, lost, best = evidence.names, audit.lost, audit.best_fixed_loss.value
    losses = (
        f"on {audit.rows:,} labelled rows Stopwise loses {number(audit.rule_loss.value)} per round "
        f"({'errors that not all arms share' if audit.differing else 'errors'} and costs), and "
        f"always {names[audit.best_fixed]} loses {number(best)}"
    )
    difference = (
        f"{number(abs(lost.value))} {'more' if lost.value > 0 else 'less'} "
        f"(95 % interval of the difference {number(lost.low)} to {number(lost.high)})"
    )
    if _loses(audit):
        wrong = f"{losses}. That is {difference} than necessary."
        if audit.rule_depth > audit.best_fixed:
            return "not from disagreement alone", f"Stopwise goes too deep: {wrong}"
        # with a correct p̂, the rule stops early only where continuing costs more than it corrects
        reason = "Stopwise stops too early, so the models of disagreement do not fit"
        return "not from disagreement alone", f"{reason}: {wrong} {_advice(evidence.higher_degree)}"
    if lost.value > TOLERATED * best or lost.high > RULED_OUT * best:
        reason = f"The labels are too few to be sure: {losses}. Stopwise loses {difference}."
        return "probably", reason
    if evidence.saving.per_round.low <= 0:
        return (
            "probably",
            f"{losses[0].upper()}{losses[1:]}. No saving: Stopwise always runs {names[-1]}.",
        )
    return "learnable", f"Stopwise does at least as well as the best fixed depth: {losses}."


def _misfit(names: Sequence[str], off: Sequence[PairSummary], higher_degree: int | None) -> str:
    worst = max(off, key=lambda p: p.reliability.calibration_error)
    return (
        f"The model of disagreement does not fit well: for {names[worst.first]} and "
        f"{names[worst.second]} it is off by "
        f"{100 * worst.reliability.calibration_error:.2g} points on average, so decisions with a "
        f"small margin may be wrong. {_advice(higher_degree)}"
    )


def _advice(higher_degree: int | None) -> str:
    if higher_degree is None:
        return "Try better context columns: a higher --degree does not help on held-out rows."
    better = f"--degree {higher_degree}, which predicts held-out rows better"
    return f"Try {better}, or better context columns."
