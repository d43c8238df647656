"""The answer: whether this cascade can be learned without labels, and what to do."""

from collections.abc import Sequence

from stopwise.logs.diagnosis.findings import (
    Answer,
    ArmSummary,
    Audit,
    Hint,
    LabelPlan,
    PairSummary,
    Saving,
    Verdict,
)
from stopwise.reporting.wording import number, percent

MOST_DEGREE = 4  # beyond, there are more features than any log could determine
# The rule may lose this share of the best fixed depth's loss and still count as learnable …
TOLERATED = 0.02
# … if the labels leave no room for a loss of more than this share.
RULED_OUT = 0.10
# From this share of the rows on, the rule is as good as a fixed depth.
ALL_BUT_ALWAYS = 0.995
MUCH_UNSEEN = 0.10  # a share of rows about which nothing is known, large enough to name first

# Headline, sign (so that colour is never needed) and colour class of the badge.
ANSWERS: dict[Answer, tuple[str, str, str]] = {
    "learnable": ("This cascade can learn where to stop, without labels", "✓", "held"),
    "probably": ("This cascade can probably learn where to stop, without labels", "?", "open"),
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


def judge(
    arms: Sequence[ArmSummary],
    pairs: Sequence[PairSummary],
    saving: Saving,
    *,
    hint: Hint | None = None,
    audit: Audit | None = None,
    plan: LabelPlan | None = None,
    unseen: float = 0.0,
    degree: int = 1,
) -> Verdict:
    """Return the verdict, with its reason and further points.

    With labels the losses decide: "learnable" if the label-free rule loses at most 2 % to the best
    fixed depth (and the labels exclude 10 %) and saves something; "not from disagreement alone" if
    it surely loses more than 2 %; else "probably". Without labels it is "probably" at best, and
    "not from disagreement alone" if the models do not fit. A hint only adds a question.
    """
    names = [arm.name for arm in arms]
    worst = max(pairs, key=lambda p: p.reliability.calibration_error)
    off = [p for p in pairs if p.reliability.fit != "good"]
    misfit = _misfit(names, off, degree) if off else ""
    question = ""
    if audit is not None:
        answer, reason = _by_labels(names, saving, audit, degree)
        points = [_worse_by_labels(names, pairs)]
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
        if hint is not None and hint.worse is not None and hint.better is not None:
            question = _question(names, hint.accuracies, hint.worse, hint.better)
            reason += f" First answer the question about {names[hint.worse]} with labels."
        points = [question, UNVERIFIED, _labels_needed(names, plan) if plan else ""]
    good = answer != "not from disagreement alone" and not question
    reason = " ".join([*_first(arms, unseen, good=good), reason])
    return Verdict(answer, reason, tuple(filter(None, [*points, misfit])))


def _question(names: Sequence[str], right: Sequence[float], arm: int, cheaper: int) -> str:
    worse, better = names[arm], names[cheaper]
    return (
        f"Is {worse} really better than {better}, which costs less? By their agreement it seems "
        f"right in {percent(right[arm])} of the rows, and {better} in {percent(right[cheaper])}. "
        f"Either {worse} is worse, and Stopwise pays for worse answers, or the cheaper arms share "
        f"mistakes that {worse} does not make. Agreement cannot show which; labels can."
    )


def _labels_needed(names: Sequence[str], plan: LabelPlan) -> str:
    first, second = names[plan.first], names[plan.second]
    asked = f"whether {second} is worth the {number(plan.gap)} that it costs more than {first}"
    if plan.enough is None:
        return f"More than {plan.rows[-1]:,} labels are needed to learn {asked}."
    half = plan.half_width[plan.rows.index(plan.enough)]
    return (
        f"Labels on {plan.enough:,} random rows would show {asked}: they give the difference of "
        f"the two error rates to within ±{100 * half:.1f} points (95 %)."
    )


def _worse_by_labels(names: Sequence[str], pairs: Sequence[PairSummary]) -> str:
    """Name the arm that surely spoils more answers of a cheaper one than it repairs, if any."""
    worse = [
        (p.harm.value, p.repair.value, p)
        for p in pairs
        if p.harm is not None and p.repair is not None and p.harm.low > p.repair.high
    ]
    if not worse:
        return ""
    harm, repair, p = max(worse, key=lambda found: found[0] - found[1])
    return (
        f"By the labels {names[p.second]} spoils {percent(harm)} of the answers of "
        f"{names[p.first]} and corrects {percent(repair)}, and it costs more. Leave it out of the "
        "outputs and diagnose the rest again."
    )


def _first(arms: Sequence[ArmSummary], unseen: float, *, good: bool) -> list[str]:
    """Return what to know before anything else."""
    first: list[str] = []
    if unseen > MUCH_UNSEEN:
        first.append(
            f"{100 * unseen:.0f} % of the rows are of kinds that never went to {arms[-1].name}: "
            "these results do not cover them."
        )
    most = max(arms, key=lambda arm: arm.stops.value)
    if most.stops.value >= ALL_BUT_ALWAYS:
        first.append(
            f"Stopwise would stop at {most.name} in {percent(most.stops.value)} of the rows: "
            f"always {most.name} would {'do' if good else 'be the same'}; there is nothing to "
            "learn."
        )
    return first


def _by_labels(
    names: Sequence[str], saving: Saving, audit: Audit, degree: int
) -> tuple[Answer, str]:
    lost, best = audit.lost, audit.best_fixed_loss.value
    losses = (
        f"on {audit.rows:,} labelled rows it loses {number(audit.rule_loss.value)} per round "
        f"(errors and costs), and stopping always at {names[audit.best_fixed]} loses {number(best)}"
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
