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
    assert "large looks worse. Drop that arm" in found.reason
    doubtful = agreement(alarm=True, passed=False)
    found = judge(CASCADE, saves(0.1, 0.2), [fits(0.0)], doubtful, None, ())
    assert "Audit before you drop it" in found.reason


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
