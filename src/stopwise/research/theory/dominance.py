"""Weak dominance: the conditions under which disagreement identifies the best arm.

Throughout this module, ``disagreement`` is an (n, K, K) array that contains one table of p_ij(x)
per context; only the upper triangles are used. ``optimal`` contains the best arm i*(x) of each
context, as returned by `optimal_arms`. Margins that differ from zero only by rounding count as
zero, as in `optimal_arms`.
"""

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import short_repr
from stopwise.errors import InvalidParameterError
from stopwise.research.theory.regret import TIE


def dominance_margins(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return ξ(x) for every context, the best arm's minimum margin over deeper arms.

        ξ(x) = min_{j > i*} (C_j − C_i* − p_{i*j}(x))        (the paper, equation for ξ(x))

    A context satisfies weak dominance (WD) if ξ(x) > 0. If i* is the last arm, ξ(x) is infinite.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3])
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.25], [0, 0]], [[0, 0.25], [0, 0]]]
    >>> dominance_margins(cascade, p, optimal=[0, 0, 1]).round(3).tolist()
    [0.15, -0.05, inf]
    """
    return _margins_of_optimal(cascade, disagreement, optimal).min(axis=1)


def arm_margins(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return ξ_h for every arm h but the first: the minimum margin over h of a shallower best arm.

        ξ_h = min over contexts with i* < h of (C_h − C_i* − p_{i*h}(x))     (the paper, Theorem 2)

    The regret bounds depend on ξ_h. It is infinite if arm h is never deeper than the best arm.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> p = [[[0, 0.05, 0.5], [0, 0, 0.5], [0, 0, 0]], [[0, 0.9, 0.9], [0, 0, 0.2], [0, 0, 0]]]
    >>> arm_margins(cascade, p, optimal=[0, 1]).round(3).tolist()
    [0.15, 0.3]
    """
    margins = _margins_of_optimal(cascade, disagreement, optimal)
    if not len(margins):
        raise InvalidParameterError("disagreement must have at least one context, got none")
    return margins.min(axis=0)[1:]


def dominance_margin(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> float:
    """Return ξ, the minimum of ξ(x) over these contexts.

    If ξ is positive, these contexts satisfy contextual weak dominance (CWD). The paper takes the
    infimum over all possible contexts, which is at most the minimum over a sample.
    """
    return float(arm_margins(cascade, disagreement, optimal).min())


def first_candidates(cascade: Cascade, disagreement: ArrayLike) -> Ints:
    """Return the first arm of the candidate set B for every context.

        min B,   B = {i : C_j − C_i > p_ij(x) for all j > i} ∪ {K}        (the paper, Lemma 2)

    K is the last arm. Under weak dominance, min B is the optimal arm; otherwise it may be too deep,
    but never too shallow. It depends only on disagreement, not on error rates. `can_be_optimal`
    returns in which contexts weak dominance can hold.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> first_candidates(cascade, [[[0, 0.4, 0.5], [0, 0, 0.2], [0, 0, 0]]]).tolist()
    [1]
    """
    dominates = _margins(cascade, disagreement) > 0
    passes = np.logical_and.reduce(dominates | np.tri(cascade.n_arms, dtype=np.bool_), axis=2)
    return np.argmax(passes, axis=1).astype(np.int64)


def can_be_optimal(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Bools:
    """Return for every context whether arm i* can be at least as good as every shallower arm.

        C_i* − C_l ≤ p_{l i*}(x) for all l < i*        (the paper, below its Lemma 1)

    If the condition fails for an arm l, that arm beats i* for any labels, as γ_l − γ_i* ≤ p_{l i*}.
    If it holds for all l, no shallower arm beats i* when the label is the answer of i*, because
    then γ_i* = 0 and γ_l = p_{l i*}.

    Suppose that i* comes from `first_candidates`. Where the condition holds, some labels make i*
    optimal with weak dominance; elsewhere, no labels satisfy weak dominance.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> p = [[[0, 0.2, 0.5], [0, 0, 0.7], [0, 0, 0]], [[0, 0.3, 0.8], [0, 0, 0.6], [0, 0, 0]]]
    >>> best = first_candidates(cascade, p)
    >>> best.tolist(), can_be_optimal(cascade, p, best).tolist()
    ([2, 2], [False, True])
    """
    margins = _margins(cascade, disagreement)
    best = _checked_arms(cascade, optimal, len(margins))
    shallower = np.arange(cascade.n_arms) < best[:, None]
    beaten = shallower & (margins[np.arange(len(best)), :, best] > 0)
    return np.logical_not(beaten.any(axis=1))


def _margins(cascade: Cascade, disagreement: ArrayLike) -> Floats:
    """Return C_j − C_i − p_ij for every context and pair i < j, with ties exactly zero."""
    tables = np.asarray(disagreement, dtype=np.float64)
    k = cascade.n_arms
    if tables.ndim != 3 or tables.shape[1:] != (k, k):
        raise InvalidParameterError(
            f"disagreement must have shape (n, {k}, {k}), one table per context, got shape "
            f"{tables.shape}"
        )
    tables = np.triu(tables, 1)
    if not ((tables >= -TIE) & (tables <= 1 + TIE)).all():  # by rounding, p may exceed 1
        raise InvalidParameterError(
            f"disagreement must contain probabilities in [0, 1], got values from "
            f"{tables.min():g} to {tables.max():g}"
        )
    margins = cascade.gaps - tables
    margins[np.abs(margins) <= TIE] = 0.0
    return margins


def _margins_of_optimal(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return C_j − C_i* − p_{i*j}, of shape (n, K); infinity where j ≤ i*."""
    margins = _margins(cascade, disagreement)
    best = _checked_arms(cascade, optimal, len(margins))
    deeper = np.arange(cascade.n_arms) > best[:, None]
    return np.where(deeper, margins[np.arange(len(best)), best], np.inf)


def _checked_arms(cascade: Cascade, optimal: ArrayLike, contexts: int) -> Ints:
    best = np.asarray(optimal)
    integral = best.dtype.kind in "iu" or not best.size
    if best.shape != (contexts,) or not integral or not np.isin(best, range(cascade.n_arms)).all():
        raise InvalidParameterError(
            f"optimal must have one arm index (0 to {cascade.n_arms - 1}) for each of the "
            f"{contexts} contexts, got {short_repr(optimal)}"
        )
    return best.astype(np.int64)
