"""With a half-life, decisions equal those of a weighted fit in every round.

The referee solves Σ_s γ^(t−1−s)·ℓ_s(θ) + ridge/2·‖θ‖² to convergence over all rounds before every
comparison.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.reference import radius
from tests.oracles.solve_every_round import mu, normals, pairs, weighted_mle

Array = NDArray[np.float64]
TIE = 1e-7  # possible effect of rows older than 32 half-lives


@dataclass
class WeightedReferee:
    """A rule over weighted rounds."""

    phi: Array
    outputs: NDArray[np.int64]
    cumulative: Array
    half_life: float
    kind: str
    ridge: float
    forced: int = 5
    z: float = 0.5
    lam: float = 0.0
    noise: Array | None = None

    def play(self) -> tuple[list[int], float]:
        n, k = self.outputs.shape
        gamma = 2 ** (-1 / self.half_life)
        observed: dict[tuple[int, int], list[int]] = {p: [] for p in pairs(k)}
        thetas = {p: np.zeros(self.phi.shape[1]) for p in observed}
        stops: list[int] = []
        closest = math.inf

        def solved(t: int, pair: tuple[int, int]) -> tuple[Array, Array, Array]:
            rows = observed[pair]
            x, w = self.phi[rows], gamma ** (t - 1 - np.array(rows, dtype=float))
            d = (self.outputs[rows, pair[0]] != self.outputs[rows, pair[1]]).astype(float)
            thetas[pair] = weighted_mle(x, d, w, self.ridge, thetas[pair])
            return x, w, thetas[pair]

        def upper(t: int, i: int, j: int) -> float:
            phi = self.phi[t]
            effective = (1 - gamma**t) / (1 - gamma)
            first = (i, k - 1) if self.kind == "anchor" else (i, j)
            x, w, theta = solved(t, first)
            if self.kind in ("pd", "ridge"):
                v = (x.T * w) @ x + max(self.lam, 1e-18) * np.eye(len(phi))
                count = w.sum() if self.kind == "ridge" else effective
                rule = {"delta": 0.05, "sigma": 0.1, "kappa": 0.25}
                alpha = radius(count, len(phi), k, **rule, lam=self.lam, S=1.0 if self.lam else 0.0)
                return float(mu(phi @ theta + alpha * math.sqrt(phi @ np.linalg.solve(v, phi))))
            logits = x @ theta
            h = (x.T * (w * mu(logits) * mu(-logits))) @ x + self.ridge * np.eye(len(phi))
            z = self.z * (1 if self.kind == "anchor" else 1 + 4 / (1 + effective / 20))
            if self.noise is not None:
                z *= self.noise[t, pairs(k).index((i, j))]
            value = float(mu(phi @ theta + z * math.sqrt(phi @ np.linalg.solve(h, phi))))
            if self.kind == "anchor" and j < k - 1:
                value -= float(mu(phi @ solved(t, (j, k - 1))[2]))
            return value

        for t in range(n):
            stop = k - 1
            for i in range(k - 1) if t >= self.forced else ():
                gaps = [(self.cumulative[j] - self.cumulative[i], j) for j in range(i + 1, k)]
                margins = [gap - upper(t, i, j) for gap, j in gaps]
                closest = min(closest, *map(abs, margins))
                if min(margins) > 0:
                    stop = i
                    break
            stops.append(stop)
            for (_, j), rounds in observed.items():
                if j <= stop:
                    rounds.append(t)
        return stops, closest


def world(k: int, d: int, n: int, seed: int, levels: int | None) -> tuple[Array, NDArray[np.int64]]:
    """Contexts, optionally with few levels so that many repeat, and arms that change halfway."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, d - 1))
    if levels is not None:
        x = np.round(x * levels) / levels
    chance = 0.05 + 0.35 * mu(3 * x[:, :1] * np.where(np.arange(n) < n // 2, 1, -1)[:, None])
    noisy = random.random((n, k)) < chance / (1 + np.arange(k))
    return x, noisy.astype(np.int64)


DIRECT = {"transitive": False}
CASES: dict[str, tuple[Any, str, dict[str, Any], int, int, float, int | None]] = {
    "pd": (sw.USSPD, "pd", {"forced_rounds": 20}, 3, 3, 50, None),
    "pd, repeated contexts": (sw.USSPD, "pd", {"forced_rounds": 20}, 2, 2, 200, 2),
    "pd, twenty features": (sw.USSPD, "pd", {"forced_rounds": 60}, 2, 20, 300, None),
    "pd, five arms": (sw.USSPD, "pd", {"forced_rounds": 10}, 5, 4, 5000, None),
    "ridge": (sw.USSPDRidge, "ridge", {"lam": 0.5, "forced_rounds": 5}, 3, 3, 80, None),
    "laplace": (sw.USSLaplace, "laplace", {**DIRECT, "ridge": 0.05}, 3, 4, 60, None),
    "laplace, few levels": (
        sw.USSLaplace,
        "laplace",
        {"transitive": False, "ridge": 0.1},
        4,
        3,
        1000,
        1,
    ),
    "anchor": (sw.USSAnchor, "anchor", {"explore": 0, "ridge": 0.05}, 3, 3, 100, None),
    "thompson": (sw.Thompson, "thompson", {"ridge": 0.05, "seed": 3}, 3, 3, 100, None),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions_equal_those_of_a_weighted_fit(name: str) -> None:
    policy_class, kind, settings, k, d, half_life, levels = CASES[name]
    n = 300
    x, outputs = world(k, d, n, 5, levels)
    cascade = sw.Cascade([0.02, *[0.3 if kind == "pd" else 0.12] * (k - 1)])
    policy = policy_class(cascade, sw.Polynomial(1), d - 1, half_life=half_life, **settings)
    phi = np.column_stack([np.ones(n), x]) / math.sqrt(d)
    noise = None
    if kind == "thompson":
        noise = normals(settings["seed"], n, len(pairs(k)))
    referee = WeightedReferee(
        phi,
        outputs,
        cascade.cumulative,
        half_life,
        kind,
        settings.get("ridge", 1e-3),
        settings.get("forced_rounds", 5),
        z=0.25 if kind == "anchor" else 0.5,
        lam=settings.get("lam", 0.0),
        noise=noise,
    )
    stops, closest = referee.play()
    assert policy.run(x, outputs).tolist() == stops
    assert closest > TIE
    assert len(set(stops)) > 1


def test_corrections_of_drawn_answers_decay() -> None:
    line = sw.Polynomial(1, bound=1)
    cascade = sw.Cascade([0.1, 0.1, 0.1])
    policy = sw.USSLaplace(cascade, line, 1, reveals=[0, 1], half_life=50)

    def correction() -> Array:
        """The sums of pair (1, 2), as saved: 23 numbers follow."""
        return np.frombuffer(policy.state()["learner"].tobytes(), dtype=np.float64)[-25:-23]

    for z in np.linspace(-1, 1, 30):
        policy.observe([0.0, z], [0, 0, 1], rule_stop=1)
    before = correction()
    assert (before > 0).all()  # too few disagreements were predicted
    for _ in range(50):
        policy.observe([0.0], [0])
    np.testing.assert_allclose(correction(), before / 2, rtol=1e-12)
