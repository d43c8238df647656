"""The verdict of a diagnosis, as a table of cases."""

import re

import msgspec
import pytest

from stopwise.intervals import Interval, wilson
from stopwise.logs.diagnosis.findings import (
    ArmSummary,
    Audit,
    LabelPlan,
    PairSummary,
    Reliability,
    Saving,
)
from stopwise.logs.diagnosis.verdict import Evidence, judge, needs_other_models
from stopwise.logs.recommendation import Option, recommend

NAMES = ("rules", "small", "large")
PLAN = LabelPlan(1, 2, 0.2, 0.4, 0.5, None, 0.1, 480, tuple(range(480)))


def exactly(value):
    return Interval(value, value, value)


ALWAYS = recommend([Option("fixed depth", "small", 0.2, None, exactly(0.3))], [], loss="total loss")
POLICY = msgspec.structs.replace(ALWAYS, kind="policy", name="Stopwise")


def verdict(
    *,
    saves=(0.1, 0.2),
    fits=((0.0, "good"),),
    shares=(0.5, 0.3, 0.2),
    gain=None,
    plan=PLAN,
    totals=(0.1, 0.2, 0.4),
    chosen=ALWAYS,
    gap=0.1,
    **options,
):
    saved = Interval(sum(saves) / 2, *saves)
    always = exactly(1.0)
    arms = [
        ArmSummary(name, 0.1, total, 100, exactly(share), always, None, None)
        for name, share, total in zip(NAMES, shares, totals, strict=True)
    ]
    pairs = [
        PairSummary(1, 2, gap, 400, exactly(0.4), Reliability((), off, fit), gain)
        for off, fit in fits
    ]
    saving = Saving(saved, saved, wilson(1, 100))
    return judge(Evidence(arms, pairs, saving, plan, chosen, **options))


def audit_of(lost, low, high, best=0.2, depth=1.5, differing=False):
    return Audit(
        rows=400,
        rule_error=exactly(1.0),
        rule_loss=Interval(best + lost, best + low, best + high),
        rule_depth=depth,
        best_fixed=1,
        best_fixed_loss=exactly(best),
        lost=Interval(lost, low, high),
        over_fixed=(Interval(lost, low, high),) * 3,
        differing=differing,
    )


@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ((-0.01, -0.02, 0.0), "learnable"),
        ((0.001, -0.05, 0.05), "probably"),  # too few labels to tell
        ((0.03, -0.01, 0.07), "probably"),
        ((0.003, 0.001, 0.005), "learnable"),  # significantly worse, but by less than 2 %
        ((0.03, 0.01, 0.05), "not from disagreement alone"),
    ],
)
def test_with_labels_the_losses_decide(lost, answer):
    result = verdict(audit=audit_of(*lost), fits=[(0.2, "bad")])
    assert result.answer == answer
    assert "400" in result.reason
    assert "small" in result.reason
    assert any("does not fit" in p for p in result.points)  # with every verdict


@pytest.mark.parametrize(("high", "named"), [(-0.1, True), (0.1, False)])
def test_an_arm_that_spoils_more_answers_than_it_corrects_is_named(high, named):
    result = verdict(audit=audit_of(0.03, 0.01, 0.05), gain=Interval(-0.5, -0.6, high))
    assert result.points[0].startswith("In labelled rows, large spoils more") == named
    assert ("by 20\u00a0% of the rows" in result.points[0]) == named  # 0.4 · 0.5


@pytest.mark.parametrize(
    ("differing", "text"),
    [(True, "(errors that not all arms share and costs)"), (False, "(errors and costs)")],
)
def test_labels_of_disagreement_exclude_shared_errors(differing, text):
    assert text in verdict(audit=audit_of(0.0, -0.01, 0.01, differing=differing)).reason


@pytest.mark.parametrize(
    ("labels", "answer", "message"),
    [
        (audit_of(0, -0.001, 0.001), "probably", "No saving: Stopwise always runs large."),
        (None, "labels needed", "Stopwise would hardly ever stop before large: no saving."),
    ],
)
def test_a_cascade_without_saving_is_not_learnable(labels, answer, message):
    result = verdict(saves=(0.0, 0.0), audit=labels)
    assert result.answer == answer
    assert message in result.reason


RULE = msgspec.structs.replace(PLAN, first=0, second=None)
DONE = msgspec.structs.replace(PLAN, labels=0, rows=())


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"plan": RULE}, "Labels on 480 rows are needed to say whether Stopwise is better than "),
        ({"plan": DONE}, "There is nothing to learn: no arm after small is worth its cost"),
        ({"fits": [(0.2, "bad")]}, "Labels on 480 rows are needed to say whether large is worth"),
        ({"shares": (0.0, 0.0, 1.0)}, "Labels on 480 rows are needed to say whether large is"),
        (
            {"shares": (1.0, 0.0, 0.0), "plan": DONE},
            "There is nothing to learn: no arm after small",
        ),
        (
            {"audit": audit_of(-0.01, -0.02, 0.0)},
            "This cascade can learn where to stop, and always",
        ),
        (
            {"audit": audit_of(-0.01, -0.02, 0.0), "chosen": POLICY},
            "This cascade can learn where to stop, without labels",
        ),
        ({"audit": audit_of(0.03, -0.01, 0.07)}, "More labels are needed to say whether Stopwise "),
        ({"audit": audit_of(0.03, 0.01, 0.05)}, "This cascade cannot learn where to stop from dis"),
    ],
)
def test_the_headline_agrees_with_the_recommendation(changes, headline):
    assert verdict(**changes).headline.startswith(headline)


def test_without_labels_the_answer_is_labels_needed():
    result = verdict()
    assert result.answer == "labels needed"
    assert (
        result.headline == "Labels on 480 rows are needed to say whether large is worth its price"
    )
    assert "without labels it cannot be said whether large is worth its price" in result.reason
    assert "contradicts" not in f"{result.reason} {result.points}"
    assert any("without labels" in p for p in result.points)
    assert any("Labels on 480 random rows in which arms disagree" in p for p in result.points)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        (
            {},
            "Labels on 480 random rows .* at least 50.% of these rows; .* within ±10 points",
        ),
        (
            {"rows": (1, 2)},
            r"Labels on 480 random rows in which arms disagree \(the log has only 2 such rows",
        ),
        ({"gain": Interval(0.6, 0.4, 0.8), "labels": 50}, "Labels on 50 more random rows"),
        (
            {"gain": Interval(0.9, 0.8, 1.0), "labels": 0},
            "large is worth its extra cost of 0.2 over small on all rows.*90",
        ),
        (
            {"gain": Interval(0.1, 0.0, 0.2), "labels": 0},
            "large is not worth its extra cost of 0.2 over small on all rows",
        ),
    ],
)
@pytest.mark.parametrize("audited", [False, True])
def test_the_number_of_labels_needed_is_stated(changes, pattern, audited):
    plan = msgspec.structs.replace(PLAN, **changes)
    audit = audit_of(0.0, -0.01, 0.01) if audited else None
    points = verdict(plan=plan, audit=audit).points
    assert sum(bool(re.search(pattern, p)) for p in points) == 1


def test_an_arm_that_costs_more_than_it_can_correct_needs_no_labels():
    points = " ".join(verdict(gap=0.5).points)
    assert "large costs 0.5 more than small, and the two disagree in 40\xa0% of the rows" in points
    assert "No labels are needed" in points
    in_money = verdict(gap=50, totals=(10, 20, 70), one_error=100)
    assert "large costs 50 more than small" in " ".join(in_money.points)
    assert "Warning" not in in_money.reason
    assert "No labels are needed" not in " ".join(verdict(gap=30, one_error=100).points)


def test_costs_that_look_like_money_cause_a_warning():
    reason = verdict(totals=(0.1, 1, 40)).reason
    assert reason.startswith("Warning: running arm 'large' costs as much as 39 wrong answers")
    assert "--error-cost" in reason
    assert "--error-cost" not in verdict().reason


@pytest.mark.parametrize(("depth", "message"), [(1.5, "goes too deep"), (0.2, "stops too early")])
def test_the_reason_states_whether_the_rule_stops_too_deep_or_too_early(depth, message):
    audit = audit_of(0.03, 0.01, 0.05, depth=depth)
    result = verdict(audit=audit, higher_degree=2)
    assert result.answer == "not from disagreement alone"
    assert message in result.reason
    assert ("--degree 2" in result.reason) == (depth < 1)
    assert needs_other_models([], audit) == (depth < 1)


def test_nothing_to_learn_takes_precedence_unless_labels_refute_it():
    result = verdict(shares=(0.996, 0.004, 0.0), plan=DONE)
    assert result.reason.startswith(
        "Stopwise would stop at rules in 99.6\u00a0% of the rows: the same as always rules."
    )
    assert result.answer == "nothing to learn"
    assert verdict(shares=(0.996, 0.004, 0.0)).answer == "labels needed"
    refuted = verdict(shares=(0.996, 0.004, 0.0), audit=audit_of(0.03, 0.01, 0.05))
    assert refuted.answer == "not from disagreement alone"
    assert verdict(shares=(0.99, 0.01, 0.0), plan=DONE).answer == "nothing to learn"
    labelled = verdict(shares=(0.0, 0.004, 0.996), audit=audit_of(0, -0.001, 0.001))
    assert labelled.answer == "nothing to learn"
    assert labelled.headline == "There is nothing to learn: Stopwise would always stop at large"


def test_a_higher_degree_is_suggested_only_if_it_helps():
    """A higher degree is suggested only if it helped on held-out rows."""
    result = verdict(fits=[(0.0, "good"), (0.2, "bad")], higher_degree=2)
    assert result.answer == "not from disagreement alone"
    assert "20 points" in result.reason
    assert "Try --degree 2, which predicts held-out rows better" in result.reason
    assert "--degree 2" not in verdict(fits=[(0.2, "bad")]).reason
    assert "a higher --degree does not help on held-out rows" in verdict(fits=[(0.2, "bad")]).reason
    result = verdict(fits=[(0.0, "good"), (0.07, "rough")])
    assert result.answer == "labels needed"
    assert any("7 points" in p for p in result.points)
