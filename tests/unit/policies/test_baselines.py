"""Fixed and random depth, and the comparators that are given the truth."""

import math
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.research.theory.dominance import first_candidates

THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
NAN = math.nan


def test_random_depth_takes_every_depth_equally_often() -> None:
    """Hoeffding: a share off by 0.05 in 3000 draws has chance ≤ 6·exp(-2·3000·0.05²) < 2e-6."""
    stops = sw.RandomDepth(THREE, seed=1).decide_many(np.zeros((3000, 1)))
    np.testing.assert_allclose(np.bincount(stops) / 3000, 1 / 3, atol=0.05)


def test_fixed_depth_by_name_or_number() -> None:
    for depth, stop in (("model", 1), (0, 0), (np.int64(2), 2), (None, 2)):
        policy = sw.FixedDepth(THREE, depth=depth)  # pyright: ignore[reportArgumentType]
        assert policy.decide(0.0) == sw.Decision(stop, THREE.names[stop], THREE.cost(stop))
        assert policy.decide(0.0).evidence == ()
        assert policy.parameters() == {"depth": stop}
    for depth in ("tree", 3, -1, 1.5, True):
        with pytest.raises(sw.errors.InvalidStopError):
            sw.FixedDepth(THREE, depth=depth)  # pyright: ignore[reportArgumentType]


def test_the_clairvoyant_continues_at_a_tie() -> None:
    p = np.zeros((3, 3))
    p[0, 1] = THREE.gaps[0, 1]
    assert research.Clairvoyant(THREE).decide(0.0, research.Truth(disagreement=p)).stop == 1
    p[0, 1] -= 1e-11
    assert research.Clairvoyant(THREE).decide(0.0, research.Truth(disagreement=p)).stop == 0
    p[0, 2] = p[1, 2] = 1.0
    assert research.Clairvoyant(THREE).decide(0.0, research.Truth(disagreement=p)).stop == 2


def test_a_tie_for_the_optimal_arm_is_one_for_the_clairvoyant() -> None:
    cascade = sw.Cascade([0.2, 0.4, 0.6])  # 0.4 + 0.6 is 1 but for rounding
    p = np.array([[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    clairvoyant = research.Clairvoyant(cascade)
    assert first_candidates(cascade, p).tolist() == [2]
    assert clairvoyant.decide(0.0, research.Truth(disagreement=p[0])).stop == 2
    assert clairvoyant.run([[0.0]], disagreement=p).tolist() == [2]


TRUTHS: list[tuple[str, Any, str]] = [
    ("optimal", [0, 1], "3 rounds"),
    *(
        ("optimal", wrong, "optimal is an arm for each round, 0 to 2")
        for wrong in (["0", "1", "2"], [0, 1, 3], [0, -1, 2], [0.5, 1, 2], [0, 1, NAN])
    ),
    ("disagreement", np.zeros((3, 3)), r"shape \(3, 3\)"),
    ("disagreement", np.zeros((3, 2, 2)), r"shape \(3, 2, 2\)"),
    ("disagreement", np.diag([0, 0, NAN])[:, None] * np.ones((1, 3, 1)), "NaN"),
]


def test_an_impossible_truth_is_refused() -> None:
    oracle, clairvoyant = research.Oracle(THREE), research.Clairvoyant(THREE)
    for name, given, message in TRUTHS:
        policy = oracle if name == "optimal" else clairvoyant
        with pytest.raises(sw.errors.InvalidInputError, match=message):
            policy.run(np.zeros((3, 1)), **{name: given})
    one: list[dict[str, Any]] = [{"optimal": 3}, {"optimal": 0.5}, {"disagreement": np.eye(2)}]
    for truth in one:
        with pytest.raises(sw.errors.InvalidInputError):
            (oracle if "optimal" in truth else clairvoyant).decide(0.0, research.Truth(**truth))
    assert oracle.rounds == clairvoyant.rounds == 0


def test_privileged_policies_need_no_outputs_and_check_those_they_get() -> None:
    oracle = research.Oracle(THREE)
    assert oracle.run(np.zeros((3, 1)), optimal=np.array([2.0, 0.0, 1.0])).tolist() == [2, 0, 1]
    for call in (oracle.run, oracle.run_disagreements):
        with pytest.raises(sw.errors.InvalidOutputsError):
            call(np.zeros((3, 1)), np.zeros((3, 2)), optimal=[0, 0, 0])
    assert oracle.rounds == 3


def test_the_supervised_comparator_estimates_errors_of_arms() -> None:
    policy = research.Supervised(sw.Cascade([0.1, 0.3]), context_dim=1, forced_rounds=0, ridge=1e-9)
    for t in range(40):
        policy.observe([1.0], [t % 4 == 0, True], research.Truth(label=True))
    first, second = (policy.learner.theta(arm) for arm in (0, 1))
    assert first is not None
    assert second is not None
    assert first[0] == pytest.approx(math.log(3), abs=1e-5)  # 0.75 of them wrong
    assert second[0] < -7
    with pytest.raises(sw.errors.InvalidParameterError, match="arms, not pairs"):
        policy.theta(0, 1)
    with pytest.raises(sw.errors.InvalidParameterError, match="one feature map"):
        research.Supervised(THREE, sw.PerStage([sw.Identity(), sw.Identity()]), 2)
