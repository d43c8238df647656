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


def test_estimates_are_those_of_another_solver():
    x, _, differ = world(3000)
    model = Disagreement(CASCADE, x, differ)
    for half in (0, 1):
        used, asked = model.half != half, model.half == half
        for k in range(3):
            # clipped and scaled as documented, without which no other solver could agree
            low, high = np.quantile(x, [0.001, 0.999], axis=0)
            inside = (np.clip(x, low, high) - (low + high) / 2) / ((high - low) / 2)
            other = LogisticRegression(C=1e6, tol=1e-10, max_iter=5000)
            other.fit(inside[used], differ[used, k])
            expected = other.predict_proba(inside[asked])[:, 1]
            assert model.out_of_sample[asked, k] == pytest.approx(expected, abs=1e-4)


def test_a_row_has_no_part_in_its_own_prediction():
    x, _, differ = world(400)
    before = Disagreement(CASCADE, x, differ).out_of_sample
    differ[0] = 1 - differ[0]
    after = Disagreement(CASCADE, x, differ).out_of_sample
    assert np.array_equal(before[:200], after[:200])
    assert not np.array_equal(before[200:], after[200:])


def test_without_contexts_it_is_the_rate_of_the_other_half():
    differ = np.zeros((1000, 3), dtype=np.uint8)
    differ[:150] = 1  # of the first half
    differ[500:600] = 1
    p = Disagreement(CASCADE, np.empty((1000, 0)), differ).out_of_sample
    assert p[0] == pytest.approx(0.2, abs=1e-4)
    assert p[-1] == pytest.approx(0.3, abs=1e-4)


@pytest.mark.parametrize("first", [0, 1])
def test_an_arm_sees_what_is_known_there(first):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (2000, first + 1))
    differs = (random.random(2000) < 1 / (1 + np.exp(-4 * x[:, -1]))).astype(np.uint8)
    model = Disagreement(CASCADE, x, np.column_stack([differs] * 3), sees=[first, first + 1])
    # pairs (0, 1) and (0, 2) cannot know the last coordinate, pair (1, 2) does
    slope = [np.cov(x[:, -1], model.out_of_sample[:, k])[0, 1] for k in range(3)]
    assert abs(slope[0]) < 0.02
    assert abs(slope[1]) < 0.02
    assert slope[2] > 0.1


def test_stray_values_do_not_spoil_the_scale():
    x, p, differ = world(4000)
    x[::1500, 0] = -99_999
    off = np.abs(Disagreement(CASCADE, x, differ).out_of_sample - p)
    assert np.median(off[:, 0]) < 0.03


def test_pairs_that_never_or_always_disagree():
    x, _, differ = world(500)
    differ[:, 0], differ[:, 1] = 0, 1
    p = Disagreement(CASCADE, x, differ).out_of_sample
    assert p[:, 0].max() < 0.02
    assert p[:, 1].min() > 0.98


def test_reliability_by_hand():
    _, p, differ = world(2000)
    (found, *_) = reliability(CASCADE, p, differ)
    order = np.argsort(p[:, 0])
    off = 0.0
    for b, rows in zip(found.bins, np.array_split(order, 10), strict=True):
        assert b.rows == 200
        assert b.predicted == pytest.approx(p[rows, 0].mean())
        assert b.observed.value == pytest.approx(differ[rows, 0].mean())
        off += 0.1 * abs(p[rows, 0].mean() - differ[rows, 0].mean())
    assert found.calibration_error == pytest.approx(off)


def test_only_a_false_model_does_not_fit():
    """False alarms: about 30 × 3 × 0.001 × the chance to be off by 0.05 at all: nearly never."""
    alarms = 0
    for seed in range(30):
        _, p, differ = world(600, seed)
        alarms += any(r.fit != "good" for r in reliability(CASCADE, p, differ))
        assert reliability(CASCADE, p**2, differ)[0].fit == "bad"
    assert alarms <= 1


def test_a_small_misfit_is_rough_and_one_that_fitting_explains_is_not():
    p = np.repeat([0.28, 0.32], 5000)[:, None]
    differ = (np.arange(10_000) % 100 < np.repeat([22, 38], 5000)).astype(np.uint8)[:, None]
    pair = Cascade([0.1, 0.1])
    assert reliability(pair, p, differ)[0].fit == "rough"  # off by 0.06
    assert reliability(pair, p, differ, features=500)[0].fit == "good"
    differ = (np.arange(10_000) % 100 < np.repeat([25, 35], 5000)).astype(np.uint8)[:, None]
    assert reliability(pair, p, differ)[0].fit == "rough"  # off by more than half their spread
