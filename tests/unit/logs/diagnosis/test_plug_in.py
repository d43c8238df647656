"""Stops of the rule with fitted disagreements, and their consequences."""

import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.intervals import wilson
from stopwise.logs.diagnosis import plug_in
from stopwise.logs.diagnosis.models import ModelDraws
from stopwise.research.theory.dominance import first_candidates

CASCADE = Cascade([0.05, 0.1, 0.2, 0.3])
PAIRS = CASCADE.pairs()
RANDOM = np.random.default_rng(0)
P = RANDOM.beta(0.6, 2, (2000, len(PAIRS)))
OUTPUTS = RANDOM.integers(0, 3, (2000, 4))
DIFFER = np.column_stack([OUTPUTS[:, i] != OUTPUTS[:, j] for i, j in PAIRS]).astype(np.uint8)
WRONG = (OUTPUTS != 0).astype(np.uint8)
STOPS = plug_in.plug_in_stops(CASCADE, P)
ROWS = np.arange(2000)


@pytest.mark.parametrize("weight", [0.2, 1.0, 3.0])
def test_stops_are_the_first_candidates(weight):
    tables = np.zeros((len(P), 4, 4))
    for k, pair in enumerate(PAIRS):
        tables[:, *pair] = P[:, k]
    stops = plug_in.plug_in_stops(CASCADE, P, weight)
    assert np.array_equal(stops, first_candidates(Cascade(CASCADE.costs, tradeoff=weight), tables))
    assert len(set(stops.tolist())) > 1
    tie = plug_in.plug_in_stops(Cascade([0.25, 0.5]), np.array([[0.5 * weight]]), weight)
    assert tie.tolist() == [1]  # a tie continues


def model_draws(*predictions) -> ModelDraws:
    return ModelDraws(np.arange(len(P)), iter(predictions))


def test_saving_matches_direct_computation():
    saving = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(P), P)
    costs = CASCADE.cumulative[STOPS]
    saved, half = 0.65 - costs.mean(), 1.95996 * costs.std(ddof=1) / len(costs) ** 0.5
    assert (saving.per_round.value, saving.per_round.low) == pytest.approx((saved, saved - half))
    assert saving.share.value == pytest.approx(saved / 0.65)
    differs = OUTPUTS[ROWS, STOPS] != OUTPUTS[:, 3]
    assert saving.disagreement == wilson(int(differs.sum()), len(differs))


def test_drawn_models_widen_the_interval_of_the_saving():
    never, always = np.ones_like(P), np.zeros_like(P)
    alone = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(P, P, P), P).per_round
    wide = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(never), P).per_round
    assert (wide.low, wide.high) == (0.0, pytest.approx(0.6))  # no saving to the maximum
    flat = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(P), always).per_round
    assert (flat.low, flat.high) == pytest.approx((alone.low, 0.6))


def test_drawn_models_widen_the_interval_of_disagreement():
    """A model that always runs the last arm changes no answer, so the interval extends to 0."""
    never = np.ones_like(P)
    alone = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(P), P).disagreement
    wide = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(never), P).disagreement
    assert alone.low > 0
    assert (wide.value, wide.low) == (alone.value, 0.0)
    assert wide.high > alone.high


def test_drawn_models_are_compared_on_their_rows():
    rows = np.arange(0, len(P), 3)
    same = ModelDraws(rows, iter([P[rows]]))
    alone = plug_in.saving(CASCADE, STOPS, DIFFER, model_draws(P), P).disagreement
    assert plug_in.saving(CASCADE, STOPS, DIFFER, same, P).disagreement == alone


def test_the_frontier_runs_from_deep_to_shallow():
    points = plug_in.frontier(CASCADE, P, DIFFER, (P, WRONG))
    costs = [point.cost for point in points]
    assert costs == sorted(costs, reverse=True)  # higher costs never go deeper
    (now,) = [point for point in points if point.weight == pytest.approx(1.0)]
    assert now.cost == pytest.approx(CASCADE.cumulative[STOPS].mean())
    assert now.error is not None
    assert now.error.value == pytest.approx(WRONG[ROWS, STOPS].mean())
    assert plug_in.frontier(CASCADE, P, DIFFER, None)[0].error is None


def test_arm_summaries_match_direct_computation():
    for i, arm in enumerate(plug_in.summarise_arms(CASCADE, np.arange(4), STOPS, DIFFER, WRONG)):
        assert (arm.answered, arm.stops.value) == (i, np.equal(STOPS, i).mean())
        assert arm.disagreement.value == pytest.approx(np.mean(OUTPUTS[:, i] != OUTPUTS[:, 3]))
        assert arm.error is not None
        assert arm.loss is not None
        assert arm.error.value == WRONG[:, i].mean()
        assert arm.loss.value == pytest.approx(CASCADE.cumulative[i] + WRONG[:, i].mean())


def test_free_arms_give_no_saving():
    differ, p = np.zeros((2, 1), dtype=np.uint8), np.zeros((2, 1))
    same = ModelDraws(ROWS[:2], iter([p]))
    saving = plug_in.saving(Cascade([0.0, 0.0]), np.array([1, 1]), differ, same, p)
    assert (saving.share.value, saving.share.high) == (0.0, 0.0)
