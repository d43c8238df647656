import msgspec
import pytest

from stopwise.logs.diagnosis.findings import (
    ArmSummary,
    Audit,
    Hint,
    LabelPlan,
    PairSummary,
    Reliability,
    Saving,
)
from stopwise.logs.diagnosis.verdict import judge
from stopwise.reporting.intervals import Estimate, wilson

NAMES = ("rules", "small", "large")
HINT = Hint((0.7, 0.9, 0.8), worse=2, better=1)
PLAN = LabelPlan(1, 2, 0.2, (100, 300), (0.12, 0.07), 300)


def exactly(value):
    return Estimate(value, value, value)


def judged(
    *, saves=(0.1, 0.2), fits=((0.0, "good"),), shares=(0.5, 0.3, 0.2), harm=(None, None), **more
):
    saved, one = Estimate(sum(saves) / 2, *saves), exactly(1.0)
    arms = [
        ArmSummary(name, 0.1, 0.1, 100, exactly(share), one, None, None)
        for name, share in zip(NAMES, shares, strict=True)
    ]
    pairs = [
        PairSummary(1, 2, 0.1, 400, one, Reliability((), off, fit), *harm) for off, fit in fits
    ]
    return judge(arms, pairs, Saving(saved, saved, wilson(1, 100)), **more)


def audited(lost, low, high, best=0.2, depth=1.5):
    return Audit(
        rows=400,
        rule_error=exactly(1.0),
        rule_loss=Estimate(best + lost, best + low, best + high),
        rule_depth=depth,
        best_fixed=1,
        best_fixed_loss=exactly(best),
        lost=Estimate(lost, low, high),
    )


@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ((-0.01, -0.02, 0.0), "learnable"),
        ((0.001, -0.05, 0.05), "probably"),  # so few labels that anything may be
        ((0.03, -0.01, 0.07), "probably"),
        ((0.003, 0.001, 0.005), "learnable"),  # surely worse, but by less than 2 %
        ((0.03, 0.01, 0.05), "not from disagreement alone"),
    ],
)
def test_with_labels_the_losses_decide(lost, answer):
    found = judged(audit=audited(*lost), fits=[(0.2, "bad")])
    assert found.answer == answer
    assert "400" in found.reason
    assert "small" in found.reason
    assert any("does not fit" in p for p in found.points)  # whatever the verdict


@pytest.mark.parametrize(("harm", "named"), [(0.3, True), (0.12, False)])
def test_an_arm_that_spoils_more_than_it_repairs_is_named(harm, named):
    found = judged(audit=audited(0.03, 0.01, 0.05), harm=(wilson(400 * harm, 400), wilson(40, 400)))
    assert [p.partition(" 3")[0] for p in found.points] == ["By the labels large spoils"] * named


@pytest.mark.parametrize("labels", [audited(0, -0.001, 0.001), None])
def test_nothing_to_save_is_not_learnable(labels):
    assert judged(saves=(0.0, 0.0), audit=labels).answer == "probably"


def test_without_labels_nothing_is_proved_and_a_hint_is_a_question():
    for hint in (None, Hint((0.7, 0.8, 0.9)), HINT):
        found = judged(hint=hint, plan=PLAN)
        assert found.answer == "probably"
        assert any("Without labels" in p for p in found.points)
        assert any("Labels on 300 random rows" in p for p in found.points)
        asked = [p for p in found.points if "Is large really better than small" in p]
        assert bool(asked) == (hint is HINT) == ("question about large" in found.reason)
        # both readings, and no advice to act on one of them
        assert not asked or "the cheaper arms share mistakes that large does not make" in asked[0]
    more = msgspec.structs.replace(PLAN, enough=None)
    assert any("More than 300 labels" in p for p in judged(plan=more).points)


@pytest.mark.parametrize(("depth", "says"), [(1.5, "goes too deep"), (0.2, "stops too early")])
def test_too_deep_or_too_early(depth, says):
    found = judged(audit=audited(0.03, 0.01, 0.05, depth=depth))
    assert found.answer == "not from disagreement alone"
    assert says in found.reason
    assert ("--degree 2" in found.reason) == (depth < 1)


def test_what_comes_first():
    assert judged(shares=(0.996, 0.004, 0.0)).reason.startswith(
        "Stopwise would stop at rules in 99.6\u00a0% of the rows: always rules would do"
    )
    assert "always" not in judged(shares=(0.99, 0.01, 0.0)).reason
    reason = judged(shares=(1.0, 0.0, 0.0), unseen=0.3).reason
    assert reason.startswith("30 % of the rows are of kinds that never went to large")
    assert "never went" not in judged(unseen=0.05).reason


def test_models_that_do_not_fit():
    found = judged(fits=[(0.0, "good"), (0.2, "bad")])
    assert found.answer == "not from disagreement alone"
    assert "20 points" in found.reason
    assert "--degree 2" in found.reason
    assert "--degree" not in judged(fits=[(0.2, "bad")], degree=4).reason
    found = judged(fits=[(0.0, "good"), (0.07, "rough")])
    assert found.answer == "probably"
    assert any("7 points" in p for p in found.points)
