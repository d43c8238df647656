"""Confidence intervals, compared with scipy."""

import math

import msgspec
import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest, chi2, norm

from stopwise.errors import InvalidParameterError
from stopwise.intervals import (
    Interval,
    chi_square_critical_value,
    mean_interval,
    normal_mean,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (1, 1), (517, 100_000)])
def test_wilson_equals_scipy(hits: int, n: int) -> None:
    interval = wilson(hits, n)
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert interval.low <= interval.value <= interval.high


def test_wilson_without_data_is_the_unit_interval() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_normal_mean_equals_scipy() -> None:
    values = np.random.default_rng(0).normal(size=50)
    low, high = norm.interval(0.95, values.mean(), values.std(ddof=1) / 50**0.5)
    assert (normal_mean(values).low, normal_mean(values).high) == pytest.approx((low, high))


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 45])
def test_chi_square_critical_value_approximates_scipy(freedom: int) -> None:
    value = chi_square_critical_value(freedom, 0.001)
    assert value == pytest.approx(chi2.isf(0.001, freedom), rel=0.04)


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95, 0.999999])
def test_t_quantile_equals_scipy(confidence: float) -> None:
    freedom = np.array([*range(1, 31), 100, 999, 1000, 100_000])
    quantiles = [t_quantile(confidence, int(df)) for df in freedom]
    np.testing.assert_allclose(quantiles, stats.t.ppf((1 + confidence) / 2, freedom), rtol=1e-8)


@pytest.mark.parametrize("confidence", [0.5, 0.99])
@pytest.mark.parametrize("n", [2, 30])
def test_mean_interval_equals_scipy(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    interval = mean_interval(values, confidence)
    low, high = stats.t.interval(confidence, n - 1, values.mean(), stats.sem(values))
    assert interval.n == n
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (values.mean(), low, high)
    )


def test_mean_interval_of_a_single_value_is_infinite() -> None:
    assert mean_interval([7.0]) == Interval(7.0, -math.inf, math.inf, 1)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf, 1.0]])
def test_mean_interval_rejects_empty_and_non_finite_values(values: list[float]) -> None:
    with pytest.raises(InvalidParameterError, match="must not be empty and must all be finite"):
        mean_interval(values)


@pytest.mark.parametrize("confidence", [0, 1, math.nan])
def test_mean_interval_rejects_an_invalid_confidence(confidence: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"confidence must be in \(0, 1\), got"):
        mean_interval([1, 2], confidence)


def test_a_negative_factor_swaps_low_and_high() -> None:
    interval = Interval(1.0, 0.5, 3.0, 7)
    assert -2 * interval == interval / -0.5 == -(interval * 2) == Interval(-2.0, -6.0, -1.0, 7)
    assert interval - 1 == interval + -1 == Interval(0.0, -0.5, 2.0, 7)


def test_an_interval_without_a_sample_size_has_no_n_in_json() -> None:
    assert msgspec.json.encode(wilson(0, 0)) == b'{"value":0.0,"low":0.0,"high":1.0}'
