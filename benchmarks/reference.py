"""USS-PD as in the paper: every round solves every regression over its entire history.

It shares no code with Stopwise, so agreement between the two is evidence of correctness. For a fair
comparison of speed it is compiled, warm-starts every solve, stores each arm's history in blocks
that fit the first-level cache, and lets the compiler vectorise the sums over a block.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import Workload

BLOCK = 128
"""Rows per block: 128 rows of 10 float64 are 10 kB."""

GRADIENT_TOLERANCE = 1e-11
"""Largest component of the gradient at the end of a solve. Heuristic: well above the rounding of a
sum over 10⁴ rows, so that solves converge (`ReferenceRun.unsettled`)."""

MAX_STEPS = 200
"""Far more Newton steps than any solve needs, in case rounding prevents convergence."""

_compiled = numba.njit(cache=True, error_model="numpy")

# Vectorising the long sums needs permission to reorder them; NaN and infinity keep their meaning.
_summing = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})


Array = NDArray[np.float64]


class ReferenceRun(NamedTuple):
    """Decisions of a run of the reference.

    Attributes
    ----------
    stops
        (T,) 0-based arm of each round's stop.
    margins
        (T,) the smallest |C_j − C_i − p̃_ij| that was decisive for the round; infinite in forced
        rounds. For an arm that is passed over, its most clearly failing pair counts. Another exact
        implementation can decide differently only if the margin is of the size of rounding.
    unsettled
        Number of solves that reached `MAX_STEPS` without meeting the tolerance; normally 0.
    """

    stops: NDArray[np.int64]
    margins: NDArray[np.float64]
    unsettled: int


def run(
    workload: Workload,
    *,
    delta: float = 0.05,
    sigma: float = 0.1,
    kappa: float = 0.25,
    forced_rounds: int = 50,
    ridge: float = 1e-3,
) -> ReferenceRun:
    """Run USS-PD over a workload with the features Φ(x) = x/√d."""
    stops, margins, unsettled = _run(
        workload.features,
        workload.outputs,
        workload.cumulative - workload.cumulative[:, None],
        delta,
        sigma,
        kappa,
        forced_rounds,
        ridge,
    )
    return ReferenceRun(stops, margins, unsettled)


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
) -> tuple[NDArray[np.int64], Array, int]:
    """Run every round; see `run`. ``gaps[i, j]`` is C_j − C_i."""
    n_rounds, d = features.shape
    n_arms = len(gaps)
    n_blocks = (n_rounds + BLOCK - 1) // BLOCK
    # Pair (i, j) is observed exactly if the stop is at j or later, for every i, so rows and V
    # depend on j alone.
    rows = np.zeros((n_arms, n_blocks, d, BLOCK))
    disagreed = np.zeros((n_arms, n_arms, n_blocks, BLOCK))
    counts = np.zeros(n_arms, np.int64)
    gram = np.zeros((n_arms, d, d))
    theta = np.zeros((n_arms, n_arms, d))
    norms = np.zeros(n_arms)
    stops = np.empty(n_rounds, np.int64)
    margins = np.full(n_rounds, np.inf)
    unsettled = 0

    for t in range(n_rounds):
        phi = features[t]
        stop = n_arms - 1
        if t >= forced_rounds:
            explored = 0.5 * d * np.log(1.0 + 2.0 * t / d)
            radius = 2.0 * sigma / kappa * np.sqrt(explored + np.log(n_arms**2 / (2.0 * delta)))
            for j in range(1, n_arms):
                norms[j] = _inverse_norm(gram[j], phi)
            stop, margins[t] = _decide(phi, theta, norms, radius, gaps)
        stops[t] = stop

        for j in range(1, stop + 1):
            block, slot = divmod(counts[j], BLOCK)
            counts[j] += 1
            for a in range(d):
                rows[j, block, a, slot] = phi[a]
                for b in range(a + 1):
                    gram[j, a, b] += phi[a] * phi[b]
            for i in range(j):
                disagreed[i, j, block, slot] = 1.0 if outputs[t, i] != outputs[t, j] else 0.0
                # No decision needs θ̂ before the last forced round, and the paper does not solve.
                if t + 1 < forced_rounds:
                    continue
                if not _solve(rows[j], disagreed[i, j], counts[j], ridge, theta[i, j]):
                    unsettled += 1
    return stops, margins, unsettled


@_compiled
def _decide(
    phi: Array, theta: Array, norms: Array, radius: float, gaps: Array
) -> tuple[int, float]:
    """Return the first i with C_j − C_i > p̃_ij for all j > i, and the margin of the decision."""
    n_arms = len(gaps)
    margin = np.inf
    for i in range(n_arms - 1):
        worst = -np.inf
        for j in range(i + 1, n_arms):
            score = radius * norms[j]
            for a in range(len(phi)):
                score += phi[a] * theta[i, j, a]
            worst = max(worst, 1.0 / (1.0 + np.exp(-score)) - gaps[i, j])
        margin = min(margin, abs(worst))
        if worst < 0.0:
            return i, margin
    return n_arms - 1, margin


@_compiled
def _solve(rows: Array, disagreed: Array, n: int, ridge: float, theta: Array) -> bool:
    """Move `theta` to the solution of Σ(d_s − μ(φ_sᵀθ))φ_s = ridge·θ; return whether it converged.

    Newton's method with the step ln(1+r)/r, where r bounds the change of any φ_sᵀθ. Because
    |μ''| ≤ μ', that step always decreases the loss (Sun and Tran-Dinh, 2019, ν = 2), so a line
    search is unnecessary; it tends to the full step, so convergence is quadratic.
    """
    d = len(theta)
    gradient = np.empty(d)
    hessian = np.empty((d, d))
    for _ in range(MAX_STEPS):
        _differentiate(rows, disagreed, n, ridge, theta, gradient, hessian)
        if np.max(np.abs(gradient)) <= GRADIENT_TOLERANCE:
            return True
        _factor(hessian)
        _forward(hessian, gradient)
        _backward(hessian, gradient)
        reach = 0.0  # ‖φ‖ ≤ 1, so |φᵀv| ≤ ‖v‖
        for a in range(d):
            reach += gradient[a] * gradient[a]
        reach = np.sqrt(reach)
        step = np.log1p(reach) / reach if reach > 1e-3 else 1.0
        for a in range(d):
            theta[a] -= step * gradient[a]
    return False


@_summing
def _differentiate(
    rows: Array,
    disagreed: Array,
    n: int,
    ridge: float,
    theta: Array,
    gradient: Array,
    hessian: Array,
) -> None:
    """Fill in the gradient and (lower triangle) Hessian of the ridge logistic loss at `theta`."""
    d = len(theta)
    score = np.empty(BLOCK)
    residual = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    weighted = np.empty(BLOCK)
    for a in range(d):
        gradient[a] = ridge * theta[a]
        hessian[a, : a + 1] = 0.0
        hessian[a, a] = ridge
    for block in range((n + BLOCK - 1) // BLOCK):
        size = min(BLOCK, n - block * BLOCK)
        score[:size] = 0.0
        for a in range(d):
            column = rows[block, a]
            for s in range(size):
                score[s] += theta[a] * column[s]
        for s in range(size):
            mean = 1.0 / (1.0 + np.exp(-score[s]))
            residual[s] = mean - disagreed[block, s]
            weight[s] = mean * (1.0 - mean)
        for a in range(d):
            column = rows[block, a]
            total = 0.0
            for s in range(size):
                total += residual[s] * column[s]
                weighted[s] = weight[s] * column[s]
            gradient[a] += total
            for b in range(a + 1):
                other = rows[block, b]
                total = 0.0
                for s in range(size):
                    total += weighted[s] * other[s]
                hessian[a, b] += total


@_compiled
def _inverse_norm(gram: Array, phi: Array) -> float:
    """Return ‖φ‖_{V⁻¹} from a new factorisation; infinite while V is singular."""
    lower = gram.copy()
    if not _factor(lower):
        return np.inf
    solved = phi.copy()
    _forward(lower, solved)
    total = 0.0
    for value in solved:
        total += value * value
    return float(np.sqrt(total))


@_summing
def _factor(matrix: Array) -> bool:
    """Overwrite the lower triangle with the Cholesky factor; return whether it is definite."""
    for a in range(len(matrix)):
        for b in range(a + 1):
            total = 0.0
            for k in range(b):
                total += matrix[a, k] * matrix[b, k]
            pivot = matrix[a, b] - total
            if a != b:
                matrix[a, b] = pivot / matrix[b, b]
            elif pivot <= 1e-14 * matrix[a, a]:
                return False
            else:
                matrix[a, a] = np.sqrt(pivot)
    return True


@_compiled
def _forward(lower: Array, vector: Array) -> None:
    """Overwrite `vector` with L⁻¹·`vector`."""
    for a in range(len(vector)):
        for b in range(a):
            vector[a] -= lower[a, b] * vector[b]
        vector[a] /= lower[a, a]


@_compiled
def _backward(lower: Array, vector: Array) -> None:
    """Overwrite `vector` with L⁻ᵀ·`vector`."""
    for a in range(len(vector) - 1, -1, -1):
        vector[a] /= lower[a, a]
        for b in range(a):
            vector[b] -= lower[a, b] * vector[a]
