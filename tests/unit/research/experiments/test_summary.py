"""Means and paired differences over runs, compared with scipy."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from stopwise.errors import InvalidParameterError
from stopwise.intervals import mean_interval
from stopwise.research.experiments.summary import Measure, curves, finals, paired_difference
from tests.research.campaigns import made_trace as trace


def test_paired_difference_matches_scipy_and_pairs_by_seed() -> None:
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
        ({0: 1.0, 1: 2.0}, {0: 1.0, 2: 2.0}, "same seeds, but b has no value for seed 1"),
        ([1.0, 2.0], [1.0], "same length, got 2 and 1 values"),
        ({0: 1.0}, [1.0], "both"),
        ({}, {}, "must not be empty"),
    ],
)
def test_unpaired_values_are_rejected(a: Any, b: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        paired_difference(a, b)


def test_finals_are_the_last_values_by_seed() -> None:
    runs = [trace(4, [1, 9]), trace(2, [2, 5])]
    assert finals(runs) == {2: 5.0, 4: 9.0}
    assert finals({t.seed: t for t in runs}, "total_cost") == {2: 105.0, 4: 109.0}


@pytest.mark.parametrize("measure", ["regret", "total_cost", "undominated"])
def test_curve_has_the_mean_interval_at_each_round(measure: Measure) -> None:
    runs = {seed: trace(seed, [seed, 2.0 * seed**2]) for seed in (3, 1, 2, 7)}
    rounds, mean, low, high = curves(runs, measure, 0.9)
    assert rounds.tolist() == [5, 10]
    for k in range(2):
        expected = mean_interval([getattr(runs[s], measure)[k] for s in sorted(runs)], 0.9)
        assert mean[k] == pytest.approx(expected.value)
        assert (low[k], high[k]) == pytest.approx((expected.low, expected.high))


def test_curve_does_not_depend_on_the_order_of_runs() -> None:
    random = np.random.default_rng(2)
    runs = [trace(seed, random.normal(size=2).tolist()) for seed in range(50)]
    forward, backward = curves(runs), curves(runs[::-1])
    assert all(np.array_equal(a, b) for a, b in zip(forward, backward, strict=True))


def test_curves_reject_empty_mixed_or_unavailable_traces() -> None:
    with pytest.raises(InvalidParameterError, match="at least one run"):
        curves([])
    with pytest.raises(InvalidParameterError, match="runs of one experiment"):
        curves([trace(0, [1, 2]), trace(1, [1, 2], key="other")])
    with pytest.raises(InvalidParameterError, match="no error rates"):
        curves([trace(0, [1, 2], total_cost=None)], "total_cost")
