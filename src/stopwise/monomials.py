"""The compiled kernel behind every built-in feature map.

Each map is a list of monomials of a shifted and scaled context, so one loop serves them all:

    z = (x − center)/scale, clamped to [−bound, bound];   φₖ = factor · Π z[index[k, :]]

Handing an array over to compiled code costs about 50 ns, so what describes the maps travels packed
in a single array of 64-bit words, the *plan*: floats, and whole numbers stored as such.

    plan  = [context_dim, block, block, …]
    block = [offset, n_monomials, degree, bound, limit, factor,
             center × context_dim, scale × context_dim, index × (n_monomials·degree)]

The first three words of a block, ``context_dim`` and ``index`` are whole numbers.

``offset`` is where the block's features begin in the row. A coordinate beyond ``limit`` is refused
(∞: never, clip instead); between ``bound`` and ``limit`` it is a rounding error and clamped.
Index ``context_dim`` stands for the constant 1, which pads monomials of lower degree.

This module imports numba, which takes most of a second: import it late.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    # numba has no type stubs. To the type checker a compiled function is the function it was.
    _F = TypeVar("_F", bound=Callable[..., Any])

    def njit(*signature: str, **options: object) -> Callable[[_F], _F]:
        """Compile (the stand-in for the type checker)."""
        ...
else:
    from numba import njit, types

Floats = NDArray[np.float64]

HEADER = 6
# Statuses of `fill_row`: OK; c + 1 when coordinate c is not finite; −1 − (block·context_dim + c)
# when it is beyond the limit of a block; WRONG_LENGTH, which no other status can reach.
OK = 0
WRONG_LENGTH = -(1 << 62)

if TYPE_CHECKING:
    _FILL = _ROWS = ""
else:
    _IN = types.Array(types.float64, 1, "A", readonly=True)  # any stride, writable or not
    _PLAN = _OUT = types.Array(types.float64, 1, "C")
    _FILL = types.int64(_IN, _PLAN, _OUT)
    _ROWS = types.UniTuple(types.int64, 2)(
        types.Array(types.float64, 2, "C", readonly=True),
        _PLAN,
        types.Array(types.float64, 2, "C"),
    )


def pack(context_dim: int, blocks: Sequence[Floats]) -> Floats:
    """Join blocks to a plan.

    Examples
    --------
    >>> pack(3, []).view(np.int64).tolist()
    [3]
    """
    return np.concatenate([_words([context_dim]), *blocks])


def block(
    offset: int,
    monomials: Sequence[Sequence[int]],
    *,
    bound: float,
    limit: float,
    factor: float,
    center: Sequence[float],
    scale: Sequence[float],
) -> Floats:
    """Pack one map into a block of a plan.

    Parameters
    ----------
    offset : int
        Where its features begin in the row.
    monomials : sequence of sequences of int
        The coordinates multiplied in each feature; an empty one is the constant.
    bound, limit, factor, center, scale
        As in the module's docstring.

    Returns
    -------
    ndarray
        The block.

    Examples
    --------
    >>> words = block(0, [(), (0,)], bound=1, limit=1, factor=0.5, center=[0.0], scale=[1.0])
    >>> words.view(np.int64)[:3].tolist(), words[3:8].tolist(), words.view(np.int64)[8:].tolist()
    ([0, 2, 1], [1.0, 1.0, 0.5, 0.0, 1.0], [1, 0])
    """
    one = len(center)
    degree = max(1, *(len(monomial) for monomial in monomials))
    index = [c for m in monomials for c in (*m, *[one] * (degree - len(m)))]
    numbers = np.array([bound, limit, factor, *center, *scale], dtype=np.float64)
    return np.concatenate([_words([offset, len(monomials), degree]), numbers, _words(index)])


def _words(numbers: Sequence[int]) -> Floats:
    return np.array(numbers, dtype=np.int64).view(np.float64)


@njit(error_model="numpy")
def _fill(x: Floats, plan: Floats, out: Floats, z: Floats) -> int:
    """Write the features of ``x`` into ``out``; ``z`` is scratch of ``context_dim + 1``."""
    d = z.size - 1
    for c in range(d):
        if not np.isfinite(x[c]):
            return c + 1
    z[d] = 1.0
    whole = plan.view(np.int64)
    # Unsigned, because a signed index is tested each time for counting from the end.
    index = plan.view(np.uint64)
    start = 1
    block = 0
    while start < plan.size:
        offset, n, degree = whole[start], whole[start + 1], whole[start + 2]
        bound, limit, factor = plan[start + 3], plan[start + 4], plan[start + 5]
        center = start + HEADER
        scale = center + d
        first = scale + d
        for c in range(d):
            value = (x[c] - plan[center + c]) / plan[scale + c]
            if abs(value) > bound:
                if abs(value) > limit:
                    return -1 - (block * d + c)
                value = np.copysign(bound, value)
            z[c] = value
        # Degrees one and two are nearly all there is in practice, and the general loop is slower.
        if degree == 1:
            for k in range(n):
                out[offset + k] = factor * z[index[first + k]]
        elif degree == 2:
            for k in range(n):
                m = first + 2 * k
                out[offset + k] = factor * z[index[m]] * z[index[m + 1]]
        else:
            for k in range(n):
                product = factor
                for m in range(first + degree * k, first + degree * (k + 1)):
                    product *= z[index[m]]
                out[offset + k] = product
        start = first + n * degree
        block += 1
    return OK


@njit(_FILL, cache=True, error_model="numpy")
def fill_row(x: Floats, plan: Floats, out: Floats) -> int:
    """Write the features of one context into ``out``.

    Parameters
    ----------
    x : ndarray of shape (context_dim,)
        The context; never written to.
    plan : ndarray
        See the module's docstring.
    out : ndarray of shape (width,)
        Receives the features. Undefined unless the status is ``OK``.

    Returns
    -------
    int
        The status.

    Examples
    --------
    >>> words = block(0, [(), (0,)], bound=1, limit=1, factor=0.5, center=[0.0], scale=[1.0])
    >>> out = np.empty(2)
    >>> fill_row(np.array([-1.0]), pack(1, [words]), out), out.tolist()
    (0, [0.5, -0.5])
    """
    d = int(plan.view(np.int64)[0])
    if x.shape != (d,):
        return WRONG_LENGTH
    return _fill(x, plan, out, np.empty(d + 1))


@njit(_ROWS, cache=True, nogil=True, error_model="numpy")
def fill_rows(X: Floats, plan: Floats, out: Floats) -> tuple[int, int]:
    """Write the features of many contexts, bit for bit those of `fill_row`.

    Parameters
    ----------
    X : ndarray of shape (n, context_dim)
        The contexts; never written to.
    plan : ndarray
        See the module's docstring.
    out : ndarray of shape (n, width)
        Receives the features.

    Returns
    -------
    row, status : int
        The first row that was refused and its status, or ``n`` and ``OK``.

    Examples
    --------
    >>> words = block(0, [(0,)], bound=1, limit=1, factor=1, center=[0.0], scale=[1.0])
    >>> fill_rows(np.array([[0.5], [2.0]]), pack(1, [words]), np.empty((2, 1)))
    (1, -1)
    """
    d = int(plan.view(np.int64)[0])
    z = np.empty(d + 1)
    for row in range(X.shape[0]):
        status = _fill(X[row], plan, out[row], z) if X.shape[1] == d else WRONG_LENGTH
        if status != OK:
            return row, status
    return X.shape[0], OK
