"""Who is right, by agreement alone, where answers are free text: two wrong arms never agree.

Then two arms agree only when both are right, and with independent errors

    P(i and j agree) = a_i·a_j,     ln P = ln a_i + ln a_j,

which is linear in ln a_i: generalised least squares on the logarithms of the observed agreements,
with their covariance, gives the accuracies. Three arms are just enough.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Agreement below this is taken for this: its logarithm must exist.
LEAST = 1e-3


class RankOne(NamedTuple):
    """A fitted model: ``accuracy`` (K,), its ``covariance``, and ``agreement`` (K, K) by it."""

    accuracy: Floats
    covariance: Floats
    agreement: Floats


def fit_rank_one(differ: NDArray[np.uint8], n_arms: int) -> RankOne:
    """Fit the model to disagreements of shape (n, pairs).

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> right = random.random((20000, 3)) < [0.7, 0.8, 0.9]
    >>> agree = [right[:, i] & right[:, j] for i, j in [(0, 1), (0, 2), (1, 2)]]
    >>> fit_rank_one(1 - np.column_stack(agree).astype(np.uint8), 3).accuracy.round(1)
    array([0.7, 0.8, 0.9])
    """
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    design = np.zeros((len(pairs), n_arms))
    for k, pair in enumerate(pairs):
        design[k, list(pair)] = 1.0
    agree = 1.0 - differ.astype(np.float64)
    n = len(agree)
    # as if every pair had also been seen once to agree and once not: no variance is zero
    rate = np.maximum((agree.sum(axis=0) + 1.0) / (n + 2.0), LEAST)
    noise = np.cov(agree, rowvar=False).reshape(len(pairs), len(pairs)) / n
    noise[np.diag_indices_from(noise)] += 1.0 / (n + 2.0) ** 2
    noise = noise / np.outer(rate, rate)  # of the logarithms
    weighted = np.linalg.solve(noise, design)
    covariance = np.asarray(np.linalg.inv(design.T @ weighted), dtype=np.float64)
    accuracy = np.exp(covariance @ (weighted.T @ np.log(rate)))
    accuracy = np.minimum(accuracy, 1.0)
    table = np.outer(accuracy, accuracy)
    np.fill_diagonal(table, 1.0)
    return RankOne(accuracy, covariance * np.outer(accuracy, accuracy), table)
