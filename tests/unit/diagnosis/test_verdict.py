import msgspec
import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import (
    AccuracyEstimate,
    Agreement,
    Audit,
    Estimate,
    IndependenceCheck,
    Reliability,
    ReliabilityBin,
    Saving,
    WorseArm,
)
from stopwise.logs.diagnosis.intervals import wilson
from stopwise.logs.diagnosis.planning import pair_that_matters, plan_audit
from stopwise.logs.diagnosis.verdict import judge

CASCADE = Cascade([0.01, 0.05, 0.2], names=["rules", "small", "large"])
ONE = Estimate(1.0, 1.0, 1.0)


def saves(low, high):
    middle = Estimate((low + high) / 2, low, high)
    return Saving(middle, middle, wilson(1, 100))


def audited(lost, low, high, best=0.2):
    return Audit(
        rows=400,
        errors=(ONE, ONE, ONE),
        pairs=(),
        weakly_dominant=Estimate(0.5, 0.4, 0.6),
        rule_loss=Estimate(best + lost, best + low, best + high),
        best_fixed=1,
        best_fixed_loss=Estimate(best, best, best),
        lost=Estimate(lost, low, high),
        rule_depth=1.5,
    )


def agreement(*, alarm, checked=True, passed=True):
    worse = WorseArm(2, 1, Estimate(0.1, 0.08, 0.12), 0.2, 0.05, 0.5, 0.2, "large looks worse.")
    return Agreement(
        classes=2,
        accuracies=(AccuracyEstimate(0, ONE),),
        check=IndependenceCheck(checked, passed, 0.0, 1.0, "They err independently."),
        worse=(worse,) if alarm else (),
    )


def fits(off):
    return Reliability(0, 1, (ReliabilityBin(10_000, 0.3, wilson(3000 + 1e4 * off, 10_000)),), off)


@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ((-0.01, -0.02, 0.0), "learnable"),
        ((0.001, -0.005, 0.007), "learnable"),  # half a per cent, and 10 % excluded
        ((0.001, -0.05, 0.05), "probably"),  # so few labels that anything may be
        ((0.03, -0.01, 0.07), "probably"),
        ((0.003, 0.001, 0.005), "learnable"),  # surely worse, but by less than 2 %
        ((0.03, 0.01, 0.05), "not from disagreement alone"),
    ],
)
def test_with_labels_the_losses_decide(lost, answer):
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], agreement(alarm=False), audited(*lost), ())
    assert found.answer == answer
    assert "400" in found.reason
    assert "small" in found.reason


def test_labels_overrule_an_alarm():
    found = judge(
        CASCADE, saves(0.1, 0.2), [fits(0.0)], agreement(alarm=True), audited(0, -0.001, 0.001), ()
    )
    assert found.answer == "learnable"
    assert "large looks worse." in found.points  # it is still told


def test_nothing_to_save_is_not_learnable():
    found = judge(CASCADE, saves(0.0, 0.0), [fits(0.0)], None, audited(0, -0.001, 0.001), ())
    assert found.answer == "probably"


@pytest.mark.parametrize("k", ["agreement", None])
def test_without_labels_nothing_is_proved(k):
    seen = agreement(alarm=False) if k else None
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], seen, None, ())
    assert found.answer == "probably"
    assert any("Without labels" in p for p in found.points)


def test_an_alarm_without_labels():
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], agreement(alarm=True), None, ())
    assert found.answer == "not from disagreement alone"
    assert "large looks worse." in found.reason
    assert "Either large is worse than small" in found.reason  # both readings, and no advice to
    assert "the cheaper arms share mistakes that large does not make" in found.reason
    assert "under both readings" in found.reason
    assert "Drop" not in found.reason  # act on one of them


def test_an_alarm_that_matters_little_is_a_remark():
    seen = agreement(alarm=True)
    seen = msgspec.structs.replace(
        seen, worse=(msgspec.structs.replace(seen.worse[0], drives=False),)
    )
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], seen, None, ())
    assert found.answer == "probably"
    assert "large looks worse." in found.points
    assert "no dearer arm looks worse" not in found.reason


def test_what_labels_refute_is_told():
    seen = msgspec.structs.replace(agreement(alarm=False), refuted=("The labels refute it.",))
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], seen, audited(0, -0.001, 0.001), ())
    assert "The labels refute it." in found.points


@pytest.mark.parametrize(("depth", "says"), [(1.5, "goes too deep"), (0.2, "stops too early")])
def test_too_deep_or_too_early(depth, says):
    labels = msgspec.structs.replace(audited(0.03, 0.01, 0.05), rule_depth=depth)
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], None, labels, ())
    assert found.answer == "not from disagreement alone"
    assert says in found.reason
    assert ("--degree 2" in found.reason) == (depth < 1)


def test_what_is_said_first():
    args = (CASCADE, saves(0.1, 0.2), [fits(0.0)], None, None, ())
    assert judge(*args, shares=(0.996, 0.004, 0.0)).reason.startswith(
        "The rule stops at rules in 99.6 % of the rows: always rules would do; nothing to learn"
    )
    assert "always" not in judge(*args, shares=(0.99, 0.01, 0.0)).reason
    reason = judge(*args, shares=(1.0, 0.0, 0.0), unseen=0.3).reason
    assert reason.startswith("30 % of the rows are of kinds that never went to large")
    assert "never went" not in judge(*args, unseen=0.05).reason


def test_a_model_that_chance_contradicts_is_never_said_to_fit():
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.03)], None, None, ())
    assert found.answer == "probably"
    assert "disagreement fit" not in found.reason
    assert "more than chance explains" in found.reason
    # its one bin has no spread: all that the model sees is less than what it misses
    assert any("3 points" in p and "--degree 2" in p for p in found.points)
    labels = audited(0.03, 0.01, 0.05)
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.07)], None, labels, ())
    assert any("does not fit" in p for p in found.points)  # whatever the verdict


@pytest.mark.parametrize(("rule", "told"), [(0.30, True), (0.205, False)])
def test_a_fixed_depth_that_loses_less_by_agreement(rule, told):
    seen = msgspec.structs.replace(agreement(alarm=False), losses=(0.4, 0.2, 0.37), rule_loss=rule)
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0)], seen, None, (), shares=(0.2, 0.3, 0.5))
    said = [p for p in found.points if "By agreement, large mends about 3.0 points" in p]
    assert bool(said) == told


def test_models_that_do_not_fit():
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0), fits(0.2)], None, None, ())
    assert found.answer == "not from disagreement alone"
    assert "20 points" in found.reason
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0), fits(0.07)], None, None, ())
    assert found.answer == "probably"
    assert any("7 points" in p for p in found.points)


def test_the_plan_holds_whatever_the_errors_are():
    """The half width bounds 1.96 standard deviations of γ̂_i − γ̂_j for every split of p_ij."""
    p = np.full((50, 3), 0.3)
    plans = plan_audit(CASCADE, p, np.array([0.3, 0.3, 0.3]), None)
    for harm in (0.0, 0.1, 0.15, 0.3):
        variance = 0.3 - (0.3 - 2 * harm) ** 2
        for plan in plans:
            assert plan.half_width >= 1.95 * (variance / plan.rows) ** 0.5
    assert plans[0].half_width == pytest.approx(1.96 * (0.3 / 100) ** 0.5, rel=1e-3)


def test_the_pair_that_matters():
    # the rule goes on from rules because of large, at nine rows of ten
    p = np.array([[0.01, 0.5, 0.1]] * 9 + [[0.5, 0.1, 0.1]])
    assert pair_that_matters(CASCADE, p, agreement(alarm=False)) == (0, 2)
    assert pair_that_matters(CASCADE, p, agreement(alarm=True)) == (1, 2)
    assert pair_that_matters(CASCADE, np.zeros((5, 3)), None) == (0, 2)
