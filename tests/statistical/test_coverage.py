"""The confidence ellipsoid holds as often as the paper promises; the estimate is calibrated.

Worlds are realizable: disagreements are drawn from μ(φᵀθ*) with ‖φ‖ ≤ 1, σ = ½ (which any
Bernoulli noise satisfies) and κ the least slope of Assumption 1, over ‖θ − θ*‖ ≤ 1, ‖φ‖ ≤ 1.

The lemma asks for λ_min(V) ≥ 1. Its proof also needs θ̂ in the ball of κ, which that does not give:
in the first rounds a plane may nearly separate the data and throw θ̂ far out. All the runs that
leave the ellipsoid here do so then: of 400, 13 with two arms and 21 with three; from λ_min(V) ≥ 2
on, one each.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, chi2

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
    """Play adaptively; say whether every ellipsoid held while λ_min(V) ≥ least, and early stops."""
    contexts, truth, differ = world(seed, n, k)
    kappa = float(expit(SIZE + 1) * expit(-SIZE - 1))
    cascade = Cascade([0.1] + [0.99] * (k - 1))  # gaps that even these wide bonuses can lose to
    policy = USSPD(
        cascade,
        context_dim=D,
        delta=DELTA,
        sigma=0.5,
        kappa=kappa,
        ridge=1e-6,
        forced_rounds="auto",
    )
    pairs = cascade.pairs()
    v = np.zeros((len(pairs), D, D))
    early = 0
    for t in range(n):
        stop = policy.decide(contexts[t]).stop
        early += stop < k - 1
        told = {p: differ[t, m] for m, p in enumerate(pairs) if p[1] <= stop}
        policy.observe_disagreements(contexts[t], stop, told)
        phi = contexts[t] / np.sqrt(D)
        for m, (_, j) in enumerate(pairs):
            v[m] += (j <= stop) * np.outer(phi, phi)
        if np.linalg.eigvalsh(v)[:, 0].min() < least:
            continue
        for m, (i, j) in enumerate(pairs):
            off = policy.theta(i, j) - truth[m]
            if np.sqrt(off @ v[m] @ off) > policy.radius:
                return False, early
    return True, early


def assert_covered(runs: int, n: int, k: int, *, least: float) -> None:
    played = [stays_inside(seed, n, k, least) for seed in range(runs)]
    outside = sum(not inside for inside, _ in played)
    assert outside <= DELTA * runs
    assert sum(early for _, early in played) > runs  # the runs were adaptive


def test_the_false_alarm_rate_of_the_coverage_tests_is_small() -> None:
    # The union over pairs of the lemma's 2δ/K², all of it used up: δ/2 for K = 2, 2δ/3 for K = 3.
    assert binom.sf(DELTA * 400, 400, DELTA / 2) < 2e-3
    assert binom.sf(DELTA * 400, 400, 2 * DELTA / 3) < 0.04


def test_the_ellipsoid_of_the_lemma_covers_the_truth_in_all_rounds_of_most_runs() -> None:
    assert_covered(400, 120, 2, least=1.0)


def test_with_three_arms_it_does_once_the_estimate_has_settled() -> None:
    assert_covered(100, 100, 3, least=2.0)


@pytest.mark.full
@pytest.mark.parametrize(("k", "least"), [(2, 1.0), (3, 2.0)])
def test_the_ellipsoid_covers_the_truth_in_long_runs(k: int, least: float) -> None:
    assert_covered(400, 1000, k, least=least)


def wald(seed: int, n: int) -> float:
    """Return ‖θ̂ − θ*‖² in the metric of the Fisher information, which is χ² with D degrees."""
    contexts, truth, differ = world(seed, n, 2)
    policy = USSPD(Cascade([0.1, 0.1]), context_dim=D, ridge=1e-6, forced_rounds=n)
    policy.run_disagreements(contexts, differ)
    phi = contexts / np.sqrt(D)
    z = phi @ truth[0]
    information = (phi.T * (expit(z) * expit(-z))) @ phi
    off = policy.theta(0, 1) - truth[0]
    return float(off @ information @ off)


def test_estimates_scatter_as_maximum_likelihood_must() -> None:
    """False alarms: 1 in 10,000 were the χ² exact; at n = 2000 it is to a few thousandths."""
    statistics = np.array([wald(seed, 2000) for seed in range(400)])
    for level in (0.5, 0.95):
        inside = int(np.sum(statistics <= chi2.ppf(level, D)))
        low, high = binom.interval(1 - 1e-4, 400, level)
        assert low <= inside <= high
