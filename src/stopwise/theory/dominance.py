"""Dominance: when disagreement alone identifies the best arm, and by what margin.

Throughout, ``disagreement`` is an (n, K, K) array of p_ij(x), one table for each context, read
above its diagonal only; ``optimal`` holds i*(x), as from `stopwise.theory.regret.optimal_arms`.
A margin within 1e-12 of zero is a tie and counts as zero, as it does for the optimal arm.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# The same as in `optimal_arms`: a tie there must be a tie here, or Lemma 2 would break by rounding.
TIE = 1e-12


def dominance_margins(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return ξ(x) for every context: what the best arm's tightest comparison has to spare.

        ξ(x) = min_{j > i*} (C_j − C_i* − p_{i*j}(x))        (the paper, equation for ξ(x))

    Above zero the context satisfies weak dominance. Infinite where i* is the last arm: nothing
    deeper can tempt.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3])
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.25], [0, 0]], [[0, 0.25], [0, 0]]]
    >>> dominance_margins(cascade, p, optimal=[0, 0, 1]).round(3).tolist()
    [0.15, -0.05, inf]
    """
    spare = _spare_after_optimal(cascade, disagreement, optimal)
    return spare.min(axis=1)


def weakly_dominant(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Bools:
    """Tell for every context whether it satisfies weak dominance (WD).

        C_j − C_i* > p_{i*j}(x)   for all j > i*             (the paper, Definition of CWD)

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3])
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.2], [0, 0]]]
    >>> weakly_dominant(cascade, p, optimal=[0, 0]).tolist()
    [True, False]
    """
    return dominance_margins(cascade, disagreement, optimal) > 0


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
    _at_least_one(spare)
    return spare.min(axis=0)[1:]


def dominance_margin(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> float:
    """Return ξ, the least ξ(x) over the contexts given.

    The paper takes the infimum over all contexts; over a sample it can only come out larger.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3])
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.25], [0, 0]]]
    >>> round(dominance_margin(cascade, p, optimal=[0, 0]), 3)
    -0.05
    """
    margins = dominance_margins(cascade, disagreement, optimal)
    _at_least_one(margins)
    return float(margins.min())


def satisfies_cwd(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> bool:
    """Tell whether every context given is weakly dominant: contextual weak dominance (CWD).

    Examples
    --------
    >>> p = [[[0, 0.05], [0, 0]], [[0, 0.25], [0, 0]]]
    >>> satisfies_cwd(Cascade.from_cumulative([0.1, 0.3]), p, optimal=[0, 0])
    False
    >>> satisfies_cwd(Cascade.from_cumulative([0.1, 0.4]), p, optimal=[0, 0])
    True
    """
    return dominance_margin(cascade, disagreement, optimal) > 0


def candidate_arms(cascade: Cascade, disagreement: ArrayLike) -> Bools:
    """Return, for every context, which arms every deeper arm costs too much to overrule.

        B = {i : C_j − C_i > p_ij(x) for all j > i} ∪ {K}        (the paper, Lemma 2)

    No error rate is needed: this is what the disagreements alone can show.

    Returns
    -------
    ndarray of bool, shape (n, K)

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> candidate_arms(cascade, [[[0, 0.4, 0.5], [0, 0, 0.2], [0, 0, 0]]]).tolist()
    [[False, True, True]]
    """
    spare = _spare(cascade, _tables(cascade, disagreement))
    upper = np.triu(np.ones((cascade.n_arms, cascade.n_arms), dtype=np.bool_), 1)
    return np.logical_and.reduce(~upper | (spare > 0), axis=2)


def first_candidates(cascade: Cascade, disagreement: ArrayLike) -> Ints:
    """Return min B for every context: the optimal arm wherever weak dominance holds (Lemma 2).

    Where it fails this arm is too deep, never too shallow.

    Examples
    --------
    >>> cascade = Cascade.from_cumulative([0.1, 0.3, 0.9])
    >>> first_candidates(cascade, [[[0, 0.4, 0.5], [0, 0, 0.2], [0, 0, 0]]]).tolist()
    [1]
    """
    return np.argmax(candidate_arms(cascade, disagreement), axis=1).astype(np.int64)


def strongly_dominant(outputs: ArrayLike, labels: ArrayLike) -> bool:
    """Tell whether once an arm is right every deeper arm is right (CSD), in every row.

        Y^i = Y  ⟹  Y^j = Y  for all j > i            (the paper, Definition of CSD)

    If the rows are all that can happen, and answers are binary, strong dominance implies weak
    dominance: the disagreement of two arms is then exactly what the deeper one repairs. With
    three or more possible answers two wrong arms may disagree, and it need not.

    Parameters
    ----------
    outputs : array_like of shape (n, K)
        What every arm said, or each outcome that can happen.
    labels : array_like of shape (n,)
        The right answers.

    Examples
    --------
    >>> strongly_dominant([[0, 1, 1], [0, 0, 1], [1, 1, 1]], labels=[1, 1, 1])
    True
    >>> strongly_dominant([["cat", "dog"]], labels=["cat"])
    False
    """
    said, truth = _answers(outputs), _answers(labels)
    if said.ndim != 2 or truth.shape != said.shape[:1] or not said.size:
        raise InvalidParameterError(
            "strong dominance needs outputs of shape (n, K) and n labels, at least one; "
            f"these are of shape {said.shape} and {truth.shape}"
        )
    right = said == truth[:, None]
    # Being right is handed on from arm to arm, so neighbours are all there is to compare.
    return not bool((right[:, :-1] & ~right[:, 1:]).any())


def _spare(cascade: Cascade, tables: Floats) -> Floats:
    """Return C_j − C_i − p_ij of every context and pair, with ties made exactly zero."""
    spare = cascade.gaps - tables
    spare[np.abs(spare) <= TIE] = 0.0
    return spare


def _spare_after_optimal(cascade: Cascade, disagreement: ArrayLike, optimal: ArrayLike) -> Floats:
    """Return (n, K): C_j − C_i* − p_{i*j} where j > i*, infinity elsewhere."""
    tables = _tables(cascade, disagreement)
    best = np.asarray(optimal)
    arms = np.arange(cascade.n_arms)
    if (
        best.shape != tables.shape[:1]
        or (best.dtype.kind not in "iu" and best.size)
        or not np.isin(best, arms).all()
    ):
        raise InvalidParameterError(
            f"optimal must name one arm, 0 to {cascade.n_arms - 1}, for each of the "
            f"{len(tables)} contexts"
        )
    best = best.astype(np.int64)
    spare = _spare(cascade, tables)[np.arange(len(best)), best]
    return np.where(arms > best[:, None], spare, np.inf)


def _tables(cascade: Cascade, disagreement: ArrayLike) -> Floats:
    """Return disagreement as floats with a zero diagonal and lower triangle, or refuse it."""
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
    return tables


def _answers(values: ArrayLike) -> NDArray[Any]:
    """Return answers as an array, lists as objects: 1 and "1" must stay different."""
    given = isinstance(values, np.ndarray)
    return np.asarray(values, dtype=None if given else np.object_)


def _at_least_one(contexts: Floats) -> None:
    if not len(contexts):
        raise InvalidParameterError("a margin over contexts needs at least one context")
