"""Reference implementation of USS-PD and USS-PD-λI in plain numpy, without the engine's shortcuts.

Line numbers refer to the paper's pseudocode. The engine makes the same decisions faster and shares
no code with this module; tests compare the two. Arms are numbered from 0. Instead of a context x,
functions take its features φ = Φ(x) with ‖φ‖ ≤ 1, which are the same for all pairs of arms.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sigmoid(z: Array) -> Array:
    """Return μ(z) = 1/(1 + e⁻ᶻ), without overflow.

    >>> sigmoid(np.array([-1e6, 0.0, np.inf]))
    array([0. , 0.5, 1. ])
    """
    return np.exp(-np.logaddexp(0.0, -z))


def estimate(rows: Array, disagreed: Array, ridge: float, start: Array) -> Array:
    """Solve Σ_s (d_s − μ(φ_sᵀθ̂))·φ_s = ridge·θ̂, the paper's equation in the limit ridge → 0.

    Uses a damped Newton method. If a step v changes no φ_sᵀθ by more than r, the damped step
    ln(1+r)/r·v decreases the loss from any start, because |μ''| ≤ μ' (Sun and Tran-Dinh, 2019).
    As r → 0, the damped step tends to the full step.

    >>> estimate(np.ones((4, 1)), np.array([1.0, 0, 0, 0]), 1e-9, np.zeros(1)).round(6)  # ln(1/3)
    array([-1.098612])
    """
    theta_hat = start
    for _ in range(1000):
        p = sigmoid(rows @ theta_hat)
        gradient = rows.T @ (disagreed - p) - ridge * theta_hat
        hessian = (rows.T * (p * (1 - p))) @ rows + ridge * np.eye(len(theta_hat))
        step = np.linalg.solve(hessian, gradient)
        r = np.abs(rows @ step).max(initial=1e-300)
        theta_hat = theta_hat + math.log1p(r) / r * step
        if np.abs(step).max() <= 1e-9 * max(1.0, np.abs(theta_hat).max()):
            return theta_hat  # convergence is quadratic, so the remaining error is rounding
    raise ArithmeticError("Newton's method did not converge")


def radius(
    n: float, d: int, n_arms: int, delta: float, sigma: float, kappa: float, lam: float, S: float
) -> float:
    """Return the radius of the confidence ellipsoid around θ̂: α, or β if λ > 0.

    n is the number of rounds for α, and the number of observations of the pair for β; d' is d.

        α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ))               (Lemma "Confidence Ellipsoid")
        β = (2σ/κ)·√(d'/2·ln(1 + n/(d'λ)) + ln(K²/2δ)) + 2√λ·S     (appendix, the lemma for λI)

    >>> round(radius(100, 2, 3, delta=0.05, sigma=0.1, kappa=0.25, lam=0.0, S=0.0), 4)
    2.4153
    """
    volume = d / 2 * math.log(1 + (n / (d * lam) if lam > 0 else 2 * n / d))
    union = math.log(n_arms**2 / (2 * delta))
    return 2 * sigma / kappa * math.sqrt(volume + union) + 2 * math.sqrt(lam) * S


def norm(phi: Array, rows: Array) -> float:
    """Return ‖φ‖_{V⁻¹} for V = RᵀR, where R consists of the rows; ∞ if φ is outside their span.

    Uses the singular values of R. The eigenvalues of V are their squares, and rounding would lose
    those below 1e-16 times the largest.

    >>> norm(np.array([1.0, 0.0]), np.array([[2.0, 0.0]])), norm(np.ones(2), np.array([[2.0, 0.0]]))
    (0.5, inf)
    """
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    seen = values > 1e-15 * values.max(initial=0.0)  # smaller ones are rounding errors
    along = directions[seen] @ phi
    outside = phi - along @ directions[seen]
    if np.abs(outside).max() > 1e-7:
        return math.inf
    return float(np.linalg.norm(along / values[seen]))


@dataclass
class ReferenceUSSPD:
    """USS-PD, or USS-PD-λI if ``lam`` > 0, with V̄ = λI + V and β in place of V and α.

    ``cumulative`` contains the C_i; the other parameters are as in `stopwise.USSPD` and
    `stopwise.USSPDRidge`.

    >>> policy = ReferenceUSSPD(np.array([0.1, 0.6]), n_features=1, forced_rounds=1)
    >>> policy.observe(np.ones(1), ["spam", "spam"])
    >>> policy.decide(np.ones(1)), round(policy.closest(np.ones(1)), 4)
    (0, 0.4734)
    """

    cumulative: Array
    n_features: int
    delta: float = 0.05
    sigma: float = 0.1
    kappa: float = 0.25
    forced_rounds: int | Literal["auto"] = 50
    ridge: float = 1e-3
    lam: float = 0.0
    S: float = 0.0
    transitive: bool = False

    def __post_init__(self) -> None:
        """Initialise the estimates without observations."""
        d, pairs = self.n_features, list(combinations(range(len(self.cumulative)), 2))
        self.rounds = 0
        self.rows = {pair: np.empty((0, d)) for pair in pairs}
        self.disagreed = {pair: np.empty(0) for pair in pairs}
        # R with RᵀR = V: initially √λ·I, then updated with every observation
        self.root = {pair: math.sqrt(self.lam) * np.eye(d) for pair in pairs}
        self.theta_hat = {pair: np.zeros(d) for pair in pairs}

    def decide(self, phi: Array) -> int:
        """Return I_t (lines 2–10).

        In forced rounds, this is the last arm; otherwise, the first arm i for which (i, j) `passes`
        for all j > i.
        """
        K = len(self.cumulative)
        if self.forced():
            return K - 1
        for i in range(K - 1):
            if all(self.passes(phi, i, j) for j in range(i + 1, K)):
                return i
        return K - 1

    def passes(self, phi: Array, i: int, j: int) -> bool:
        """Return whether C_j − C_i > p̃_ij or, if ``transitive``, some (i, k) and (k, j) pass."""
        if self.cumulative[j] - self.cumulative[i] > self.disagreement_ucb(phi, i, j):
            return True
        between = range(i + 1, j) if self.transitive else ()
        return any(self.passes(phi, i, k) and self.passes(phi, k, j) for k in between)

    def observe(self, phi: Array, outputs: Sequence[Hashable]) -> None:
        """Learn from the outputs of the arms up to I_t (lines 11 and 12)."""
        self.rounds += 1
        for i, j in combinations(range(len(outputs)), 2):
            rows = self.rows[i, j] = np.vstack((self.rows[i, j], phi))
            seen = self.disagreed[i, j] = np.append(self.disagreed[i, j], outputs[i] != outputs[j])
            self.root[i, j] = np.asarray(np.linalg.qr(np.vstack((self.root[i, j], phi)), mode="r"))
            self.theta_hat[i, j] = estimate(rows, seen, self.ridge, self.theta_hat[i, j])

    def disagreement_ucb(self, phi: Array, i: int, j: int) -> float:
        """Return p̃_ij = μ(φᵀθ̂_ij + α‖φ‖_{V⁻¹}), with the previous round's estimates (line 8)."""
        n = len(self.rows[i, j]) if self.lam > 0 else self.rounds
        shape = n, self.n_features, len(self.cumulative)
        alpha = radius(*shape, self.delta, self.sigma, self.kappa, self.lam, self.S)
        return float(sigmoid(phi @ self.theta_hat[i, j] + alpha * norm(phi, self.root[i, j])))

    def forced(self) -> bool:
        """Return whether the next round runs every arm, regardless of its context (line 2)."""
        if self.forced_rounds != "auto":
            return self.rounds < self.forced_rounds
        level = 3 * self.lam or 1.0  # the lemmas require λ_min(V) ≥ 1 and λ_min(V̄ − λI) ≥ 2λ
        least = min(np.linalg.svd(root, compute_uv=False)[-1] for root in self.root.values())
        return bool(least**2 < level * (1 - 1e-9))  # λ_min(V) = σ_min(R)²

    def closest(self, phi: Array) -> float:
        """Return a margin: while every p̃_ij changes by less, `decide` returns the same arm.

        This is the minimum of |min_{j>i} (C_j − C_i − p̃_ij)| over the arms i that `decide` tries
        or, if ``transitive``, the minimum of |C_j − C_i − p̃_ij| over all pairs. In forced rounds,
        and if there is only one arm, it is ∞.
        """
        C, K, p = self.cumulative, len(self.cumulative), self.disagreement_ucb
        tried = range(0 if self.forced() else min(self.decide(phi) + 1, K - 1))
        margins = [[C[j] - C[i] - p(phi, i, j) for j in range(i + 1, K)] for i in range(K - 1)]
        if self.transitive and tried:  # any comparison may matter
            return float(np.abs(np.concatenate(margins)).min())
        return float(np.abs([min(margins[i]) for i in tried]).min(initial=math.inf))
