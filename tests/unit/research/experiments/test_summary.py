"""Means and intervals, against scipy and by simulation."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stopwise.errors import InvalidParameterError
from stopwise.research.experiments.summary import (
    What,
    curves,
    finals,
    mean_interval,
    paired_difference,
    t_quantile,
)
from tests.research.campaigns import made_trace as trace


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95, 0.999999])
def test_the_t_quantile_is_scipys(confidence: float) -> None:
    freedom = np.array([*range(1, 31), 100, 999, 1000, 100_000])
    ours = [t_quantile(confidence, int(df)) for df in freedom]
    np.testing.assert_allclose(ours, stats.t.ppf((1 + confidence) / 2, freedom), rtol=1e-8)


@pytest.mark.parametrize("n", [2, 30])
def test_the_interval_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    for confidence in (0.5, 0.99):
        ours = mean_interval(values, confidence)
        low, high = stats.t.interval(confidence, n - 1, values.mean(), stats.sem(values))
        assert ours.n == n
        assert (ours.mean, ours.low, ours.high) == pytest.approx((values.mean(), low, high))
    assert mean_interval([7.0]) == (7.0, -math.inf, math.inf, 1)


def test_a_mean_needs_finite_values_and_a_confidence_that_is_a_probability() -> None:
    for values in ([], [1.0, math.nan], [math.inf, 1.0]):
        with pytest.raises(InvalidParameterError, match="one value or more, all of them finite"):
            mean_interval(values)
    for confidence in (0, 1, math.nan):
        with pytest.raises(InvalidParameterError, match="confidence must be above 0 and below 1"):
            mean_interval([1, 2], confidence)


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
    assert by_seed == pytest.approx(ours)


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
            assert (mean[k], low[k], high[k]) == pytest.approx(one[:3])


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
