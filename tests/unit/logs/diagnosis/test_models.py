"""Models of disagreement and their calibration."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.models import Disagreement, reliability

CASCADE = Cascade([0.1, 0.1, 0.1])


def world(n, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 2)) * [1, 50] + [3, 0]
    z = np.column_stack([x[:, 0] - 3, 0.02 * x[:, 1], 0.5 - (x[:, 0] - 3)])
    p = 1 / (1 + np.exp(-z))
    return x, p, (random.random(p.shape) < p).astype(np.uint8)


def predicted(x, differ, **options):
    return Disagreement(CASCADE, x, differ, **options).out_of_sample


def test_estimates_match_scikit_learn():
    x, _, differ = world(3000)
    model = Disagreement(CASCADE, x, differ)
    # clipped and scaled as documented, which the comparison requires
    low, high = np.quantile(x, [0.001, 0.999], axis=0)
    inside = (np.clip(x, low, high) - (low + high) / 2) / ((high - low) / 2)
    for half in (0, 1):
        used, held_out = model.half != half, model.half == half
        for k in range(3):
            other = LogisticRegression(C=1e6, tol=1e-10, max_iter=5000)
            other.fit(inside[used], differ[used, k])
            expected = other.predict_proba(inside[held_out])[:, 1]
            assert model.out_of_sample[held_out, k] == pytest.approx(expected, abs=1e-4)


def test_a_row_does_not_affect_its_own_prediction():
    x, _, differ = world(400)
    before = predicted(x, differ)
    differ[0] = 1 - differ[0]
    after = predicted(x, differ)
    assert np.array_equal(before[:200], after[:200])
    assert not np.array_equal(before[200:], after[200:])


def test_without_contexts_the_prediction_is_the_rate_of_the_other_half():
    differ = np.zeros((1000, 3), dtype=np.uint8)
    differ[:150] = 1  # of the first half
    differ[500:600] = 1
    p = predicted(np.empty((1000, 0)), differ)
    assert p[[0, -1], 0] == pytest.approx([0.2, 0.3], abs=1e-4)


@pytest.mark.parametrize("first", [0, 1])
def test_an_arm_sees_only_its_available_context(first):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (2000, first + 1))
    differs = (random.random(2000) < 1 / (1 + np.exp(-4 * x[:, -1]))).astype(np.uint8)
    p = predicted(x, np.column_stack([differs] * 3), sees=[first, first + 1])
    # pairs (0, 1) and (0, 2) cannot use the last coordinate, pair (1, 2) can
    slopes = [np.cov(x[:, -1], p[:, k])[0, 1] for k in range(3)]
    assert max(map(abs, slopes[:2])) < 0.02
    assert slopes[2] > 0.1


def test_outliers_do_not_distort_the_scale():
    x, p, differ = world(4000)
    x[::1500, 0] = -99_999
    assert np.median(np.abs(predicted(x, differ) - p)[:, 0]) < 0.03


def test_predictions_are_extreme_for_pairs_that_never_or_always_disagree():
    x, _, differ = world(500)
    differ[:, 0], differ[:, 1] = 0, 1
    p = predicted(x, differ)
    assert p[:, 0].max() < 0.02
    assert p[:, 1].min() > 0.98


def test_reliability_matches_direct_computation():
    _, p, differ = world(2000)
    (first, *_) = reliability(p, differ)
    off = 0.0
    for b, rows in zip(first.bins, np.array_split(np.argsort(p[:, 0]), 10), strict=True):
        expected = p[rows, 0].mean(), differ[rows, 0].mean()
        assert b.rows == 200
        assert (b.predicted, b.observed.value) == pytest.approx(expected)
        off += 0.1 * abs(expected[0] - expected[1])
    assert first.calibration_error == pytest.approx(off)


def test_reliability_flags_a_wrong_model_without_false_alarms():
    """False alarms: at most about 30 × 3 × 0.001, times the chance of an error above 0.05."""
    alarms = 0
    for seed in range(30):
        _, p, differ = world(600, seed)
        alarms += any(r.fit != "good" for r in reliability(p, differ))
        assert reliability(p**2, differ)[0].fit == "bad"
    assert alarms <= 1


def test_a_small_misfit_is_rough_unless_fitting_explains_it():
    p = np.repeat([0.28, 0.32], 5000)[:, None]

    def fit(hits, features=0):
        differ = np.arange(10_000) % 100 < np.repeat(hits, 5000)
        return reliability(p, differ.astype(np.uint8)[:, None], features)[0].fit

    assert fit([22, 38]) == "rough"  # off by 0.06
    assert fit([22, 38], features=500) == "good"
    assert fit([25, 35]) == "rough"  # off by more than half their spread
