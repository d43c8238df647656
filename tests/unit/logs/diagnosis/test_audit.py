import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.audit import plan_labels, read_audit
from stopwise.logs.diagnosis.findings import Hint
from stopwise.logs.diagnosis.plug_in import plug_in_stops

CASCADE = sw.Cascade([0.01, 0.05, 0.2])


def test_everything_by_hand():
    random = np.random.default_rng(0)
    predicted = random.beta(0.6, 2, (500, 3))
    wrong = (random.random((500, 3)) < [0.3, 0.2, 0.1]).astype(np.uint8)
    found = read_audit(CASCADE, predicted, wrong)
    losses = wrong + CASCADE.cumulative
    stops = plug_in_stops(CASCADE, predicted)
    rule = losses[np.arange(500), stops]
    assert (found.rows, found.rule_depth) == (500, stops.mean())
    assert found.rule_error.value == wrong[np.arange(500), stops].mean()
    assert found.rule_loss.value == pytest.approx(rule.mean())
    assert found.best_fixed == np.argmin(losses.mean(axis=0))
    paired = rule - losses[:, found.best_fixed]
    assert found.lost.value == pytest.approx(paired.mean())
    half = 1.95996 * paired.std(ddof=1) / 500**0.5
    assert found.lost.high - found.lost.value == pytest.approx(half, rel=1e-5)


def test_the_plan_holds_whatever_the_errors_are():
    """The half width bounds 1.96 standard deviations of γ̂_i − γ̂_j for every split of p_ij."""
    plan = plan_labels(CASCADE, np.full((50, 3), 0.3), np.full(3, 0.3), None)
    sizes = list(zip(plan.rows, plan.half_width, strict=True))
    for harm in (0.0, 0.1, 0.15, 0.3):
        variance = 0.3 - (0.3 - 2 * harm) ** 2
        assert all(half >= 1.95 * (variance / n) ** 0.5 for n, half in sizes)
    assert plan.half_width[0] == pytest.approx(1.96 * (0.3 / 100) ** 0.5, rel=1e-3)
    assert plan.enough == min(n for n, half in sizes if half < plan.gap / 2)
    assert plan_labels(sw.Cascade([0.1, 0.0]), np.ones((9, 1)), np.ones(1), None).enough is None


def test_the_open_question():
    # the rule continues from the first arm because of the last, at nine rows of ten
    p = np.array([[0.01, 0.5, 0.1]] * 9 + [[0.5, 0.1, 0.1]])

    def question(predicted, hint):
        plan = plan_labels(CASCADE, predicted, predicted.mean(axis=0), hint)
        return plan.first, plan.second

    assert question(p, None) == question(p, Hint((0.7, 0.8, 0.9))) == (0, 2)
    assert question(p, Hint((0.7, 0.8, 0.6), worse=2, better=1)) == (1, 2)
    assert question(np.zeros((5, 3)), None) == (0, 2)
