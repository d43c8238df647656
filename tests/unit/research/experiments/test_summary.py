"""Means and differences over runs, against scipy."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from stopwise.errors import InvalidParameterError
from stopwise.intervals import mean_interval
from stopwise.research.experiments.summary import What, curves, finals, paired_difference
from tests.research.campaigns import made_trace as trace


def test_differences_are_taken_pair_by_pair() -> None:
    random = np.random.default_rng(1)
    a = random.normal(0, 100, 20)
    b = a - 1 + random.normal(0, 0.1, 20)
    test = stats.ttest_rel(a, b).confidence_interval(0.95)
    ours = paired_difference(a, b)
    assert (ours.low, ours.high) == pytest.approx((test.low, test.high))
    shuffled = random.permutation(20)
    by_seed = paired_difference(
        dict(enumerate(a.tolist())), {int(i): float(b[i]) for i in shuffled}
    )
    assert (by_seed.low, by_seed.high) == pytest.approx((ours.low, ours.high))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ({0: 1.0, 1: 2.0}, {0: 1.0, 2: 2.0}, "only one side has a value of 1"),
        ([1.0, 2.0], [1.0], "only one side has a value of 1"),
        ({0: 1.0}, [1.0], "both"),
        ({}, {}, "one value or more"),
    ],
)
def test_what_cannot_be_paired_is_refused(a: Any, b: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        paired_difference(a, b)


def test_finals_are_the_last_values_by_seed() -> None:
    runs = [trace(4, [1, 9]), trace(2, [2, 5])]
    assert finals(runs) == {2: 5.0, 4: 9.0}
    assert finals({t.seed: t for t in runs}, "total_cost") == {2: 105.0, 4: 109.0}


def test_a_curve_is_the_interval_at_each_round() -> None:
    runs = {seed: trace(seed, [seed, 2.0 * seed**2]) for seed in (3, 1, 2, 7)}
    names: tuple[What, ...] = ("regret", "total_cost", "undominated")
    for what in names:
        rounds, mean, low, high = curves(runs, what, 0.9)
        assert rounds.tolist() == [5, 10]
        for k in range(2):
            one = mean_interval([getattr(runs[s], what)[k] for s in sorted(runs)], 0.9)
            assert (mean[k], low[k], high[k]) == pytest.approx((one.value, one.low, one.high))


def test_a_curve_does_not_depend_on_who_finished_first() -> None:
    random = np.random.default_rng(2)
    runs = [trace(seed, random.normal(size=2).tolist()) for seed in range(50)]
    one, other = curves(runs), curves(runs[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_curves_of_nothing_or_of_different_things_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="no runs"):
        curves([])
    with pytest.raises(InvalidParameterError, match="different experiments"):
        curves([trace(0, [1, 2]), trace(1, [1, 2], key="other")])
    with pytest.raises(InvalidParameterError, match="no error rates"):
        curves([trace(0, [1, 2], total_cost=None)], "total_cost")
