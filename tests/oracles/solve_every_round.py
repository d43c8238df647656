"""The algorithms as the paper writes them, with numpy and no cleverness: the tests' referee.

Every estimate is solved to convergence in every round that compares it, every norm is a fresh
linear solve, by the functions of `stopwise.reference`, which shares no code with the engine.

Features are ``{(i, j): array of shape (n, d_ij)}`` (`tabulate` computes them by functions),
disagreements ``{(i, j): array of n bools}``, costs the cumulative C_i.
"""

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.reference import estimate, norm, radius, sigmoid

Array = NDArray[np.float64]
Pair = tuple[int, int]
Map = Callable[[Array], Array]
AUTO = "auto"


class Played(NamedTuple):
    """What a run did: the stops, and how close its closest comparison came to a tie, by round."""

    stops: NDArray[np.int64]
    closest: Array


def pairs(n_arms: int) -> list[Pair]:
    return list(combinations(range(n_arms), 2))


def tabulate(contexts: Array, maps: Map | Mapping[Pair, Map], k: int) -> dict[Pair, Array]:
    """Apply one feature map, or one per pair, to every context."""
    if callable(maps):
        return dict.fromkeys(pairs(k), np.array([maps(x) for x in contexts]))
    return {p: np.array([maps[p](x) for x in contexts]) for p in pairs(k)}


def disagreements(outputs: NDArray[np.int64]) -> dict[Pair, NDArray[np.bool_]]:
    return {(i, j): outputs[:, i] != outputs[:, j] for i, j in pairs(outputs.shape[1])}


def mu(z: Array | float) -> Array:
    return sigmoid(np.asarray(z, dtype=np.float64))


def ridge_mle(x: Array, d: Array, ridge: float) -> Array:
    return estimate(x, d, ridge, np.zeros(x.shape[1]))


def hessian(x: Array, theta: Array, ridge: float) -> Array:
    """∇²L(θ); μ' as μ(z)·μ(−z) keeps its digits where 1 − μ(z) would round to 0."""
    z = x @ theta
    return (x.T * (mu(z) * mu(-z))) @ x + ridge * np.eye(x.shape[1])


class Model:
    """One logistic regression and its Gram matrix over the rounds that revealed it."""

    def __init__(
        self, phi: Array, answers: NDArray[np.bool_], ridge: float, lam: float = 0.0
    ) -> None:
        self.phi, self.answers, self.ridge = phi, answers, ridge
        self.v = lam * np.eye(phi.shape[1])
        self.seen: list[int] = []
        self._theta, self._solved = np.zeros(phi.shape[1]), -1

    def observe(self, t: int) -> None:
        self.seen.append(t)
        self.v += np.outer(self.phi[t], self.phi[t])

    @property
    def theta(self) -> Array:
        if self._solved != len(self.seen):
            x, d = self.phi[self.seen], self.answers[self.seen].astype(float)
            self._theta = estimate(x, d, self.ridge, self._theta)
            self._solved = len(self.seen)
        return self._theta


def uss_pd(
    phi: Mapping[Pair, Array],
    differ: Mapping[Pair, NDArray[np.bool_]],
    cumulative: Array,
    *,
    forced_rounds: int | str,
    ridge: float,
    lam: float = 0.0,
    S: float = 0.0,
    **rule: Any,
) -> Played:
    """USS-PD, or USS-PD-λI if lam > 0."""
    k = len(cumulative)
    models = {p: Model(phi[p], differ[p], ridge, lam) for p in pairs(k)}
    d = max(f.shape[1] for f in phi.values())

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        n = len(m.seen) if lam > 0 else t
        bonus = radius(n, d, k, **rule, lam=lam, S=S) * norm(m.phi[t], m.v)
        return float(mu(m.phi[t] @ m.theta + bonus))

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
    numbers = {p: k for k, p in enumerate(pairs(len(cumulative)))}
    models = {p: Model(phi[p], differ[p], ridge) for p in numbers}

    def upper(t: int, i: int, j: int) -> float:
        m = models[i, j]
        x = m.phi[t]
        spread = scale * math.sqrt(x @ np.linalg.solve(hessian(m.phi[m.seen], m.theta, ridge), x))
        return float(mu(x @ m.theta + noise[t, numbers[i, j]] * spread))

    return _play(models, cumulative, forced_rounds, upper)


def supervised(
    phi: Array,
    wrong: NDArray[np.bool_],
    cumulative: Array,
    *,
    forced_rounds: int | str,
    ridge: float,
    **rule: Any,
) -> Played:
    """One model per arm of whether it errs; compares UCB(γ_i) − LCB(γ_j)."""
    k = len(cumulative)
    arms = {(i, i): Model(phi, wrong[:, i], ridge) for i in range(k)}

    def bound(t: int, arm: int, sign: int) -> float:
        m = arms[arm, arm]
        bonus = radius(t, phi.shape[1], k, **rule, lam=0, S=0) * norm(m.phi[t], m.v)
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
