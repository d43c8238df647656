"""Optimal arms and the regret of stops."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade

TIE = 1e-12  # losses that differ by at most this are considered equal


def optimal_arms(cascade: Cascade, error_rates: ArrayLike) -> Ints:
    """Return i* = max argmin_i (γ_i(x) + C_i) for every row of error rates.

    In a tie, the deepest arm is optimal, as in the paper ("risk-averse").

    Examples
    --------
    >>> optimal_arms(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.2, 0.1], [0.3, 0.1]]).tolist()
    [1, 0, 1]
    """
    losses = np.asarray(error_rates, dtype=np.float64) + cascade.cumulative
    best = losses <= losses.min(axis=1, keepdims=True) + TIE
    return (best.shape[1] - 1 - np.argmax(best[:, ::-1], axis=1)).astype(np.int64)


def regret(cascade: Cascade, error_rates: ArrayLike, stops: ArrayLike) -> Floats:
    """Return the regret of every round: γ_I + C_I − (γ_i* + C_i*).

    Examples
    --------
    >>> regret(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.5, 0.1]], [0, 1]).round(3).tolist()
    [0.2, 0.0]
    """
    losses = np.asarray(error_rates, dtype=np.float64) + cascade.cumulative
    rounds = np.arange(len(losses))
    best = optimal_arms(cascade, error_rates)
    # for a tie, rounding may give a difference of about −1e-13
    return np.maximum(losses[rounds, np.asarray(stops)] - losses[rounds, best], 0.0)


def pseudo_regret(
    cascade: Cascade, disagreement: Floats, optimal: ArrayLike, stops: ArrayLike
) -> Floats:
    """Return ``|C_I − C_i*| + p_{i* I}`` of every round, an upper bound on its regret.

    It is used for environments without error rates (the paper, caption of the figure on the
    realizable setting). ``disagreement`` has shape (n, K, K); only the upper triangles are used.

    Examples
    --------
    >>> p = np.array([[[0.0, 0.3], [0.0, 0.0]]])
    >>> pseudo_regret(Cascade(costs=[0.1, 0.5]), p, [0], [1]).tolist()
    [0.8]
    """
    best, stop = np.asarray(optimal), np.asarray(stops)
    p = _disagreement_of(disagreement, best, stop)
    return np.abs(cascade.cumulative[stop] - cascade.cumulative[best]) + p


def signed_pseudo_regret(
    cascade: Cascade, disagreement: Floats, optimal: ArrayLike, stops: ArrayLike
) -> Floats:
    """Return ``C_I − C_i* + p_{i* I}`` of every round, an upper bound on its regret.

    The bound is at most that of `pseudo_regret`, because it credits the cost saved by stopping
    early. The paper's text on the realizable setting uses this bound. It equals the regret if
    the label is the answer of arm i*, and is not negative if i* can be optimal (see
    `can_be_optimal`).

    Examples
    --------
    >>> p = np.array([[[0.0, 0.3], [0.0, 0.0]]] * 2)
    >>> cascade = Cascade(costs=[0.1, 0.25])
    >>> signed_pseudo_regret(cascade, p, [0, 1], [1, 0]).round(3).tolist()
    [0.55, 0.05]
    """
    best, stop = np.asarray(optimal), np.asarray(stops)
    p = _disagreement_of(disagreement, best, stop)
    return cascade.cumulative[stop] - cascade.cumulative[best] + p


def _disagreement_of(disagreement: Floats, best: NDArray[Any], stop: NDArray[Any]) -> Floats:
    """Return the probability that the best arm and the stop disagree in each round."""
    low, high = np.minimum(best, stop), np.maximum(best, stop)
    return np.where(low == high, 0.0, disagreement[np.arange(len(stop)), low, high])
