"""The answer for who decides: whether this cascade can be learned without labels, what to do."""

from collections.abc import Sequence

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import (
    Answer,
    Audit,
    Hint,
    LabelPlan,
    Reliability,
    Saving,
    StopShare,
    Verdict,
)
from stopwise.logs.diagnosis.words import MUCH_UNSEEN
from stopwise.reporting.wording import number, percent

MOST_DEGREE = 4  # beyond, there are more features than any log could determine
# The rule may lose this share of the best fixed depth's loss and still count as learnable …
TOLERATED = 0.02
# … if the labels leave no room for a loss of more than this share.
RULED_OUT = 0.10
# From this share of the rows on, the rule is as good as a fixed depth.
ALL_BUT_ALWAYS = 0.995

UNVERIFIED = (
    "Without labels nobody can verify weak dominance: that where an arm is best, every deeper arm "
    "costs more than the two disagree. Where it fails, Stopwise goes deeper than it should."
)


def judge(
    cascade: Cascade,
    saving: Saving,
    reliability: Sequence[Reliability],
    stops: Sequence[StopShare],
    *,
    hint: Hint | None = None,
    audit: Audit | None = None,
    plan: LabelPlan | None = None,
    unseen: float = 0.0,
    degree: int = 1,
) -> Verdict:
    """Return the verdict, with its reason and what else to know.

    With labels the losses decide: "learnable" if the label-free rule loses at most 2 % to the best
    fixed depth (and the labels exclude 10 %) and saves something; "not from disagreement alone" if
    it surely loses more than 2 %; else "probably". Without labels it is "probably" at best, and
    "not from disagreement alone" if the models do not fit. A hint only adds a question.
    """
    off = [r for r in reliability if r.fit != "good"]
    misfit = _does_not_fit(cascade, off, degree) if off else None
    if audit is not None:
        answer, reason = _by_labels(cascade, saving, audit, degree)
    elif misfit is not None and any(r.fit == "bad" for r in off):
        answer, reason, misfit = "not from disagreement alone", misfit, None
    elif saving.per_round.low <= 0:
        answer = "probably"
        reason = (
            "Nothing contradicts it, but at these costs Stopwise would hardly ever stop before "
            f"{cascade.names[-1]}: there is next to nothing to save."
        )
    else:
        answer = "probably"
        off_by = 100 * max((r.calibration_error for r in reliability), default=0.0)
        reason = (
            f"Predicted disagreement is off by at most {off_by:.1f} points on average, and "
            "stopping early saves something; but without labels that is no proof."
        )
    points: list[str] = []
    if audit is None:
        if hint is not None and hint.worse is not None and hint.better is not None:
            points.append(_question(cascade, hint, hint.worse, hint.better))
            reason += f" First answer the question about {cascade.names[hint.worse]} with labels."
        points.append(UNVERIFIED)
        if plan is not None:
            points.append(_labels_needed(cascade, plan))
    else:
        points += _worse_by_labels(cascade, audit)
    points += [] if misfit is None else [misfit]
    asked = hint is not None and hint.worse is not None
    good = answer != "not from disagreement alone" and not asked
    first = _first(cascade, stops, unseen, good=good)
    return Verdict(answer, " ".join([*first, reason]), tuple(points))


def _question(cascade: Cascade, hint: Hint, arm: int, cheaper: int) -> str:
    """Return the question that a hint raises, with both of its answers."""
    worse, better = cascade.names[arm], cascade.names[cheaper]
    return (
        f"Is {worse} really better than {better}, which costs less? By their agreement it seems "
        f"right in {percent(hint.accuracies[arm])} of the rows, and {better} in "
        f"{percent(hint.accuracies[cheaper])}. Either {worse} is worse, "
        f"and Stopwise pays for worse answers, or the cheaper arms share mistakes that {worse} "
        "does not make. Agreement cannot tell which; labels can."
    )


def _labels_needed(cascade: Cascade, plan: LabelPlan) -> str:
    """Return how many labels answer the open question."""
    first, second = cascade.names[plan.first], cascade.names[plan.second]
    asked = f"whether {second} is worth the {number(plan.gap)} that it costs more than {first}"
    if plan.enough is None:
        return f"More than {plan.rows[-1]:,} labels are needed to learn {asked}."
    half = plan.half_width[plan.rows.index(plan.enough)]
    return (
        f"Labels on {plan.enough:,} random rows would show {asked}: they give the difference of "
        f"the two error rates to within ±{100 * half:.1f} points (95 %)."
    )


def _worse_by_labels(cascade: Cascade, audit: Audit) -> list[str]:
    """Name the arm that surely spoils more answers of a cheaper one than it repairs, if any."""
    worse = [p for p in audit.pairs if p.harm.low > p.repair.high]
    if not worse:
        return []
    p = max(worse, key=lambda p: p.harm.value - p.repair.value)
    point = (
        f"By the labels {cascade.names[p.second]} spoils {percent(p.harm.value)} of the answers of "
        f"{cascade.names[p.first]} and repairs {percent(p.repair.value)}, and it costs more. Leave "
        "it out of the outputs and diagnose the rest again."
    )
    return [point]


def _first(cascade: Cascade, stops: Sequence[StopShare], unseen: float, *, good: bool) -> list[str]:
    """Return what to know before anything else."""
    first: list[str] = []
    if unseen > MUCH_UNSEEN:
        first.append(
            f"{100 * unseen:.0f} % of the rows are of kinds that never went to "
            f"{cascade.names[-1]}: these results do not cover them."
        )
    most = max(stops, key=lambda stop: stop.share.value)
    if most.share.value >= ALL_BUT_ALWAYS:
        always = cascade.names[most.arm]
        first.append(
            f"Stopwise would stop at {always} in {percent(most.share.value)} of the rows: always "
            f"{always} would {'do' if good else 'be the same'}; there is nothing to learn."
        )
    return first


def _by_labels(cascade: Cascade, saving: Saving, audit: Audit, degree: int) -> tuple[Answer, str]:
    lost, best = audit.lost, audit.best_fixed_loss.value
    losses = (
        f"on {audit.rows:,} labelled rows it loses {number(audit.rule_loss.value)} per round "
        f"(errors and costs), and stopping always at {cascade.names[audit.best_fixed]} loses "
        f"{number(best)}"
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
        return "probably", f"{reason}{cascade.names[-1]} all the same."
    return "learnable", f"Stopwise does as well as the best fixed depth or better: {losses}."


def _does_not_fit(cascade: Cascade, off: Sequence[Reliability], degree: int) -> str:
    worst = max(off, key=lambda r: r.calibration_error)
    return (
        f"The model of disagreement does not fit well: for {cascade.names[worst.first]} and "
        f"{cascade.names[worst.second]} it is off by {100 * worst.calibration_error:.2g} points on "
        f"average, and so may be decisions where the margin is small. {_advice(degree)}"
    )


def _advice(degree: int) -> str:
    if degree < MOST_DEGREE:
        return f"Try --degree {degree + 1}, or better context columns."
    return "Try better context columns."
