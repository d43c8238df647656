import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis import plug_in
from stopwise.theory.dominance import first_candidates

CASCADE = Cascade([0.05, 0.1, 0.2, 0.3])
PAIRS = CASCADE.pairs()


def world(n=2000, seed=0):
    random = np.random.default_rng(seed)
    p = random.beta(0.6, 2, (n, len(PAIRS)))
    outputs = random.integers(0, 3, (n, 4))
    differ = np.column_stack([outputs[:, i] != outputs[:, j] for i, j in PAIRS]).astype(np.uint8)
    return p, outputs, differ


def tables(p):
    full = np.zeros((len(p), 4, 4))
    for k, pair in enumerate(PAIRS):
        full[:, *pair] = p[:, k]
    return full


@pytest.mark.parametrize("weight", [0.2, 1.0, 3.0])
def test_stops_are_the_first_candidates(weight):
    p, *_ = world()
    weighted = Cascade(CASCADE.costs, tradeoff=weight)
    stops = plug_in.plug_in_stops(CASCADE, p, weight)
    assert np.array_equal(stops, first_candidates(weighted, tables(p)))
    assert len(set(stops.tolist())) > 1
    tie = plug_in.plug_in_stops(Cascade([0.25, 0.5]), np.array([[0.5 * weight]]), weight)
    assert tie.tolist() == [1]  # a tie continues


def test_saving_by_hand():
    p, outputs, differ = world()
    stops = plug_in.plug_in_stops(CASCADE, p)
    found = plug_in.saving(CASCADE, stops, differ)
    costs = CASCADE.cumulative[stops]
    assert found.per_round.value == pytest.approx(0.65 - costs.mean())
    assert found.per_round.low == pytest.approx(
        0.65 - costs.mean() - 1.95996 * costs.std(ddof=1) / len(costs) ** 0.5
    )
    assert found.share.value == pytest.approx(1 - costs.mean() / 0.65)
    said = outputs[np.arange(len(stops)), stops]
    assert found.disagreement.value == pytest.approx((said != outputs[:, 3]).mean())
    shares = plug_in.stop_shares(CASCADE, stops)
    assert [s.share.value for s in shares] == [(stops == i).mean() for i in range(4)]


def test_the_frontier_runs_from_deep_to_shallow():
    p, outputs, differ = world()
    wrong = (outputs != 0).astype(np.uint8)
    points = plug_in.frontier(CASCADE, p, differ, (p, wrong))
    assert len(points) == 25
    costs = [point.cost for point in points]
    assert costs == sorted(costs, reverse=True)  # higher costs never go deeper
    (now,) = [point for point in points if point.weight == pytest.approx(1.0)]
    stops = plug_in.plug_in_stops(CASCADE, p)
    assert now.cost == pytest.approx(CASCADE.cumulative[stops].mean())
    assert now.error is not None
    assert now.error.value == pytest.approx(wrong[np.arange(len(p)), stops].mean())
    assert plug_in.frontier(CASCADE, p, differ, None)[0].error is None


def test_fixed_depths_by_hand():
    _, outputs, differ = world()
    wrong = (outputs != 0).astype(np.uint8)
    for found in plug_in.fixed_depths(CASCADE, differ, wrong):
        arm = found.arm
        assert found.disagreement.value == pytest.approx((outputs[:, arm] != outputs[:, 3]).mean())
        assert found.loss is not None
        assert found.loss.value == pytest.approx(CASCADE.cumulative[arm] + wrong[:, arm].mean())


def test_arms_that_cost_nothing():
    free = Cascade([0.0, 0.0])
    found = plug_in.saving(free, np.array([1, 1]), np.zeros((2, 1), dtype=np.uint8))
    assert (found.share.value, found.share.high) == (0.0, 0.0)
