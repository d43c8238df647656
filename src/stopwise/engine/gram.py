"""A growing positive matrix A = A₀ + Σ w·φφᵀ and its inverse, kept side by side.

Both matrices of the method are of this kind: the paper's V (w = 1) and the Hessian H of a
pair's logistic likelihood (w = μ'). A rank-one step on the inverse costs O(d²) but drifts
over a million of them, so the pair guards itself:

* every so many steps (``GUARD_EVERY``, ``GUARD_CLOSELY``) the residual max|A·A⁻¹ − I| is
  measured, and past ``DRIFT_LIMIT`` the inverse is computed afresh from A, which never drifts;
* a step whose leverage w·φᵀA⁻¹φ is large cancels almost everything the inverse knew in that
  direction; it is not taken, the inverse is computed afresh instead;
* a matrix that double precision cannot invert (directions never seen, collinear contexts) is
  inverted with the smallest ``floor``·I that can be. An unseen direction then has the norm
  1/√floor, huge but finite: optimism sends such a context deep, which is where evidence is.
  The floor goes back to zero as soon as A can be inverted without it.

Double precision limits what any stored inverse can do: max|A·A⁻¹ − I| is about 1e-16 times the
condition number. Up to 1e9 it stays below 1e-6; beyond, norms of contexts like those seen are
still right to several digits, and a floor steps in only where they would not be.

A pair is ``both[2, n, n]`` (the matrix, its inverse; only the leading d×d part is used) and
``state`` (floor, steps since the last guard, last residual, whether the inverse is in use,
rows added in all, the largest weight a row came with if above one, and two places where a
decision notes the norm and the bonus it needed).
"""

import math

from stopwise.engine.arrays import Floats
from stopwise.engine.compiled import compiled, inlined

MATRIX, INVERSE = 0, 1
FLOOR, STEPS, RESIDUAL, READY, COUNT, HEAVIEST, NORM, BONUS = 0, 1, 2, 3, 4, 5, 6, 7
N_STATE = 8

GUARD_EVERY = 64  # heuristic: keeps the O(d³) check well below the O(d²) steps it watches
GUARD_CLOSELY = 8  # … and where the last residual was not tiny, at the same order as these
TINY = 1e-11
FRAGILE = 1e-9  # a fresh inverse of V no better than this is past what rank-one steps can keep
DRIFT_LIMIT = 1e-9  # three digits inside the promise ‖V·V⁻¹ − I‖ < 1e-6
SOUND_LIMIT = 1e-3  # a fresh inverse within this still has the norms right to several digits
FLOOR_LIMIT = 1e-7  # what a floor, once needed, must achieve
LEVERAGE_LIMIT = 10.0  # beyond this a step cancels digits; it happens a few times per direction


@inlined
def dot(a: Floats, b: Floats, d: int) -> float:
    """Return Σ aₖbₖ over the first d entries, in four interleaved sums that pipeline."""
    s0 = s1 = s2 = s3 = 0.0
    whole = d - d % 4
    for k in range(0, whole, 4):
        s0 += a[k] * b[k]
        s1 += a[k + 1] * b[k + 1]
        s2 += a[k + 2] * b[k + 2]
        s3 += a[k + 3] * b[k + 3]
    for k in range(whole, d):
        s0 += a[k] * b[k]
    return (s0 + s1) + (s2 + s3)


@inlined
def multiply(a: Floats, x: Floats, d: int, out: Floats) -> None:
    """Write A·x for a symmetric A: a sum of rows, which vectorises without re-association."""
    for c in range(d):
        out[c] = 0.0
    for k in range(d):
        xk = x[k]
        for c in range(d):
            out[c] += xk * a[k, c]


@inlined
def add_outer(a: Floats, x: Floats, w: float, d: int) -> None:
    """Add w·xxᵀ to A in place."""
    for k in range(d):
        wk = w * x[k]
        for c in range(d):
            a[k, c] += wk * x[c]


@compiled
def cholesky(a: Floats, shift: float, d: int, lower: Floats) -> bool:
    """Factor A + shift·I = LLᵀ into ``lower``; return False if it is not positive definite."""
    for i in range(d):
        for j in range(i + 1):
            s = a[i, j] - dot(lower[i], lower[j], j)
            if i == j:
                s += shift
                if not s > 0.0 or s == math.inf:
                    return False
                lower[i, i] = math.sqrt(s)
            else:
                lower[i, j] = s / lower[j, j]
    return True


@compiled
def invert(a: Floats, shift: float, d: int, out: Floats, work: Floats) -> bool:
    """Write (A + shift·I)⁻¹ into ``out`` by Cholesky; return False if that is impossible."""
    if not cholesky(a, shift, d, work):
        return False
    # L⁻¹ row by row into the lower half of ``out`` …
    for i in range(d):
        for c in range(i + 1):
            out[i, c] = 0.0
        out[i, i] = 1.0
        for k in range(i):
            lik = work[i, k]
            for c in range(k + 1):
                out[i, c] -= lik * out[k, c]
        for c in range(i + 1):
            out[i, c] /= work[i, i]
    # … then A⁻¹ = L⁻ᵀL⁻¹ as a sum of outer products of the rows of L⁻¹.
    for i in range(d):
        for c in range(d):
            work[i, c] = 0.0
    for k in range(d):
        for i in range(k + 1):
            lki = out[k, i]
            for c in range(i + 1):
                work[i, c] += lki * out[k, c]
    for i in range(d):
        for c in range(i + 1):
            out[i, c] = work[i, c]
            out[c, i] = work[i, c]
    return True


@compiled
def residual(a: Floats, inverse: Floats, shift: float, d: int, line: Floats) -> float:
    """Return max|(A + shift·I)·A⁻¹ − I|, or +∞ if anything in it is not a number."""
    worst = 0.0
    for i in range(d):
        multiply(inverse, a[i], d, line)  # row i of A·A⁻¹, both being symmetric
        for c in range(d):
            off = line[c] + shift * inverse[i, c] - (1.0 if c == i else 0.0)
            if not abs(off) <= worst:
                worst = abs(off)
                if not worst < math.inf:
                    return math.inf
    return worst


@compiled
def refresh(both: Floats, state: Floats, d: int, work: Floats) -> None:
    """Compute the inverse from the matrix, with no floor if possible, else the smallest."""
    a = both[MATRIX]
    inverse = both[INVERSE]
    trace = 0.0
    for k in range(d):
        trace += a[k, k]
    state[STEPS] = 0.0
    state[FLOOR] = 0.0
    state[READY] = 0.0
    if not trace > 0.0:  # nothing seen at all: there is no inverse to speak of yet
        return
    floor = 0.0
    while state[READY] == 0.0:
        if invert(a, floor, d, inverse, work):
            state[RESIDUAL] = residual(a, inverse, floor, d, work[0])
            if state[RESIDUAL] <= (SOUND_LIMIT if floor == 0.0 else FLOOR_LIMIT):
                state[FLOOR] = floor
                state[READY] = 1.0
        floor = max(10.0 * floor, 1e-15 * trace)


@compiled
def refresh_regular(both: Floats, state: Floats, d: int, work: Floats) -> None:
    """Compute the inverse of a matrix whose ridge keeps it positive definite.

    The Hessian may be as ill-conditioned as n/ridge, and no floor may bend it: its residual is
    kept and enters the certificate instead (`stopwise.engine.logistic`). A floor is added only
    if rounding has cost the matrix its definiteness.
    """
    a = both[MATRIX]
    floor = 0.0
    while not invert(a, floor, d, both[INVERSE], work):
        floor = max(10.0 * floor, 1e-16 * a[0, 0], 1e-300)
    state[FLOOR] = floor
    state[STEPS] = 0.0
    state[RESIDUAL] = residual(a, both[INVERSE], 0.0, d, work[0])
    state[READY] = 1.0


@compiled
def add_row(
    both: Floats,
    state: Floats,
    x: Floats,
    w: float,
    d: int,
    regular: bool,
    inverse_x: Floats,
    work: Floats,
) -> float:
    """Add w·xxᵀ to the matrix and, where it is in use, to its inverse.

    Leaves A⁻¹x of *before* the step in ``inverse_x`` and returns xᵀA⁻¹x of before the step;
    −1 says that the inverse is not in use or was computed afresh.
    """
    state[COUNT] += 1.0
    if state[READY] == 0.0:
        add_outer(both[MATRIX], x, w, d)
        return -1.0
    matrix = both[MATRIX]
    inverse = both[INVERSE]
    for c in range(d):
        inverse_x[c] = 0.0
    for k in range(d):  # the matrix grows and the inverse is applied in one sweep
        xk = x[k]
        wk = w * xk
        for c in range(d):
            matrix[k, c] += wk * x[c]
            inverse_x[c] += xk * inverse[k, c]
    quadratic = dot(x, inverse_x, d)
    leverage = w * quadratic
    state[STEPS] += 1.0
    fragile = not regular and state[RESIDUAL] > FRAGILE
    fresh = fragile or not (0.0 <= leverage < LEVERAGE_LIMIT)
    if not fresh:
        add_outer(inverse, inverse_x, -w / (1.0 + leverage), d)
        # With a floor, A may have become invertible without it: look at every guard.
        often = GUARD_EVERY if state[RESIDUAL] <= TINY else GUARD_CLOSELY
        if state[STEPS] >= often + d:
            state[STEPS] = 0.0
            state[RESIDUAL] = residual(both[MATRIX], inverse, state[FLOOR], d, work[0])
            fresh = state[RESIDUAL] > DRIFT_LIMIT or state[FLOOR] > 0.0
    if fresh:
        if regular:
            refresh_regular(both, state, d, work)
        else:
            refresh(both, state, d, work)
        return -1.0
    return quadratic


@inlined
def norm(both: Floats, state: Floats, x: Floats, d: int, work: Floats) -> float:
    """Return ‖x‖ in the metric of the inverse, √(xᵀA⁻¹x); +∞ if nothing was ever seen.

    The inverse is computed here when it is first asked for: while exploration is forced, only
    the matrix grows.
    """
    if state[READY] == 0.0:
        refresh(both, state, d, work)
        if state[READY] == 0.0:
            return math.inf
    multiply(both[INVERSE], x, d, work[0])
    return math.sqrt(max(dot(x, work[0], d), 0.0))
