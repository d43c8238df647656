"""The optimal arm of worlds without labels, compared with brute force over labels."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import stopwise as sw
from stopwise import research
from stopwise.arrays import Floats
from stopwise.errors import InvalidParameterError
from stopwise.research.environments.base import Batch
from stopwise.research.experiments.runs import build_environment
from stopwise.research.paper import choices, instances
from stopwise.research.theory.dominance import can_be_optimal, dominance_margins, first_candidates
from stopwise.research.theory.regret import optimal_arms, regret, signed_pseudo_regret

PAPER = [
    (n_arms, case, margin)
    for n_arms in (4, 5)
    for case, margin in choices.REALIZABLE_MARGINS.items()
]


def labels_exist_for(weights: Floats, answers: Floats, losses: Floats, arm: int) -> bool:
    """Whether some P(Y = 1 | answers) gives no earlier arm a smaller loss than this one.

    γ_j = Σ_a w_a [a_j (1 − q_a) + (1 − a_j) q_a] is linear in q: a linear program.
    """
    slope = weights[:, None] * (1 - 2 * answers)  # of γ in q
    constant = weights @ answers
    if arm == 0:
        return True
    coefficients = (slope[:, [arm]] - slope[:, :arm]).T
    limits = losses[:arm] + constant[:arm] - losses[arm] - constant[arm]
    solution = linprog(np.zeros(len(weights)), A_ub=coefficients, b_ub=limits, bounds=(0, 1))
    return solution.status == 0


@pytest.mark.parametrize("n_arms", [2, 3, 4])
def test_an_arm_can_be_optimal_if_and_only_if_a_linear_program_finds_labels(n_arms: int) -> None:
    rng = np.random.default_rng(n_arms)
    answers = np.array(list(product((0, 1), repeat=n_arms)), dtype=np.float64)
    differ = (answers[:, :, None] != answers[:, None, :]).astype(np.float64)
    seen = set[tuple[bool, bool]]()
    for _ in range(60):
        weights = rng.dirichlet(np.full(len(answers), 0.5))
        cascade = sw.Cascade(rng.uniform(0.01, 0.5, n_arms))
        p = np.triu(np.tensordot(weights, differ, 1), 1)[None]
        first = int(first_candidates(cascade, p)[0])
        for arm in range(n_arms):
            expected = labels_exist_for(weights, answers, cascade.cumulative, arm)
            assert bool(can_be_optimal(cascade, p, [arm])[0]) == expected
            seen.add((expected, arm == first))
            # weak dominance at an arm that can be optimal occurs only at the first candidate
            dominant = bool(dominance_margins(cascade, p, [arm])[0] > 0)
            assert not (expected and dominant) or arm == first
    # with two arms the first candidate can always be optimal
    assert seen >= {(True, True), (False, False)}
    assert n_arms == 2 or (False, True) in seen


def check(cascade: sw.Cascade, batch: Batch) -> None:
    """Compare the batch with argmin C_i + γ_i where the label is the answer of its optimal arm."""
    rounds = np.arange(len(batch.contexts))
    both = batch.disagreement + batch.disagreement.transpose(0, 2, 1)
    errors = both[rounds, batch.optimal]
    np.testing.assert_array_equal(optimal_arms(cascade, errors), batch.optimal)
    losses = cascade.cumulative + errors
    best = losses[rounds, batch.optimal]
    assert (losses >= best[:, None] - 1e-12).all()
    assert batch.dominant.all()
    for arm in range(cascade.n_arms):  # the signed pseudo-regret is then the regret
        stops = np.full(len(rounds), arm)
        signed = signed_pseudo_regret(cascade, batch.disagreement, batch.optimal, stops)
        np.testing.assert_allclose(signed, regret(cascade, errors, stops), atol=1e-12)
        assert signed.min() >= -1e-12


@pytest.mark.parametrize(("n_arms", "case", "margin"), PAPER)
def test_the_optimal_arm_of_the_papers_instances_equals_brute_force(
    n_arms: int, case: int, margin: float
) -> None:
    environment = build_environment(instances.realizable(n_arms, case, margin))
    batch = environment.sample(3000, np.random.default_rng(case))
    check(environment.cascade, batch)
    assert np.bincount(batch.optimal, minlength=n_arms).min() > 0  # each arm is optimal somewhere


@pytest.mark.parametrize("seed", range(12))
def test_the_optimal_arm_of_random_worlds_equals_brute_force(seed: int) -> None:
    """Without the repeated draws, an earlier arm is better in some contexts of most worlds."""
    rng = np.random.default_rng(seed)
    n_arms = 3 + seed % 3
    cascade = sw.Cascade(rng.uniform(0.05, 0.2, n_arms))
    theta = np.column_stack(
        [rng.uniform(-1.8, -1.4, len(cascade.pairs())), np.full(len(cascade.pairs()), 1.0)]
    )
    world = research.Realizable(cascade, list(theta))
    check(cascade, world.sample(2000, rng))


def test_signed_pseudo_regret_is_the_expected_loss_relative_to_the_optimal_arm() -> None:
    """Hoeffding: |mean(loss − signed)| > 0.02 of 40,000 rounds has chance ≤ 2·exp(−32) each."""
    environment = build_environment(instances.realizable(4, 2, 0.0))
    batch = environment.sample(40_000, np.random.default_rng(1))
    assert batch.outputs is not None
    rounds = np.arange(len(batch.contexts))
    label = batch.outputs[rounds, batch.optimal]
    cumulative = environment.cascade.cumulative
    for arm in range(4):
        stops = np.full(len(rounds), arm)
        paid = (batch.outputs[:, arm] != label) + cumulative[arm] - cumulative[batch.optimal]
        signed = signed_pseudo_regret(environment.cascade, batch.disagreement, batch.optimal, stops)
        assert abs(float((paid - signed).mean())) < 0.02


def test_only_contexts_without_an_optimal_arm_are_redrawn() -> None:
    cascade = sw.Cascade([0.1, 0.15, 0.15])
    theta = [[-1.2, 1.5], [-1.8, 1.5], [-2.0, 1.5]]
    world = research.Realizable(cascade, theta)
    x, p = world._draw(4000, np.random.default_rng(3))
    table = world._table(p)
    accepted = can_be_optimal(cascade, table, first_candidates(cascade, table))
    assert 0.3 < accepted.mean() < 0.95
    batch = world.sample(4000, np.random.default_rng(3))
    np.testing.assert_array_equal(batch.contexts[: accepted.sum()], x[accepted])


def test_a_world_without_optimal_arms_is_rejected() -> None:
    """The third arm costs 1.2 more than the first: no labels can compensate for it."""
    world = research.Realizable(sw.Cascade([0.1, 0.6, 0.6]), [[0.7, 0.0], [0.7, 0.0], [0.8, 0.0]])
    with pytest.raises(InvalidParameterError, match="an arm that can be optimal"):
        world.sample(10, np.random.default_rng(0))
