"""Joint outputs with specified pairwise disagreements, compared with linear programming."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import stopwise as sw
from stopwise import research
from stopwise.arrays import Floats
from stopwise.research.environments.realizable import cut_weights, cuts


def separated(answers: NDArray[np.int64]) -> Floats:
    """Return (pairs, rows): which pairs of columns differ in each row."""
    pairs = combinations(range(answers.shape[1]), 2)
    return np.array([answers[:, i] != answers[:, j] for i, j in pairs], dtype=np.float64)


def linear_program_finds(p: Floats, n_arms: int) -> bool:
    """Whether a distribution over all 2ᴷ answers has these disagreements, by linear programming."""
    answers = np.array(list(np.ndindex(*[2] * n_arms)))
    equal = np.vstack([separated(answers), np.ones(len(answers))])
    return linprog(np.zeros(len(answers)), A_eq=equal, b_eq=[*p, 1.0]).status == 0


@pytest.mark.parametrize(
    ("n_arms", "low", "high", "share"),
    [
        (2, 0.0, 1.0, (1.0, 1.0)),
        (3, 0.0, 1.0, (0.2, 0.5)),
        (4, 0.1, 0.6, (0.2, 0.6)),
        (5, 0.2, 0.6, (0.3, 0.8)),
        (6, 0.3, 0.45, (1.0, 1.0)),
    ],
)
def test_weights_exist_if_and_only_if_the_linear_program_is_feasible(
    n_arms: int, low: float, high: float, share: tuple[float, float]
) -> None:
    p = np.random.default_rng(n_arms).uniform(low, high, (150, n_arms * (n_arms - 1) // 2))
    weights, exist = cut_weights(p, n_arms)
    assert share[0] <= exist.mean() <= share[1]  # neither is rare
    assert exist.tolist() == [linear_program_finds(row, n_arms) for row in p]
    assert (weights >= 0).all()
    assert (weights.sum(axis=1)[exist] <= 1 + 1e-12).all()
    np.testing.assert_allclose((weights @ separated(cuts(n_arms)[:-1]).T)[exist], p[exist])


@pytest.mark.parametrize(
    ("n_arms", "factor", "largest"), [(3, 2, 2 / 3), (4, 2, 2 / 3), (5, 1.5, 0.6)]
)
def test_arms_exist_for_all_probabilities_within_the_documented_factor(
    n_arms: int, factor: float, largest: float
) -> None:
    """For corners, where each p_ij is a or factor·a, and points between them."""
    pairs = n_arms * (n_arms - 1) // 2
    between = np.random.default_rng(0).uniform(1, factor, (2000, pairs))
    corners = np.where(np.array(list(np.ndindex(*[2] * pairs))) > 0, factor, 1.0)
    for a in (0.001, 0.1, largest / factor):
        _, exist = cut_weights(a * np.concatenate([corners, between]), n_arms)
        assert exist.all()


def test_a_factor_of_two_is_too_large_for_five_arms() -> None:
    """No answers have the metric of K₂,₃, whose distances are 1 and 2 (Deza, Laurent, 1997)."""
    side = np.array([0, 0, 1, 1, 1])
    p = 0.1 * np.array([[2.0 if side[i] == side[j] else 1.0 for i, j in combinations(range(5), 2)]])
    assert not linear_program_finds(p[0], 5)
    assert not cut_weights(p, 5)[1][0]


@pytest.mark.parametrize("n_arms", [3, 4, 5])
def test_drawn_outputs_have_the_disagreement_of_theta_for_each_pair(n_arms: int) -> None:
    """In three parts of the contexts. Hoeffding: |mean(d − p)| > 0.02 over 20,000 rounds has chance
    ≤ 2·exp(−2·20,000·0.02²) < 3e-7; 57 comparisons: false alarms below 2e-5.
    """
    rng = np.random.default_rng(n_arms)
    cascade = sw.Cascade([0.01] * n_arms)  # so cheap that no context is redrawn
    theta = np.column_stack(
        [rng.uniform(-1.8, -1.4, len(cascade.pairs())), np.full(len(cascade.pairs()), 1.0)]
    )
    batch = research.Realizable(cascade, list(theta)).sample(60_000, rng)
    assert batch.outputs is not None
    order = np.argsort(batch.contexts[:, 1])
    p = 1 / (1 + np.exp(-batch.contexts @ theta.T / np.sqrt(2)))
    errors = separated(batch.outputs).T - p
    for part in np.split(order, 3):
        assert np.abs(errors[part].mean(axis=0)).max() < 0.02
