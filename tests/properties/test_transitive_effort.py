"""Transitive decisions need few passes over the history and always have a certificate."""

import numpy as np
import pytest

import stopwise as sw

ROUNDS = 400
PASSES_PER_PAIR = 50  # heuristic: damped Newton takes tens


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("n_arms", [4, 5, 6, 7])
def test_a_transitive_decision_needs_few_passes(n_arms: int, seed: int) -> None:
    """A pair that is won through a chain is not refined any further."""
    rng = np.random.default_rng([n_arms, seed])
    policy = sw.USSLaplace(sw.Cascade(costs=rng.uniform(0.01, 0.25, n_arms)), context_dim=3)
    skill = rng.uniform(0.0, 2.0, n_arms)
    slopes = rng.normal(size=(n_arms, 3))
    allowed = PASSES_PER_PAIR * n_arms * (n_arms - 1) // 2
    for _ in range(ROUNDS):
        context = rng.uniform(-1.0, 1.0, 3)
        right = rng.random(n_arms) < 1.0 / (1.0 + np.exp(-skill - slopes @ context))
        before = policy.effort["passes"]
        stop = policy.decide(context).stop
        assert policy.effort["passes"] - before <= allowed
        policy.observe(context, [int(answer) for answer in right[: stop + 1]])
    assert policy.effort["settled"] == 0
