"""The answer: whether this cascade can be learned without labels, and what to do."""

from collections.abc import Sequence

from stopwise.cascade import costs_doubt
from stopwise.logs.diagnosis.findings import (
    Answer,
    ArmSummary,
    Audit,
    LabelPlan,
    PairSummary,
    Saving,
    Verdict,
)
from stopwise.reporting.wording import number, percent, percent_interval

MOST_DEGREE = 4  # beyond, there are more features than any log could determine
# The rule may lose this share of the best fixed depth's loss and still count as learnable …
TOLERATED = 0.02
# … if the labels leave no room for a loss of more than this share.
RULED_OUT = 0.10
# From this share of the rows on, the rule is as good as a fixed depth.
ALL_BUT_ALWAYS = 0.995

# Headline, sign (so that colour is never needed) and colour class of the badge.
ANSWERS: dict[Answer, tuple[str, str, str]] = {
    "learnable": ("This cascade can learn where to stop, without labels", "✓", "held"),
    "probably": ("This cascade can probably learn where to stop, without labels", "?", "open"),
    "nothing to learn": (
        "Without labels there is nothing to learn: one arm takes nearly all rounds",
        "=",
        "open",
    ),
    "not from disagreement alone": (
        "This cascade cannot learn where to stop from disagreement alone",
        "✗",
        "failed",
    ),
}

UNVERIFIED = (
    "Without labels nobody can verify weak dominance: that where an arm is best, every deeper arm "
    "costs more than the two disagree. Where it fails, Stopwise goes deeper than it should."
)


WHICH = (
    "Which policy: uss-anchor with answers so far if nobody can label (whichever arms are right, "
    "once it has learned it loses no more than always running every arm); uss-laplace with "
    "labels=100 if somebody can label a hundred rounds (it learns where going on corrects); uss-pd "
    "if you need proofs. stopwise replay compares them on this log."
)
SHARED = "Errors that all arms make alike are not counted: they change no comparison."


def judge(
    arms: Sequence[ArmSummary],
    pairs: Sequence[PairSummary],
    saving: Saving,
    plan: LabelPlan,
    *,
    audit: Audit | None = None,
    degree: int = 1,
) -> Verdict:
    """Return the verdict, with its reason and further points.

    With labels the losses decide: "learnable" if the label-free rule loses at most 2 % to the best
    fixed depth (and the labels exclude 10 %) and saves something; "not from disagreement alone" if
    it surely loses more than 2 %; else "probably". Without labels it is "probably" at best, and
    "not from disagreement alone" if the models do not fit. Where nothing is wrong and one
    arm takes all but 0.5 % of the rows, there is "nothing to learn".
    """
    names = [arm.name for arm in arms]
    worst = max(pairs, key=lambda p: p.reliability.calibration_error)
    off = [p for p in pairs if p.reliability.fit != "good"]
    misfit = _misfit(names, off, degree) if off else ""
    if audit is not None:
        answer, reason = _by_labels(names, saving, audit, degree)
        points = [_worse_by_labels(names, pairs), _labels_needed(names, plan)]
    else:
        answer: Answer = "probably"
        if any(p.reliability.fit == "bad" for p in off):
            answer, reason, misfit = "not from disagreement alone", misfit, ""
        elif saving.per_round.low <= 0:
            reason = (
                "Nothing contradicts it, but at these costs Stopwise would hardly ever stop before "
                f"{names[-1]}: there is next to nothing to save."
            )
        else:
            reason = (
                f"Predicted disagreement is off by at most "
                f"{100 * worst.reliability.calibration_error:.1f} points on average, and stopping "
                "early saves something; but without labels that is no proof."
            )
        points = [UNVERIFIED, _labels_needed(names, plan)]
    good = answer != "not from disagreement alone"
    most = max(arms, key=lambda arm: arm.stops.value)
    if most.stops.value >= ALL_BUT_ALWAYS:
        same = f"always {most.name} would {'do' if good else 'be the same'}"
        share = f"{percent(most.stops.value)} of the rows"
        reason = f"Stopwise would stop at {most.name} in {share}: {same}. {reason}"
        answer = "nothing to learn" if good else answer
    if doubt := costs_doubt(names, [arm.total for arm in arms]):
        reason = f"Warning: {doubt}; amounts of money need --error-cost. {reason}"
    return Verdict(answer, reason, tuple(filter(None, [*points, misfit, WHICH])))


def _labels_needed(names: Sequence[str], plan: LabelPlan) -> str:
    first, second = names[plan.first], names[plan.second]
    gap, gain = number(plan.gap), plan.gain
    if plan.needed > 1:
        return (
            f"{second} costs {gap} more than {first}, and the two disagree in {percent(plan.rate)} "
            f"of the rows: on all rows {second} is not worth it, even if it is always right. That "
            "takes no labels."
        )
    if not plan.labels and gain is not None:
        settled = percent_interval(*gain)
        return (
            f"The labels settle that {second} on all rows is "
            f"{'' if gain.value >= plan.needed else 'not '}worth the {gap} that it costs more than "
            f"{first}: where the two disagree, what it corrects less what it spoils is {settled} "
            f"of the rows, and must be {percent(plan.needed)}."
        )
    some, few = len(plan.rows), ""
    if some < plan.labels:
        few = f" (the log has {some:,} without a label: too few to settle it)"
    rows = "--label-rows FILE.csv writes which rows." if some else "They must come from new rounds."
    return (
        f"Labels on {plan.labels:,} {'more ' if gain else ''}random rows in which arms disagree"
        f"{few} would settle whether {second} on all rows is worth the {gap} that it costs more "
        f"than {first}: where the two disagree, what it corrects less what it spoils must be "
        f"{percent(plan.needed)} of the rows, and the labels give that to within "
        f"±{100 * plan.width:.2g} points (95 %). {rows}"
    )


def _worse_by_labels(names: Sequence[str], pairs: Sequence[PairSummary]) -> str:
    """Name the arm that surely spoils more answers of a cheaper one than it corrects, if any."""
    worse = [(p.rate.value * p.gain.value, p) for p in pairs if p.gain and p.gain.high < 0]
    if not worse:
        return ""
    change, p = min(worse, key=lambda found: found[0])
    return (
        f"By the labels {names[p.second]} spoils more answers of {names[p.first]} than it corrects "
        f"(by {percent(-change)} of the rows), and it costs more. Leave it out of the outputs and "
        "diagnose the rest again."
    )


def _by_labels(
    names: Sequence[str], saving: Saving, audit: Audit, degree: int
) -> tuple[Answer, str]:
    lost, best = audit.lost, audit.best_fixed_loss.value
    losses = (
        f"on {audit.rows:,} labelled rows it loses {number(audit.rule_loss.value)} per round "
        f"({'errors not common to all arms' if audit.differing else 'errors'} and costs), and "
        f"stopping always at {names[audit.best_fixed]} loses {number(best)}"
    )
    difference = (
        f"{number(abs(lost.value))} {'more' if lost.value > 0 else 'less'} "
        f"(95 % interval of the difference {number(lost.low)} to {number(lost.high)})"
    )
    if lost.value > TOLERATED * best and lost.low > 0:
        wrong = f"{losses}. That is {difference} than necessary."
        if audit.rule_depth > audit.best_fixed:
            return "not from disagreement alone", f"Stopwise goes too deep: {wrong}"
        # where p̂ is right the rule stops early only where continuing costs more than it repairs
        reason = "Stopwise stops too early, so the models of disagreement do not fit"
        return "not from disagreement alone", f"{reason}: {wrong} {_advice(degree)}"
    if lost.value > TOLERATED * best or lost.high > RULED_OUT * best:
        reason = f"The labels are too few to be sure: {losses}. Stopwise loses {difference}."
        return "probably", reason
    if saving.per_round.low <= 0:
        reason = f"Stopwise is right, but there is nothing to save: {losses}, and it goes to "
        return "probably", f"{reason}{names[-1]} all the same."
    return "learnable", f"Stopwise does as well as the best fixed depth or better: {losses}."


def _misfit(names: Sequence[str], off: Sequence[PairSummary], degree: int) -> str:
    worst = max(off, key=lambda p: p.reliability.calibration_error)
    return (
        f"The model of disagreement does not fit well: for {names[worst.first]} and "
        f"{names[worst.second]} it is off by "
        f"{100 * worst.reliability.calibration_error:.2g} points on average, and so may be "
        f"decisions where the margin is small. {_advice(degree)}"
    )


def _advice(degree: int) -> str:
    more = f"--degree {degree + 1}, or " if degree < MOST_DEGREE else ""
    return f"Try {more}better context columns."
