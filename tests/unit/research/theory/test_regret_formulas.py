"""Optimal arms and regret, compared with brute force."""

import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.research.theory.regret import optimal_arms, pseudo_regret, regret


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        ([0.5, 0.4, 0.3], 2),  # all tie up to rounding
        ([0.5, 0.4, 0.31], 1),
        ([0.5, 0.41, 0.3], 2),
        ([0.4, 0.4, 0.4], 0),
        ([0.49, 0.4, 0.3], 0),
    ],
)
def test_ties_go_to_the_deepest_arm(errors: list[float], best: int) -> None:
    assert optimal_arms(Cascade([0.1, 0.1, 0.1]), [errors]).tolist() == [best]


def test_regret_is_the_loss_beyond_the_best_arm_and_not_negative() -> None:
    rng = np.random.default_rng(1)
    cascade = Cascade([0.05, 0.1, 0.2, 0.3], tradeoff=[0.5, 1, 2, 1])
    errors = rng.random((500, 4))
    stops = rng.integers(0, 4, 500)
    lost = regret(cascade, errors, stops)
    losses = errors + cascade.cumulative
    np.testing.assert_allclose(lost, losses[np.arange(500), stops] - losses.min(axis=1), atol=1e-15)
    assert (lost >= 0).all()
    assert (regret(cascade, errors, optimal_arms(cascade, errors)) == 0).all()
    near_tie = regret(Cascade([0.0, 0.0]), [[0.5, 0.5 + 5e-13]] * 2, [0, 1])
    assert (near_tie >= 0).all()


def test_pseudo_regret_uses_only_the_upper_triangle() -> None:
    p = np.full((3, 3, 3), 99.0)
    p[:, 0, 2] = 0.25
    lost = pseudo_regret(Cascade([0.5, 0.25, 0.5]), p, [0, 2, 2], [2, 0, 2])
    assert lost.tolist() == [1.0, 1.0, 0.0]
