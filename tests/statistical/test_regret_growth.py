"""Statistical test that regret levels off on a realizable instance with a margin."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from stopwise.cascade import Cascade
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD
from stopwise.policies.uss_pd_ridge import USSPDRidge

D, GAP, MARGIN, ROUNDS = 4, 0.3, 0.1, 5000


def regret(kind: str, seed: int) -> NDArray[np.float64]:
    """Return the pseudo-regret of each round.

    The last arm is always right, so the error rate of the first is their disagreement, and
    contextual weak dominance holds. Contexts within MARGIN of indifference are excluded.
    """
    rng = np.random.default_rng(seed)
    truth = 4.0 * rng.choice([-1.0, 1.0], D)
    contexts = rng.uniform(-1, 1, (6 * ROUNDS, D))
    contexts[:, 0] = truth[0] / -4.0  # an intercept, so that errors can be rare
    chance = expit(contexts @ truth / np.sqrt(D))
    chosen = np.flatnonzero(np.abs(chance - GAP) > MARGIN)[:ROUNDS]
    contexts, chance = contexts[chosen], chance[chosen]
    assert len(chosen) == ROUNDS
    assert 0.2 < np.mean(chance > GAP) < 0.8  # both arms are best somewhere
    label = rng.integers(0, 2, ROUNDS)
    outputs = np.stack([label ^ (rng.random(ROUNDS) < chance), label], axis=1)
    cascade = Cascade([0.1, GAP])
    policy = {
        "uss-pd": lambda: USSPD(cascade, context_dim=D),
        "uss-pd-ridge": lambda: USSPDRidge(cascade, context_dim=D, lam=0.5, S=1.0),
        "thompson": lambda: Thompson(cascade, context_dim=D, seed=seed),
    }[kind]()
    loss = np.where(policy.run(contexts, outputs) == 0, chance, GAP)
    return loss - np.minimum(chance, GAP)


@pytest.mark.parametrize("kind", ["uss-pd", "uss-pd-ridge", "thompson"])
def test_the_last_fifth_adds_less_than_half_the_regret_of_the_second(kind: str) -> None:
    by_fifth = np.mean([regret(kind, seed).reshape(5, -1).sum(axis=1) for seed in range(10)], 0)
    assert by_fifth[1] > 0
    assert by_fifth[4] < by_fifth[1] / 2, by_fifth
