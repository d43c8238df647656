"""Dominance: when disagreement alone identifies the best arm, and by what margin.

Throughout, ``disagreement`` is an (n, K, K) array of p_ij(x), one table for each context, read
above its diagonal only; ``optimal`` holds i*(x), as from `optimal_arms`.
A margin within rounding of zero is a tie and counts as zero, as it does for the optimal arm.
"""

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.research.theory.regret import TIE


def dominance_margins(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return ξ(x) for every context: the tightest comparison of the best arm with a deeper one.

        ξ(x) = min_{j > i*} (C_j − C_i* − p_{i*j}(x))        (the paper, equation for ξ(x))

    Above zero the context satisfies weak dominance (WD). Infinite where i* is the last arm.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3])
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.25], [0, 0]], [[0, 0.25], [0, 0]]]
    >>> dominance_margins(cascade, p, optimal=[0, 0, 1]).round(3).tolist()
    [0.15, -0.05, inf]
    """
    return _spare_after_optimal(cascade, disagreement, optimal).min(axis=1)


def arm_margins(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return ξ_h for h = 1 … K−1: the least margin by which arm h loses to a shallower best arm.

        ξ_h = min over contexts with i* < h of (C_h − C_i* − p_{i*h}(x))     (the paper, Theorem 2)

    The regret bounds consist of these. Infinite for an arm that is never deeper than the best.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> p = [[[0, 0.05, 0.5], [0, 0, 0.5], [0, 0, 0]], [[0, 0.9, 0.9], [0, 0, 0.2], [0, 0, 0]]]
    >>> arm_margins(cascade, p, optimal=[0, 1]).round(3).tolist()
    [0.15, 0.3]
    """
    spare = _spare_after_optimal(cascade, disagreement, optimal)
    if not len(spare):
        raise InvalidParameterError("a margin over contexts needs at least one context")
    return spare.min(axis=0)[1:]


def dominance_margin(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> float:
    """Return ξ, the least ξ(x) over the contexts given; above zero they satisfy CWD.

    The paper takes the infimum over all contexts; over a sample it can only come out larger.
    """
    return float(arm_margins(cascade, disagreement, optimal).min())


def first_candidates(cascade: Cascade, disagreement: ArrayLike) -> Ints:
    """Return for every context the first arm that every deeper arm costs too much to overrule.

        min B,   B = {i : C_j − C_i > p_ij(x) for all j > i} ∪ {K}        (the paper, Lemma 2)

    It is the optimal arm wherever weak dominance holds, elsewhere too deep, never too shallow.
    `can_be_optimal` says where weak dominance can hold.
    No error rate is needed: this is what the disagreements alone can show.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> first_candidates(cascade, [[[0, 0.4, 0.5], [0, 0, 0.2], [0, 0, 0]]]).tolist()
    [1]
    """
    won = _spare(cascade, disagreement) > 0
    passes = np.logical_and.reduce(won | np.tri(cascade.n_arms, dtype=np.bool_), axis=2)
    return np.argmax(passes, axis=1).astype(np.int64)


def can_be_optimal(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Bools:
    """Return for every context whether some labels make its arm i* better than all before it.

        C_i* − C_l ≤ p_{l i*}(x) for all l < i*        (the paper, below its Lemma 1)

    If C_i* − C_l is larger for some l, arm l beats i* whatever the labels, as γ_l − γ_i* is at most
    p_{l i*}. Otherwise i* beats them where the label is always its own answer, so that
    γ_l = p_{l i*} and γ_i* = 0. With i* from `first_candidates`: where this holds, some labels make
    i* the optimal arm with weak dominance; where it does not, weak dominance holds under none.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> p = [[[0, 0.2, 0.5], [0, 0, 0.7], [0, 0, 0]], [[0, 0.3, 0.8], [0, 0, 0.6], [0, 0, 0]]]
    >>> best = first_candidates(cascade, p)
    >>> best.tolist(), can_be_optimal(cascade, p, best).tolist()
    ([2, 2], [False, True])
    """
    spare = _spare(cascade, disagreement)
    best = _arms_of(cascade, optimal, len(spare))
    before = np.arange(cascade.n_arms) < best[:, None]
    lost = before & (spare[np.arange(len(best)), :, best] > 0)
    return np.logical_not(lost.any(axis=1))


def _spare(cascade: Cascade, disagreement: ArrayLike) -> Floats:
    """Return C_j − C_i − p_ij of every context and pair i < j, with ties exactly zero."""
    tables = np.asarray(disagreement, dtype=np.float64)
    k = cascade.n_arms
    if tables.ndim != 3 or tables.shape[1:] != (k, k):
        raise InvalidParameterError(
            f"disagreement must be of shape (n, {k}, {k}), a table for each context, not "
            f"{tables.shape}"
        )
    tables = np.triu(tables, 1)
    if not ((tables >= -TIE) & (tables <= 1 + TIE)).all():  # a sum of products may round past 1
        raise InvalidParameterError("disagreement must hold probabilities, between 0 and 1")
    spare = cascade.gaps - tables
    spare[np.abs(spare) <= TIE] = 0.0
    return spare


def _spare_after_optimal(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return (n, K): C_j − C_i* − p_{i*j} where j > i*, infinity elsewhere."""
    spare = _spare(cascade, disagreement)
    best = _arms_of(cascade, optimal, len(spare))
    deeper = np.arange(cascade.n_arms) > best[:, None]
    return np.where(deeper, spare[np.arange(len(best)), best], np.inf)


def _arms_of(cascade: Cascade, optimal: ArrayLike, contexts: int) -> Ints:
    best = np.asarray(optimal)
    whole = best.dtype.kind in "iu" or not best.size
    if best.shape != (contexts,) or not whole or not np.isin(best, range(cascade.n_arms)).all():
        raise InvalidParameterError(
            f"optimal must name one arm, 0 to {cascade.n_arms - 1}, for each of the "
            f"{contexts} contexts"
        )
    return best.astype(np.int64)
