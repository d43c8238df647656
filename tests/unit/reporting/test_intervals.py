import numpy as np
import pytest
from scipy.stats import binomtest, chi2, norm

from stopwise.reporting.intervals import chi_square_limit, mean, wilson


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (1, 1), (517, 100_000)])
def test_wilson_is_scipys(hits, n):
    found, known = wilson(hits, n), binomtest(hits, n).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert found.low <= found.value <= found.high


def test_nothing_seen_is_nothing_known():
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_mean_has_the_normal_interval():
    values = np.random.default_rng(0).normal(size=50)
    low, high = norm.interval(0.95, values.mean(), values.std(ddof=1) / 50**0.5)
    assert (mean(values).low, mean(values).high) == pytest.approx((low, high))


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 45])
def test_chi_square_limit_is_near_the_exact_one(freedom):
    assert chi_square_limit(freedom, 0.001) == pytest.approx(chi2.isf(0.001, freedom), rel=0.04)
