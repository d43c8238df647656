"""The answer for the person who decides: whether this cascade can be learned without labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
from stopwise.logs.diagnosis.models import blurred, contradicted, miscalibrated

MOST_DEGREE = 4  # beyond, there are more features than any log could teach
# The rule may lose this share of the best fixed depth's loss and still count as learnable …
TOLERATED = 0.02
# … if the labels leave no room for a loss of more than this share.
RULED_OUT = 0.10
# Models off by more than this on average, and beyond chance, forbid a verdict; by this, a remark.
BADLY_OFF, NOTEWORTHY = 0.10, 0.05
# Kinds of rows that never went to the last arm are told of first from this share on …
MUCH_UNSEEN = 0.10
# … then that the rule is a fixed depth, from this share of the rows on.
ALL_BUT_ALWAYS = 0.995
# By agreement, a fixed depth that loses less than the rule by this share is worth a remark.
LESS_BY = 0.05

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
    *,
    shares: Sequence[float] | NDArray[np.float64] = (),
    unseen: float = 0.0,
    degree: int = 1,
) -> Verdict:
    """Return the verdict, with its reason and what else to know.

    ``shares`` of the rows at which the rule stops, by arm; ``unseen``, the share of rows of kinds
    that never went to the last arm; ``degree`` of the models.

    With labels the losses decide: "learnable" if the label-free rule loses at most 2 % to the best
    fixed depth (and the labels exclude 10 %) and saves something; "not from disagreement alone" if
    it loses more than 2 %, surely; else "probably". Without labels it is "probably" at best.
    """
    if audit is not None:
        answer, reason = _by_labels(cascade, saving, audit, degree)
    else:
        answer, reason = _without_labels(cascade, saving, reliability, agreement, degree)
    first = _said_first(cascade, shares, unseen, answer)
    points: list[str] = []
    if audit is None:
        points.append(UNVERIFIED)
    points.append(_what_it_saves(cascade, saving))
    if agreement is not None:
        points.extend(
            w.words for w in agreement.worse if audit is not None or w != _alarm(agreement)
        )
        points.extend(agreement.refuted)
        if audit is None:
            points.extend(_too_deep(cascade, agreement, shares))
        if audit is None or agreement.worse:
            points.append(agreement.check.words)
    elif audit is None:
        points.append(
            "With two arms their agreement says nothing of which is right; that takes a third arm, "
            "or labels."
        )
    if audit is not None:
        points.append(_dominance(audit))
    off = [r for r in reliability if miscalibrated(r, NOTEWORTHY) or blurred(r)]
    if off and _does_not_fit(cascade, off, degree) not in reason:
        points.append(_does_not_fit(cascade, off, degree))
    points.extend(p.words for p in plan if p.rows == 1000)
    return Verdict(answer, " ".join([*first, reason]), tuple(points))


def _said_first(
    cascade: Cascade, shares: Sequence[float] | NDArray[np.float64], unseen: float, answer: Answer
) -> list[str]:
    said: list[str] = []
    if unseen > MUCH_UNSEEN:
        said.append(
            f"{100 * unseen:.0f} % of the rows are of kinds that never went to "
            f"{cascade.names[-1]}: nothing here speaks of those, only of the others."
        )
    if len(shares) and max(shares) >= ALL_BUT_ALWAYS:
        always = cascade.names[int(np.argmax(shares))]
        good = answer != "not from disagreement alone"
        said.append(
            f"The rule stops at {always} in {100 * max(shares):.3g} % of the rows: always "
            f"{always} would {'do' if good else 'be the same'}; nothing to learn here."
        )
    return said


def _too_deep(
    cascade: Cascade, agreement: Agreement, shares: Sequence[float] | NDArray[np.float64]
) -> list[str]:
    """Compare the rule with every fixed depth, by errors as agreement estimates them."""
    losses, rule = agreement.losses, agreement.rule_loss
    if not len(losses) or not len(shares):
        return []
    best = int(np.argmin(losses))
    deeper = np.asarray(shares, dtype=np.float64)[best + 1 :]
    if losses[best] > (1 - LESS_BY) * rule or not deeper.sum():
        return []
    arm = best + 1 + int(np.argmax(deeper))
    gap = float(cascade.gaps[best, arm])
    mends = 100 * (losses[best] - losses[arm] + gap)
    return [
        f"By agreement, {cascade.names[arm]} mends "
        + (f"about {mends:.1f} points" if mends > 0 else "nothing")
        + f" of the errors of {cascade.names[best]} for {gap:.3g} more: the rule probably goes too "
        f"deep, if arms err independently. It would lose {rule:.3g} per round (cost and estimated "
        f"errors), and always {cascade.names[best]} {losses[best]:.3g}."
    ]


def _by_labels(cascade: Cascade, saving: Saving, audit: Audit, degree: int) -> tuple[Answer, str]:
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
        if audit.rule_depth > audit.best_fixed:
            reason = f"The rule goes too deep: {losses}. That is {difference} than need be."
        else:
            # where p̂ is right the rule stops early only where going on costs more than it mends
            reason = (
                f"The rule stops too early, so the models of disagreement do not fit: {losses}. "
                f"That is {difference} than need be. {_advice(degree)}"
            )
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
    degree: int,
) -> tuple[Answer, str]:
    alarm = _alarm(agreement)
    if alarm is not None:
        worse, better = cascade.names[alarm.worse], cascade.names[alarm.better]
        reason = (
            f"Either {worse} is worse than {better} and the rule goes too deep, or the cheaper "
            f"arms share mistakes that {worse} does not make. Agreement alone cannot tell these "
            "apart, so that under both readings disagreement alone does not say where to stop; "
            f"labels would. {alarm.words}"
        )
        return "not from disagreement alone", reason
    off = [r for r in reliability if miscalibrated(r, BADLY_OFF)]
    if off:
        return "not from disagreement alone", _does_not_fit(cascade, off, degree)
    if saving.per_round.low <= 0:
        reason = (
            "Nothing speaks against it, but at these costs the rule would hardly ever stop before "
            f"{cascade.names[-1]}: there is next to nothing to save."
        )
        return "probably", reason
    false = [r for r in reliability if contradicted(r)]
    seen = "the models of disagreement fit"
    if false:
        off_by = 100 * max(r.calibration_error for r in false)
        seen = (
            "the models of disagreement are off by no more than "
            f"{off_by:.1f} points on average, though by more than chance explains"
        )
    if agreement is not None and not agreement.worse:
        seen = f"no dearer arm looks worse than a cheaper one, and {seen}"
    return "probably", f"{seen[0].upper()}{seen[1:]}; but without labels that is no proof."


def _alarm(agreement: Agreement | None) -> WorseArm | None:
    """Return the arm that looks worst beside a cheaper one and matters, if any does."""
    worse = [] if agreement is None else [w for w in agreement.worse if w.drives]
    return max(worse, key=lambda w: w.difference.value, default=None)


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


def _does_not_fit(cascade: Cascade, off: Sequence[Reliability], degree: int) -> str:
    worst = max(off, key=lambda r: r.calibration_error)
    return (
        f"The model of disagreement does not fit well: for {cascade.names[worst.first]} and "
        f"{cascade.names[worst.second]} it is off by {100 * worst.calibration_error:.2g} points on "
        f"average, and decisions near the edge are off with it. {_advice(degree)}"
    )


def _advice(degree: int) -> str:
    if degree < MOST_DEGREE:
        return f"Try --degree {degree + 1}, or better context columns."
    return "Try better context columns."
