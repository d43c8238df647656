"""Statistical tests of the coverage of the confidence ellipsoid.

Worlds are realizable: disagreements are drawn from μ(φᵀθ*) with ‖φ‖ ≤ 1, σ = ½ (valid for any
Bernoulli noise) and κ the smallest slope of Assumption 1, over ‖θ − θ*‖ ≤ 1, ‖φ‖ ≤ 1.

The lemma requires λ_min(V) ≥ 1. Its proof also needs θ̂ in the ball of κ, which that does not imply:
in the first rounds the data may be nearly separable and θ̂ far off. All runs that leave the
ellipsoid do so then: of 400, 13 with two arms and 21 with three; once λ_min(V) ≥ 2, one each.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from stopwise.cascade import Cascade
from stopwise.policies.uss_pd import USSPD

Array = NDArray[np.float64]
DELTA = 0.05
D = 3
SIZE = 1.0  # ‖θ*‖


def world(seed: int, n: int, k: int) -> tuple[Array, Array, NDArray[np.uint8]]:
    """Return contexts, θ* by pair and disagreements by pair."""
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n, D))
    truth = rng.normal(size=(k * (k - 1) // 2, D))
    truth *= SIZE / np.linalg.norm(truth, axis=1, keepdims=True)
    chance = expit(contexts @ truth.T / np.sqrt(D))
    return contexts, truth, (rng.random(chance.shape) < chance).astype(np.uint8)


def stays_inside(seed: int, n: int, k: int, least: float) -> tuple[bool, int]:
    """Return whether all ellipsoids held while λ_min(V) ≥ least, and the number of early stops."""
    contexts, truth, differ = world(seed, n, k)
    kappa = float(expit(SIZE + 1) * expit(-SIZE - 1))
    cascade = Cascade([0.1] + [0.99] * (k - 1))  # gaps that can exceed even these wide bounds
    rule: dict[str, Any] = {"delta": DELTA, "sigma": 0.5, "kappa": kappa, "ridge": 1e-6}
    policy = USSPD(cascade, context_dim=D, **rule, forced_rounds="auto")
    pairs = cascade.pairs()
    v = np.zeros((len(pairs), D, D))
    early = 0
    for t in range(n):
        stop = policy.decide(contexts[t]).stop
        early += stop < k - 1
        revealed = {p: differ[t, m] for m, p in enumerate(pairs) if p[1] <= stop}
        policy.observe_disagreements(contexts[t], stop, revealed)
        phi = contexts[t] / np.sqrt(D)
        for m, (_, j) in enumerate(pairs):
            v[m] += (j <= stop) * np.outer(phi, phi)
        if np.linalg.eigvalsh(v)[:, 0].min() < least:
            continue
        for m, (i, j) in enumerate(pairs):
            off = policy.theta(i, j) - truth[m]
            if np.sqrt(off @ v[m] @ off) > policy.radius(0, 1):
                return False, early
    return True, early


@pytest.mark.parametrize(
    ("runs", "n", "k", "least"),
    [
        (150, 80, 2, 1.0),
        (40, 80, 3, 2.0),
        pytest.param(400, 1000, 2, 1.0, marks=pytest.mark.slow),
        pytest.param(400, 1000, 3, 2.0, marks=pytest.mark.slow),
    ],
)
def test_the_ellipsoid_covers_theta_in_all_rounds_of_most_runs(
    runs: int, n: int, k: int, least: float
) -> None:
    """A run leaves an ellipsoid with probability at most δ, so the number of such runs is at most
    binomial (runs, δ): with new seeds it exceeds ``allowed`` with probability 0.001 or less.
    """
    allowed = binom.isf(1e-3, runs, DELTA)  # 17 of 150; 6 are observed, 24 with radius/3
    played = [stays_inside(seed, n, k, least) for seed in range(runs)]
    assert sum(not inside for inside, _ in played) <= allowed
    assert sum(early for _, early in played) > runs / 2  # the runs were adaptive
