"""The public policies take the decisions of `stopwise.reference`, and that page is right by itself.

Both learn from the same rounds, so that a tie, which rounding may break either way, cannot make
the later rounds differ.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import stopwise as sw
from stopwise import reference

Array = NDArray[np.float64]
TIE = 1e-9


# ------------------------------------------------------------------------------------ instances


@dataclass(frozen=True)
class Instance:
    """Features of norm at most 1, and the outputs of arms that err less the deeper they are."""

    phi: Array  # (n, d')
    outputs: NDArray[np.int64]  # (n, K)
    costs: Array  # (K,)
    rule: dict[str, Any]

    @property
    def policy(self) -> sw.USSPD | sw.USSPDRidge:
        kind = sw.USSPDRidge if "lam" in self.rule else sw.USSPD
        return kind(sw.Cascade(self.costs), Unchanged(), self.phi.shape[1], **self.rule)

    @property
    def reference(self) -> reference.ReferenceUSSPD:
        return reference.ReferenceUSSPD(np.cumsum(self.costs), self.phi.shape[1], **self.rule)


class Unchanged:
    """Φ(x) = x: the contexts are features already."""

    def __call__(self, x: Array) -> Array:
        return x


def drawn(seed: int, n: int, *, ridge_version: bool) -> Instance:
    """Return an instance and settings at random, away from the defaults."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 6)), int(rng.integers(2, 9))
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, d - 1))])
    slope = rng.normal(size=d) * 2.5 / math.sqrt(d)
    slope[0] = 0.0
    logits = (x @ slope)[:, None] - 1.5 - 0.8 * np.arange(k)
    label = rng.integers(0, 2, n)
    outputs = label[:, None] ^ (rng.random((n, k)) < expit(logits))
    rule: dict[str, Any] = {
        "delta": float(rng.uniform(0.01, 0.5)),
        "sigma": float(rng.uniform(0.03, 0.3) / d),
        "kappa": float(rng.uniform(0.1, 0.25)),
        "ridge": float(10.0 ** rng.uniform(-6, 0)),
        "forced_rounds": int(rng.integers(2 * d, 5 * d)),
    }
    if ridge_version:
        rule["lam"] = float(10.0 ** rng.uniform(-2, 0.5))
        rule["S"] = float(rng.uniform(0, 0.3))
        rule["forced_rounds"] = int(rng.integers(0, 3))
    costs = rng.uniform(0.6, 1.4, k) * rng.uniform(0.5, 0.9) / k
    return Instance(x / math.sqrt(d), outputs, costs, rule)


def compare(instance: Instance, tie: float = TIE) -> NDArray[np.int64]:
    """Check every decision against the reference; return where the policy stopped."""
    policy, oracle = instance.policy, instance.reference
    stops, ties = [], 0
    for t, (phi, outputs) in enumerate(zip(instance.phi, instance.outputs, strict=True)):
        stop = policy.decide(phi).stop
        if oracle.closest(phi) > tie:
            assert stop == oracle.decide(phi), f"round {t}"
        else:
            ties += 1
        policy.observe(phi, outputs[: stop + 1].tolist())
        oracle.observe(phi, outputs[: stop + 1].tolist())
        stops.append(stop)
    assert ties <= len(stops) // 100
    for i, j in oracle.theta_hat:
        np.testing.assert_allclose(policy.theta(i, j), oracle.theta_hat[i, j], rtol=1e-6, atol=1e-9)
    return np.array(stops)


# ------------------------------------------------------------- the policies and the reference


@pytest.mark.parametrize("seed", [2, 6, 11])
@pytest.mark.parametrize("ridge_version", [False, True], ids=["uss-pd", "uss-pd-ridge"])
def test_every_decision_is_that_of_the_reference(seed: int, ridge_version: bool) -> None:
    instance = drawn(seed, 200, ridge_version=ridge_version)
    stops = np.bincount(compare(instance))
    assert np.count_nonzero(stops >= 5) >= 2, f"a test of one depth shows nothing: {stops}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 124))
def test_every_decision_of_a_long_run_is_that_of_the_reference(seed: int) -> None:
    compare(drawn(seed, 1000, ridge_version=seed % 2 == 1))


@pytest.mark.parametrize("levels", [3])
def test_contexts_that_leave_the_gram_matrix_singular(levels: int) -> None:
    """Two of four features are copies of each other, so that V has no inverse in any round."""
    rng = np.random.default_rng(levels)
    x = rng.choice(np.linspace(-1, 1, 3)[-levels:], (120, 2))
    phi = np.column_stack([np.ones(120), x[:, 0], x[:, 0], x[:, 1]]) / 2
    outputs = (rng.random((120, 2)) < 0.1).astype(np.int64)
    rule: dict[str, Any] = {"sigma": 0.05, "forced_rounds": 3, "ridge": 0.01}
    # A policy inverts V + εI with a small ε: equal in exact arithmetic as ε → 0, here to 1e-6.
    stops = compare(Instance(phi, outputs, np.array([0.1, 0.6]), rule), tie=1e-6)
    assert np.count_nonzero(stops == 0) > 20


@pytest.mark.parametrize(("gap", "stop"), [(0.99, 1), (1.0, 1), (1.01, 0)])
def test_before_any_observation_a_disagreement_may_be_certain(gap: float, stop: int) -> None:
    rule = {"forced_rounds": 0}
    instance = Instance(np.ones((1, 1)), np.zeros((1, 2), dtype=np.int64), np.array([0, gap]), rule)
    phi = instance.phi[0]
    assert instance.reference.disagreement_ucb(phi, 0, 1) == 1
    assert instance.policy.decide(phi).stop == instance.reference.decide(phi) == stop


# -------------------------------------------------------------------- the reference by itself


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_newton_converges_from_far_away_and_on_separable_data(rate: float) -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (60, 3)) / math.sqrt(3)
    differ = (rng.random(60) < rate).astype(float)
    for far in (0.0, 3.0, 300.0):
        theta_hat = reference.estimate(rows, differ, 1e-4, far * rng.normal(size=3))
        off = rows.T @ (differ - expit(rows @ theta_hat)) - 1e-4 * theta_hat
        assert np.abs(off).max() < 1e-12


def test_radius_by_hand() -> None:
    # d'/2·ln(1 + 2·9/2) = ln 10, K²/2δ = 100, 2σ/κ = 4: α = 4·√(3·ln 10)
    constants: dict[str, Any] = {"n_arms": 2, "delta": 0.02, "sigma": 0.5, "kappa": 0.25}
    alpha = reference.radius(9, 2, **constants, lam=0, S=0)
    assert alpha == pytest.approx(10.5130442, abs=1e-6)
    # d'/2·ln(1 + 72/(2·4)) = ln 10, and 2·√4·3 = 12 more
    beta = reference.radius(72, 2, **constants, lam=4, S=3)
    assert beta == pytest.approx(22.5130442, abs=1e-6)
