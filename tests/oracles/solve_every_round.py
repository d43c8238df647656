"""The algorithms as the paper writes them, with numpy and no cleverness: the tests' referee.

Every estimate is solved to convergence in every round that compares it, every norm is a fresh
linear solve. Nothing here imports stopwise.

Features are ``{(i, j): array of shape (n, d_ij)}`` (`tabulate` makes them from functions),
disagreements ``{(i, j): array of n bools}``, costs the cumulative C_i.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pair = tuple[int, int]
Map = Callable[[Array], Array]
AUTO = "auto"


@dataclass(frozen=True)
class Played:
    """What a run did: the stops, and how close its closest comparison came to a tie, by round."""

    stops: NDArray[np.int64]
    closest: Array


def pairs(n_arms: int) -> list[Pair]:
    return [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]


def tabulate(contexts: Array, maps: Map | Mapping[Pair, Map], k: int) -> dict[Pair, Array]:
    """Apply one feature map, or one per pair, to every context."""
    if callable(maps):
        shared = np.array([maps(x) for x in contexts])
        return dict.fromkeys(pairs(k), shared)
    return {p: np.array([maps[p](x) for x in contexts]) for p in pairs(k)}


def disagreements(outputs: NDArray[np.int64]) -> dict[Pair, NDArray[np.bool_]]:
    return {(i, j): outputs[:, i] != outputs[:, j] for i, j in pairs(outputs.shape[1])}


def mu(z: Array | float) -> Array:
    e = np.exp(-np.abs(z))
    return np.where(np.asarray(z) >= 0, 1.0, e) / (1.0 + e)


def mu_slope(z: Array) -> Array:
    e = np.exp(-np.abs(z))
    return e / (1.0 + e) ** 2


def ridge_mle(x: Array, d: Array, ridge: float, start: Array | None = None) -> Array:
    """Solve Σ(d − μ(xᵀθ))x = ridge·θ by Newton with backtracking, to the last digits."""
    theta = np.zeros(x.shape[1]) if start is None else start

    def loss(at: Array) -> float:
        z = x @ at
        return float(np.sum(np.logaddexp(0.0, z) - d * z) + 0.5 * ridge * at @ at)

    for _ in range(500):
        z = x @ theta
        gradient = x.T @ (mu(z) - d) + ridge * theta
        hessian = (x.T * mu_slope(z)) @ x + ridge * np.eye(len(theta))
        step = -np.linalg.solve(hessian, gradient)
        size = 1.0
        # A step that moves no logit far needs no line search: it stays where Newton contracts.
        if np.abs(x @ step).max(initial=0.0) > 0.3:
            before, along = loss(theta), gradient @ step
            while size > 1e-10 and loss(theta + size * step) > before + 1e-4 * size * along:
                size /= 2
        theta = theta + size * step
        # Newton converges quadratically: after a step this small nothing but rounding is left.
        if np.abs(step).max() <= 1e-9 * max(1.0, np.abs(theta).max()):
            return theta
    raise ArithmeticError("Newton did not converge")


def norm(v: Array, phi: Array) -> float:
    """‖φ‖_{V⁻¹}; for a singular V the limit of (V + εI)⁻¹: infinite outside the span of V."""
    values, vectors = np.linalg.eigh(v)
    seen = values > 1e-12 * max(values[-1], 1e-300)
    if seen.all():
        return math.sqrt(phi @ np.linalg.solve(v, phi))
    along = vectors.T @ phi
    if np.abs(along[~seen]).max() > 1e-7:
        return math.inf
    return math.sqrt(np.sum(along[seen] ** 2 / values[seen]))


class Model:
    """One logistic regression and its Gram matrix over the rounds that revealed it."""

    def __init__(self, phi: Array, told: NDArray[np.bool_], ridge: float, lam: float) -> None:
        self.phi, self.told, self.ridge = phi, told, ridge
        self.v = lam * np.eye(phi.shape[1])
        self.n = 0
        self._x, self._d = np.empty(phi.shape), np.empty(len(phi))
        self._theta, self._solved = np.zeros(phi.shape[1]), -1

    def observe(self, t: int) -> None:
        self._x[self.n], self._d[self.n] = self.phi[t], self.told[t]
        self.n += 1
        self.v += np.outer(self.phi[t], self.phi[t])

    @property
    def theta(self) -> Array:
        if self._solved != self.n:
            x, d = self._x[: self.n], self._d[: self.n]
            self._theta = ridge_mle(x, d, self.ridge, self._theta)
            self._solved = self.n
        return self._theta

    def hessian(self) -> Array:
        x = self._x[: self.n]
        return (x.T * mu_slope(x @ self.theta)) @ x + self.ridge * np.eye(x.shape[1])


def alpha(n: int, d: int, k: int, delta: float, sigma: float, kappa: float) -> float:
    inside = d / 2 * math.log(1 + 2 * n / d) + math.log(k**2 / (2 * delta))
    return 2 * sigma / kappa * math.sqrt(inside)


def beta(
    n: int, d: int, k: int, delta: float, sigma: float, kappa: float, lam: float, s: float
) -> float:
    inside = d / 2 * math.log(1 + n / (d * lam)) + math.log(k**2 / (2 * delta))
    return 2 * sigma / kappa * math.sqrt(inside) + 2 * math.sqrt(lam) * s


def uss_pd(
    phi: Mapping[Pair, Array],
    differ: Mapping[Pair, NDArray[np.bool_]],
    cumulative: Array,
    *,
    delta: float,
    sigma: float,
    kappa: float,
    forced_rounds: int | str,
    ridge: float,
    lam: float = 0.0,
    S: float = 0.0,
) -> Played:
    """USS-PD, or USS-PD-λI if lam > 0."""
    k = len(cumulative)
    models = {p: Model(phi[p], differ[p], ridge, lam) for p in pairs(k)}
    d = max(f.shape[1] for f in phi.values())

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        if lam > 0:
            radius = beta(m.n, d, k, delta, sigma, kappa, lam, S)
        else:
            radius = alpha(t, d, k, delta, sigma, kappa)
        bonus = radius * norm(m.v, m.phi[t])
        return 1.0 if math.isinf(bonus) else float(mu(m.phi[t] @ m.theta + bonus))

    return _play(models, cumulative, forced_rounds, upper)


def thompson(
    phi: Mapping[Pair, Array],
    differ: Mapping[Pair, NDArray[np.bool_]],
    cumulative: Array,
    noise: Array,
    *,
    scale: float,
    forced_rounds: int | str,
    ridge: float,
) -> Played:
    """Thompson sampling, given its standard normals: (rounds, pairs)."""
    k = len(cumulative)
    models = {p: Model(phi[p], differ[p], ridge, 0.0) for p in pairs(k)}

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        x = m.phi[t]
        spread = scale * math.sqrt(x @ np.linalg.solve(m.hessian(), x))
        return float(mu(x @ m.theta + noise[t, pairs(k).index((i, j))] * spread))

    return _play(models, cumulative, forced_rounds, upper)


def supervised(
    phi: Array,
    wrong: NDArray[np.bool_],
    cumulative: Array,
    *,
    delta: float,
    sigma: float,
    kappa: float,
    forced_rounds: int | str,
    ridge: float,
) -> Played:
    """One model per arm of whether it errs; compares UCB(γ_i) − LCB(γ_j)."""
    k = len(cumulative)
    arms = {(i, i): Model(phi, wrong[:, i], ridge, 0.0) for i in range(k)}

    def bound(t: int, arm: int, sign: int) -> float:
        m = arms[arm, arm]
        bonus = alpha(t, phi.shape[1], k, delta, sigma, kappa) * norm(m.v, m.phi[t])
        return float(mu(m.phi[t] @ m.theta + sign * bonus))

    def upper(t: int, i: int, j: int) -> float:
        return bound(t, i, +1) - bound(t, j, -1)

    return _play(arms, cumulative, forced_rounds, upper)


def _play(
    models: Mapping[Pair, Model],
    cumulative: Array,
    forced_rounds: int | str,
    upper: Callable[[int, int, int], float],
) -> Played:
    """Stop at the first arm whose gap to every deeper arm exceeds the upper value, else the last.

    A model keyed (i, j) is revealed by stops ≥ j.
    """
    k = len(cumulative)
    n = len(next(iter(models.values())).phi)
    stops = np.full(n, k - 1, dtype=np.int64)
    closest = np.full(n, math.inf)
    exploring = True
    for t in range(n):
        if forced_rounds == AUTO:
            exploring = exploring and any(np.linalg.eigvalsh(m.v)[0] < 1 for m in models.values())
        else:
            exploring = t < int(forced_rounds)
        for i in [] if exploring else range(k - 1):
            margins = [cumulative[j] - cumulative[i] - upper(t, i, j) for j in range(i + 1, k)]
            closest[t] = min(closest[t], np.abs(margins).min())
            if min(margins) > 0:
                stops[t] = i
                break
        for (_, j), m in models.items():
            if j <= stops[t]:
                m.observe(t)
    return Played(stops, closest)
