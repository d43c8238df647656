"""The answer for the person who decides: whether this cascade can be learned without labels."""

from collections.abc import Sequence

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import (
    Agreement,
    Answer,
    Audit,
    AuditPlan,
    Reliability,
    Saving,
    Verdict,
    WorseArm,
)
from stopwise.logs.diagnosis.models import miscalibrated

# The rule may lose this share of the best fixed depth's loss and still count as learnable …
TOLERATED = 0.02
# … if the labels leave no room for a loss of more than this share.
RULED_OUT = 0.10
# Models off by more than this on average, and beyond chance, forbid a verdict; by this, a remark.
BADLY_OFF, NOTEWORTHY = 0.10, 0.05

UNVERIFIED = (
    "Without labels nobody can verify weak dominance (that where an arm is best, every deeper arm "
    "costs more than the two disagree). If it fails the rule goes too deep, and pays for it."
)


def judge(
    cascade: Cascade,
    saving: Saving,
    reliability: Sequence[Reliability],
    agreement: Agreement | None,
    audit: Audit | None,
    plan: Sequence[AuditPlan],
) -> Verdict:
    """Return the verdict, with its reason and what else to know.

    With labels the losses decide: "learnable" if the label-free rule loses at most 2 % to the best
    fixed depth (and the labels exclude 10 %) and saves something; "not from disagreement alone" if
    it loses more than 2 %, surely; else "probably". Without labels it is "probably" at best.
    """
    if audit is not None:
        answer, reason = _by_labels(cascade, saving, audit)
    else:
        answer, reason = _without_labels(cascade, saving, reliability, agreement)
    points: list[str] = []
    if audit is None:
        points.append(UNVERIFIED)
    points.append(_what_it_saves(cascade, saving))
    if agreement is not None:
        points.extend(
            w.words for w in agreement.worse if audit is not None or w != _alarm(agreement)
        )
        if audit is None or agreement.worse:
            points.append(agreement.check.words)
    elif audit is None:
        points.append(
            "With two arms their agreement says nothing of which is right; that takes a third arm, "
            "or labels."
        )
    if audit is not None:
        points.append(_dominance(audit))
    off = [r for r in reliability if miscalibrated(r, NOTEWORTHY)]
    if off and answer != "not from disagreement alone":
        points.append(_does_not_fit(cascade, off))
    points.extend(p.words for p in plan if p.rows == 1000)
    return Verdict(answer, reason, tuple(points))


def _by_labels(cascade: Cascade, saving: Saving, audit: Audit) -> tuple[Answer, str]:
    best, lost = audit.best_fixed_loss.value, audit.lost
    losses = (
        f"on {audit.rows:,} labelled rows the label-free rule loses {audit.rule_loss.value:.3g} "
        f"per round (errors and costs), and stopping always at {cascade.names[audit.best_fixed]} "
        f"loses {best:.3g}"
    )
    difference = (
        f"{abs(lost.value):.3g} {'more' if lost.value > 0 else 'less'} "
        f"(95 % interval of the difference {lost.low:.3g} to {lost.high:.3g})"
    )
    if lost.value > TOLERATED * best and lost.low > 0:
        reason = f"The rule goes too deep: {losses}. That is {difference} than need be."
        return "not from disagreement alone", reason
    if lost.value > TOLERATED * best or lost.high > RULED_OUT * best:
        reason = f"The labels are too few to be sure: {losses}. The rule loses {difference}."
        return "probably", reason
    if saving.per_round.low <= 0:
        reason = (
            f"The rule is right, but there is nothing to save: {losses}, and the rule goes to "
            f"{cascade.names[-1]} all the same."
        )
        return "probably", reason
    return "learnable", f"The rule does as well as the best fixed depth or better: {losses}."


def _without_labels(
    cascade: Cascade,
    saving: Saving,
    reliability: Sequence[Reliability],
    agreement: Agreement | None,
) -> tuple[Answer, str]:
    alarm = _alarm(agreement)
    if alarm is not None:
        sure = agreement is not None and agreement.check.passed
        advice = "Drop that arm, or audit some rows first." if sure else "Audit before you drop it."
        reason = (
            f"Disagreement alone sends cases on to {cascade.names[alarm.worse]}, which does not "
            f"look worth it: the rule goes too deep. {alarm.words} {advice}"
        )
        return "not from disagreement alone", reason
    off = [r for r in reliability if miscalibrated(r, BADLY_OFF)]
    if off:
        return "not from disagreement alone", _does_not_fit(cascade, off)
    if saving.per_round.low <= 0:
        reason = (
            "Nothing speaks against it, but at these costs the rule would hardly ever stop before "
            f"{cascade.names[-1]}: there is next to nothing to save."
        )
        return "probably", reason
    seen = "the models of disagreement fit"
    if agreement is not None:
        seen = f"no dearer arm looks worse than a cheaper one, and {seen}"
    return "probably", f"{seen[0].upper()}{seen[1:]}; but without labels that is no proof."


def _alarm(agreement: Agreement | None) -> WorseArm | None:
    """Return the arm that looks worst beside a cheaper one, if any does."""
    if agreement is None or not agreement.worse:
        return None
    return max(agreement.worse, key=lambda w: w.difference.value)


def _what_it_saves(cascade: Cascade, saving: Saving) -> str:
    last, whole = cascade.names[-1], float(cascade.cumulative[-1])
    share, low, high = (100 * v for v in (saving.share.value, saving.share.low, saving.share.high))
    return (
        f"Against always going to {last} ({whole:.3g} per round) the rule saves "
        f"{saving.per_round.value:.3g} per round, {share:.0f} % (95 % interval {low:.0f} to "
        f"{high:.0f} %), and its answer differs from that of {last} on "
        f"{100 * saving.disagreement.value:.1f} % of the rows."
    )


def _dominance(audit: Audit) -> str:
    share = audit.weakly_dominant
    return (
        f"By the labels, weak dominance holds on about {100 * share.value:.0f} % of the rows "
        f"({100 * share.low:.0f} to {100 * share.high:.0f} %): there the rule stops where it "
        "should; elsewhere it goes too deep."
    )


def _does_not_fit(cascade: Cascade, off: Sequence[Reliability]) -> str:
    worst = max(off, key=lambda r: r.calibration_error)
    return (
        f"The model of disagreement does not fit well: for {cascade.names[worst.first]} and "
        f"{cascade.names[worst.second]} it is off by {100 * worst.calibration_error:.0f} points on "
        "average, and decisions near the edge are off with it. Try a higher degree, or better "
        "context columns."
    )
