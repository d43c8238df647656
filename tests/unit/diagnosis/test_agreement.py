import itertools

import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.agreement import accuracies, read_agreement, strata, without
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from tests.cascades import Simulated, bad_cascade, error_rates, good_cascade, simulated


def differences(outputs):
    pairs = itertools.combinations(range(outputs.shape[1]), 2)
    return np.column_stack([outputs[:, i] != outputs[:, j] for i, j in pairs]).astype(np.uint8)


def read(drawn: Simulated, errors, classes: int | None = 2, wrong=None):
    """Read with the true chances of disagreement, so that only the agreement is in question."""
    e = error_rates(drawn.contexts, errors)
    spread = 1.0 if classes is None else 1 / (classes - 1)
    p = np.column_stack(
        [
            1 - (1 - e[:, i]) * (1 - e[:, j]) - spread * e[:, i] * e[:, j] * (classes is not None)
            for i, j in drawn.cascade.pairs()
        ]
    )
    outputs = drawn.outputs.astype(np.int16)
    found = read_agreement(
        drawn.cascade, p.astype(np.float64), outputs, differences(drawn.outputs), classes, wrong
    )
    assert found is not None
    return found, p


def test_two_arms_say_nothing():
    drawn = simulated(500, 0, (0.1, 0.1), (0.3, 0.2))
    differ = differences(drawn.outputs)
    assert (
        read_agreement(drawn.cascade, differ.astype(np.float64), drawn.outputs, differ, 2) is None
    )


def test_hard_cases_are_hard_for_all_and_strata_undo_it():
    drawn = good_cascade(30_000, 0)
    differ, truth = (
        differences(drawn.outputs),
        (drawn.outputs == drawn.labels[:, None]).mean(axis=0),
    )
    hard = error_rates(drawn.contexts, (0.2,))
    cut = accuracies(drawn.outputs, differ, strata(hard), 2, drawn.cascade.names)
    whole = accuracies(drawn.outputs, differ, np.zeros(30_000, int), 2, drawn.cascade.names)
    assert np.abs(cut.mean - truth).max() < 0.015
    assert np.abs(whole.mean - truth).max() > 0.02
    assert cut.check.passed


def test_the_worst_arm_is_named_with_what_it_costs():
    drawn = bad_cascade(10_000, 0)
    found, p = read(drawn, (0.25, 0.15, 0.08, 0.35))
    (alarm,) = found.worse
    assert (alarm.worse, alarm.better) == (3, 2)
    assert alarm.difference.low < 0.27 < alarm.difference.high
    # what it would really cost and lose, with and without that arm
    rows = np.arange(10_000)
    for cascade, arms, cost, loss in [
        (drawn.cascade, [0, 1, 2, 3], alarm.cost_now, alarm.loss_now),
        (without(drawn.cascade, 3), [0, 1, 2], alarm.cost_without, alarm.loss_without),
    ]:
        columns = [k for k, pair in enumerate(drawn.cascade.pairs()) if set(pair) <= set(arms)]
        stops = plug_in_stops(cascade, p[:, columns])
        paid = cascade.cumulative[stops].mean()
        missed = (drawn.outputs[:, arms][rows, stops] != drawn.labels).mean()
        assert cost == pytest.approx(paid)
        assert loss == pytest.approx(paid + missed, abs=0.03)
    assert "large" in alarm.words
    assert "medium" in alarm.words


def test_arms_that_copy_each_other_do_not_condemn_a_better_one():
    errors = (0.25, 0.25, 0.15, 0.08)
    drawn = simulated(10_000, 0, (0.01, 0.04, 0.06, 0.1), errors)
    copied = np.random.default_rng(1).random(10_000) < 0.8
    drawn.outputs[copied, 1] = drawn.outputs[copied, 0]
    found, _ = read(drawn, errors)
    assert found.check.checked
    assert not found.check.passed
    assert found.accuracies[0].accuracy.value > found.accuracies[3].accuracy.value  # misled …
    assert found.worse == ()  # … but it knows


def test_a_bad_arm_is_named_even_beside_copies():
    errors = (0.25, 0.25, 0.1, 0.35)
    drawn = simulated(10_000, 0, (0.01, 0.04, 0.06, 0.1), errors)
    copied = np.random.default_rng(1).random(10_000) < 0.8
    drawn.outputs[copied, 1] = drawn.outputs[copied, 0]
    found, _ = read(drawn, errors)
    assert [w.worse for w in found.worse] == [3]
    assert "does not hold" in found.worse[0].words


def nested(n):
    """Three cheap arms that share most mistakes, and a better, independent one."""
    drawn = simulated(n, 0, (0.01, 0.04, 0.06, 0.1), (0.3, 0.3, 0.3, 0.1))
    shared = np.random.default_rng(1).random((n, 2)) < 0.9
    for arm in (1, 2):
        same = shared[:, arm - 1]
        drawn.outputs[same, arm] = drawn.outputs[same, 0]
    return drawn


def test_a_better_arm_among_nested_ones_has_two_readings_until_labels_decide():
    drawn, errors = nested(8000), (0.3, 0.3, 0.3, 0.1)
    # the best arm looks worse: agreement is misled …
    (alarm,) = [w for w in read(drawn, errors)[0].worse if w.worse == 3]
    assert not alarm.confirmed
    assert "Either large is worse than" in alarm.words  # … and says that it may be
    assert "or the cheaper arms share mistakes that large does not make" in alarm.words
    assert "labels on about 100 random rows would" in alarm.words
    wrong = (drawn.outputs != drawn.labels[:, None])[:400].astype(np.uint8)
    found, _ = read(drawn, errors, wrong=wrong)
    assert 3 not in [w.worse for w in found.worse]
    assert "Agreement made large look worse" in found.refuted[-1]
    assert "the labels refute it" in found.refuted[-1]


def test_labels_confirm_a_bad_arm():
    drawn = bad_cascade(10_000, 0)
    wrong = (drawn.outputs != drawn.labels[:, None])[:300].astype(np.uint8)
    found, _ = read(drawn, (0.25, 0.15, 0.08, 0.35), wrong=wrong)
    (alarm,) = found.worse
    assert alarm.confirmed
    assert alarm.drives
    assert "Labels confirm" in alarm.words
    assert "Either" not in alarm.words
    assert found.losses[2] == pytest.approx(0.11 + 0.08, abs=0.03)


def test_an_arm_that_the_rule_never_goes_to_does_not_matter():
    drawn = simulated(8000, 0, (0.01, 0.05, 3.0), (0.2, 0.1, 0.3))
    (alarm,) = read(drawn, (0.2, 0.1, 0.3))[0].worse
    assert not alarm.drives


def test_few_rows_and_arms_that_nearly_always_agree_are_too_little_to_check():
    random = np.random.default_rng(0)
    for n, error, checked in [(800, 0.2, False), (8000, 0.2, True), (8000, 0.005, False)]:
        wrong = (random.random((n, 4)) < error).astype(np.int64)
        check = accuracies(wrong, differences(wrong), np.zeros(n, int), 2, "abcd").check
        assert check.checked == checked
        assert ("too little to check" in check.words) != checked
        assert ("Nothing here contradicts the assumption" in check.words) == checked


def test_three_arms_cannot_be_checked_and_say_so():
    found, _ = read(simulated(8000, 0, (0.01, 0.05, 0.1), (0.2, 0.1, 0.3)), (0.2, 0.1, 0.3))
    assert not found.check.checked
    assert [w.worse for w in found.worse] == [2]
    assert "could not be checked" in found.worse[0].words


@pytest.mark.parametrize("copied", [0.0, 0.5])
def test_four_arms_of_free_text_are_checked(copied):
    random = np.random.default_rng(0)
    right = random.random((20_000, 4)) < [0.7, 0.8, 0.6, 0.9]
    outputs = np.where(right, 0, 1 + np.arange(4))  # wrong answers never meet
    same = random.random(20_000) < copied
    outputs[same, 1] = outputs[same, 0]
    found = accuracies(outputs, differences(outputs), np.zeros(20_000, int), None, "abcd")
    assert found.check.checked
    assert found.check.passed == (copied == 0.0)
    if not copied:
        assert found.mean == pytest.approx([0.7, 0.8, 0.6, 0.9], abs=0.02)


def test_dropping_an_arm_keeps_the_rest():
    cascade = without(Cascade([0.1, 0.2, 0.4], names=["a", "b", "c"], tradeoff=[1, 2, 3]), 1)
    assert cascade.names == ("a", "c")
    assert cascade.cumulative == pytest.approx([0.1, 1.5])


def test_strata_with_ties():
    assert strata(np.zeros((9000, 3))).max() == 0
    few = np.repeat([0.1, 0.1, 0.1, 0.4, 0.4], 2000)[:, None]
    assert set(strata(few)) == {0, 1}
