"""Evaluation on labelled rows, and the number of labels needed."""

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.audit import (
    gain_on_disagreement,
    plan_labels,
    read_audit,
    worthwhile,
)
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.logs.diagnosis.sampling import Sample

CASCADE = sw.Cascade([0.01, 0.05, 0.2])


def test_audit_matches_direct_computation():
    random = np.random.default_rng(0)
    predicted = random.beta(0.6, 2, (500, 3))
    wrong = (random.random((500, 3)) < [0.3, 0.2, 0.1]).astype(np.uint8)
    audit = read_audit(CASCADE, predicted, wrong)
    losses = wrong + CASCADE.cumulative
    stops = plug_in_stops(CASCADE, predicted)
    rule = losses[np.arange(500), stops]
    assert (audit.rows, audit.rule_depth) == (500, stops.mean())
    assert audit.rule_error.value == wrong[np.arange(500), stops].mean()
    assert audit.rule_loss.value == pytest.approx(rule.mean())
    assert audit.best_fixed == np.argmin(losses.mean(axis=0))
    paired = rule - losses[:, audit.best_fixed]
    assert audit.lost.value == pytest.approx(paired.mean())
    half = 1.95996 * paired.std(ddof=1) / 500**0.5
    assert audit.lost.high - audit.lost.value == pytest.approx(half, rel=1e-5)
    assert audit.over_fixed[audit.best_fixed] == audit.lost
    for i, over in enumerate(audit.over_fixed):
        assert over.value == pytest.approx((rule - losses[:, i]).mean())


def sample(differ, wrong, has_label):
    n = len(differ)
    return Sample(np.arange(n) / n, np.arange(n), np.zeros((n, 1)), differ, wrong, has_label)


def drawn(n, seed=0, label=1.0, classes=5, right=(0.5, 0.6, 0.7)):
    """Rows of three independent arms, a share of which have labels."""
    random = np.random.default_rng(seed)
    wrong = (random.random((n, 3)) > right).astype(np.uint8)
    outputs = wrong * random.integers(1, classes, (n, 3))
    differ = np.column_stack([outputs[:, i] != outputs[:, j] for i, j in CASCADE.pairs()])
    return sample(differ.astype(np.uint8), wrong, random.random(n) < label)


def planned(rows, stops=None):
    stops = np.zeros(rows.n, dtype=np.int64) if stops is None else stops
    return plan_labels(CASCADE, rows, labelled(rows), stops)


def labelled(rows):
    return rows.take(rows.labelled)


@pytest.mark.parametrize("classes", [2, 5])
def test_gain_is_the_mean_over_rows_in_which_the_two_disagree(classes):
    """With many classes both are often wrong there, so the gain is not 1 − 2q."""
    rows = drawn(20_000, classes=classes)
    gain = gain_on_disagreement(rows, 2, 1, 2)
    assert gain is not None
    where = rows.take(rows.differ[:, 2] == 1)
    first, second = where.wrong[:, 1] == 0, where.wrong[:, 2] == 0
    assert gain.value == pytest.approx(second.mean() - first.mean())
    assert rows.differ[:, 2].mean() * gain.value == pytest.approx(0.1, abs=0.02)  # 0.7 − 0.6
    by_harm = 1 - 2 * first.mean()
    assert (abs(by_harm - gain.value) < 1e-9) == (classes == 2)
    half = 1.96 * (second.astype(float) - first).std() / len(first) ** 0.5
    assert gain.high - gain.value == pytest.approx(half, rel=0.01)
    assert gain_on_disagreement(where.take(slice(29)), 2, 1, 2) is None
    certain = gain_on_disagreement(where.take(second & ~first).take(slice(30)), 2, 1, 2)
    assert certain is not None
    assert 0.5 < certain.low < certain.value == 1.0  # 30 of 30 is not certainty


def test_without_labels_the_plan_distinguishes_the_required_gain_from_zero():
    """The planned labels estimate every gain to within the stated width, at 95 %. A rate below 93 %
    of 2,000 samples has probability 1 in 10,000 where the variance is largest.
    """
    rows = drawn(5000, label=0.0)
    plan = planned(rows)
    assert (plan.first, plan.second, plan.gain) == (1, 2, None)
    rate = float(rows.differ[:, 2].mean())
    disagree = np.asarray(rows.differ.any(axis=1))
    assert plan.rate == pytest.approx(rate)
    assert plan.needed == pytest.approx(0.2 / rate)
    n = max((1.959964 / plan.needed) ** 2, 30)
    assert plan.labels == np.ceil(n * disagree.mean() / rate)
    assert plan.width == pytest.approx(1.959964 / n**0.5)
    assert plan.width <= plan.needed
    assert len(plan.rows) == len(set(plan.rows)) == plan.labels
    assert disagree[list(plan.rows)].all()
    cheap = plan_labels(sw.Cascade([0.01, 0.05, 0.05]), rows, labelled(rows), np.zeros(5000, int))
    assert cheap.labels == np.ceil((1.959964 / cheap.needed) ** 2 * disagree.mean() / rate) > 300
    random, n = np.random.default_rng(0), round((1.959964 / cheap.needed) ** 2)
    for chances in ([0.5, 0.0, 0.5], [0.2, 0.4, 0.4], [0.0, 0.1, 0.9]):
        gains = random.choice([-1, 0, 1], (2000, n), p=chances).mean(axis=1)
        assert np.mean(np.abs(gains - chances[2] + chances[0]) <= cheap.width) > 0.93


def test_labels_settle_the_question_or_state_how_many_more_are_needed():
    rows = drawn(20_000, label=0.05, right=(0.3, 0.5, 0.68))  # 0.18 better for 0.2 more
    plan = planned(rows)
    assert plan.gain is not None
    off = abs(plan.gain.value - plan.needed)
    assert plan.gain.low < plan.needed < plan.gain.high
    assert plan.width == max(off, 0.02)
    have = int(labelled(rows).differ[:, 2].sum())
    spread = (plan.gain.high - plan.gain.value) * have**0.5 / 1.96
    more = (1.96 * spread / plan.width) ** 2 - have
    disagree = rows.differ.any(axis=1)
    assert plan.labels == pytest.approx(more * disagree.mean() / plan.rate, rel=0.001)
    assert not rows.labelled[list(plan.rows)].any()
    settled = drawn(20_000, label=0.05, right=(0.3, 0.5, 0.95))
    plan = planned(settled)
    assert plan.gain is not None
    assert plan.gain.low > plan.needed
    assert (plan.labels, plan.rows) == (0, ())


def test_a_step_that_costs_more_than_the_disagreement_needs_no_labels():
    """The question then concerns the arm before it, or the rule."""
    rows = drawn(2000, label=0.0, right=(0.9, 0.95, 0.96))
    rates = rows.differ.mean(axis=0)
    assert rates[2] < 0.2
    assert rates[0] > 0.05
    assert worthwhile(CASCADE, rates) == [0, 1]
    plan = planned(rows)
    assert (plan.first, plan.second) == (0, 1)
    assert plan.needed == pytest.approx(0.05 / rates[0])
    never = rows._replace(differ=np.zeros_like(rows.differ))
    plan = planned(never)
    assert (plan.second, plan.labels, plan.rows) == (None, 0, ())


def test_labels_may_be_needed_to_decide_if_the_rule_is_worth_its_cost():
    """One row in fifty disagrees, so no arm is worth its cost on all rows."""
    rows = drawn(5000, label=0.0)
    often = np.arange(5000) % 50 == 0
    rows = rows._replace(differ=np.where(often[:, None], rows.differ, 0).astype(np.uint8))
    stops = np.where(often, 2, 0)
    plan = planned(rows, stops)
    assert (plan.first, plan.second) == (0, None)
    assert plan.gap == pytest.approx(0.25 / 50)
    assert plan.rate == rows.differ[often, 1].mean() / 50
    assert plan.needed == pytest.approx(plan.gap / plan.rate)
    n = max((1.959964 / plan.needed) ** 2, 30)
    assert plan.labels == np.ceil(n * rows.differ.any(axis=1).mean() / plan.rate)


def test_the_deepest_arm_is_compared_with_the_best_cheaper_arm():
    def question(rows):
        plan = planned(rows)
        return plan.first, plan.second

    assert question(drawn(2000, label=0.0)) == (1, 2)
    assert question(drawn(2000, right=(0.7, 0.5, 0.9))) == (0, 2)
