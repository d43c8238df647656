"""Intervals, against scipy."""

import math

import msgspec
import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest, chi2, norm

from stopwise.errors import InvalidParameterError
from stopwise.intervals import (
    Interval,
    chi_square_limit,
    mean_interval,
    normal_mean,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (1, 1), (517, 100_000)])
def test_wilson_is_scipys(hits: int, n: int) -> None:
    found, known = wilson(hits, n), binomtest(hits, n).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert found.low <= found.value <= found.high


def test_nothing_seen_is_nothing_known() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_mean_has_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(size=50)
    low, high = norm.interval(0.95, values.mean(), values.std(ddof=1) / 50**0.5)
    assert (normal_mean(values).low, normal_mean(values).high) == pytest.approx((low, high))


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 45])
def test_chi_square_limit_is_near_the_exact_one(freedom: int) -> None:
    assert chi_square_limit(freedom, 0.001) == pytest.approx(chi2.isf(0.001, freedom), rel=0.04)


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
        assert (ours.value, ours.low, ours.high) == pytest.approx((values.mean(), low, high))
    assert mean_interval([7.0]) == Interval(7.0, -math.inf, math.inf, 1)


def test_a_mean_needs_finite_values_and_a_confidence_that_is_a_probability() -> None:
    for values in ([], [1.0, math.nan], [math.inf, 1.0]):
        with pytest.raises(InvalidParameterError, match="one value or more, all of them finite"):
            mean_interval(values)
    for confidence in (0, 1, math.nan):
        with pytest.raises(InvalidParameterError, match="confidence must be above 0 and below 1"):
            mean_interval([1, 2], confidence)


def test_a_negative_factor_swaps_the_ends() -> None:
    found = Interval(1.0, 0.5, 3.0, 7)
    assert -2 * found == found / -0.5 == -(found * 2) == Interval(-2.0, -6.0, -1.0, 7)
    assert found - 1 == found + -1 == Interval(0.0, -0.5, 2.0, 7)


def test_an_unknown_number_of_values_is_not_in_the_json() -> None:
    assert msgspec.json.encode(wilson(0, 0)) == b'{"value":0.0,"low":0.0,"high":1.0}'
