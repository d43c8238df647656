"""USS-PD in plain compiled loops, a direct translation of the pseudocode.

`benchmarks.reference` computes the same, vectorised by hand. The tables have both, to separate the
gain of not solving from that of solving efficiently.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import Workload

Array = NDArray[np.float64]
_compiled = numba.njit(cache=True, error_model="numpy")
TOLERANCE = 1e-11
MAX_STEPS = 200


def run(
    workload: Workload,
    *,
    delta: float = 0.05,
    sigma: float = 0.1,
    kappa: float = 0.25,
    forced_rounds: int = 50,
    ridge: float = 1e-3,
) -> NDArray[np.int64]:
    """Run a workload with the features Φ(x) = x/√d and return the stops."""
    gaps = workload.cumulative - workload.cumulative[:, None]
    return _run(
        workload.features, workload.outputs, gaps, delta, sigma, kappa, forced_rounds, ridge
    )


@_compiled
def _run(
    features: Array,
    outputs: NDArray[np.int64],
    gaps: Array,
    delta: float,
    sigma: float,
    kappa: float,
    forced_rounds: int,
    ridge: float,
) -> NDArray[np.int64]:
    n_rounds, d = features.shape
    n_arms = len(gaps)
    theta = np.zeros((n_arms, n_arms, d))
    gram = np.zeros((n_arms, d, d))
    stops = np.empty(n_rounds, np.int64)
    for t in range(n_rounds):
        phi = features[t]
        stop = n_arms - 1
        if t >= forced_rounds:
            volume = 0.5 * d * np.log(1.0 + 2.0 * t / d)
            radius = 2.0 * sigma / kappa * np.sqrt(volume + np.log(n_arms**2 / (2.0 * delta)))
            for i in range(n_arms - 1):
                wins = True
                for j in range(i + 1, n_arms):
                    score = radius * np.sqrt(_dot(phi, _solved(gram[j], phi)))
                    score += _dot(phi, theta[i, j])
                    wins = wins and gaps[i, j] > 1.0 / (1.0 + np.exp(-score))
                if wins:
                    stop = i
                    break
        stops[t] = stop
        for j in range(1, stop + 1):
            for a in range(d):
                for b in range(d):
                    gram[j, a, b] += phi[a] * phi[b]
            if t + 1 >= forced_rounds:
                for i in range(j):
                    _fit(features[: t + 1], outputs, stops, i, j, ridge, theta[i, j])
    return stops


@_compiled
def _fit(
    features: Array,
    outputs: NDArray[np.int64],
    stops: NDArray[np.int64],
    i: int,
    j: int,
    ridge: float,
    theta: Array,
) -> None:
    """Newton's method from the last θ, damped as in `benchmarks.reference`."""
    d = len(theta)
    for _ in range(MAX_STEPS):
        gradient = ridge * theta
        hessian = ridge * np.eye(d)
        for s in range(len(features)):
            if stops[s] < j:
                continue
            phi = features[s]
            mean = 1.0 / (1.0 + np.exp(-_dot(phi, theta)))
            error = mean - (1.0 if outputs[s, i] != outputs[s, j] else 0.0)
            for a in range(d):
                gradient[a] += error * phi[a]
                for b in range(a + 1):
                    hessian[a, b] += mean * (1.0 - mean) * phi[a] * phi[b]
        if np.max(np.abs(gradient)) <= TOLERANCE:
            return
        for a in range(d):
            for b in range(a):
                hessian[b, a] = hessian[a, b]
        step = _solved(hessian, gradient)
        size = np.sqrt(_dot(step, step))
        theta -= (np.log1p(size) / size if size > 1e-3 else 1.0) * step


@_compiled
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@_compiled
def _solved(matrix: Array, vector: Array) -> Array:
    """Return A⁻¹b by Cholesky."""
    d = len(vector)
    lower = np.zeros((d, d))
    for a in range(d):
        for b in range(a + 1):
            pivot = matrix[a, b] - _dot(lower[a, :b], lower[b, :b])
            lower[a, b] = np.sqrt(pivot) if a == b else pivot / lower[b, b]
    x = vector.copy()
    for a in range(d):
        x[a] = (x[a] - _dot(lower[a, :a], x[:a])) / lower[a, a]
    for a in range(d - 1, -1, -1):
        x[a] = (x[a] - _dot(lower[a + 1 :, a], x[a + 1 :])) / lower[a, a]
    return x
