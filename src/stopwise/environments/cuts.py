"""Arms that answer 0 or 1 and disagree, pair by pair, exactly as often as wanted.

A *cut* is a set of arms that answer 1 while the others answer 0 (``docs/environments.md``: proofs).
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stopwise.environments.base import Floats, Ints

TOLERANCE, ROUNDING = 1e-9, 1e-12
STEPS, OVERSHOOT = 1000, 1.7  # heuristic: enough where a single point is left, the slowest case


def cuts(n_arms: int) -> Ints:
    """Return the answers (cuts + 1, K) in each cut of one arm, of two arms, and without a cut."""
    one = np.eye(n_arms, dtype=np.int64)
    two = [one[i] + one[j] for i, j in combinations(range(n_arms), 2)]
    return np.concatenate([one, two, np.zeros_like(one[:1])])


def cut_weights(p: Floats, n_arms: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the chance of every cut for each row of p, and for which rows there are such.

    ``p`` is (n, K(K−1)/2), in the order of ``Cascade.pairs()``. With any t such that

        t_i + t_j ≥ p_ij,   Σ_k≠i (t_i + t_k − p_ik) ≤ 2·t_i,   Σ_i<j p_ij − (K − 3)·Σ_i t_i ≤ 2

    v_ij = (t_i + t_j − p_ij)/2 for cut {i, j} and t_i − Σ_k v_ik for cut {i} are chances that give
    p. Each step moves t across the half-space that it violates most (Motzkin, Schoenberg, 1954).
    """
    of_pair = cuts(n_arms)[n_arms:-1]
    sums = -1.0 - (n_arms - 4) * np.eye(n_arms)
    rows = np.concatenate([of_pair, sums, np.full((1, n_arms), n_arms - 3)])
    bounds = np.concatenate([p, -p @ of_pair, p.sum(axis=1, keepdims=True) - 2.0], axis=1)
    length = np.maximum(np.linalg.norm(rows, axis=1), 1.0)  # the last row is zero for three arms
    t = np.repeat(p.max(axis=1, keepdims=True) / 2, n_arms, axis=1)
    left = np.arange(len(p))
    for _ in range(STEPS):
        short = (bounds[left] - t[left] @ rows.T) / length
        worst, by = short.argmax(axis=1), short.max(axis=1)
        out = by > ROUNDING
        left, worst, by = left[out], worst[out], by[out]
        t[left] += (OVERSHOOT * by / length[worst])[:, None] * rows[worst]
    pairs = (t @ of_pair.T - p) / 2
    weights = np.concatenate([t - pairs @ of_pair, pairs], axis=1)
    exist = (weights.min(axis=1) >= -TOLERANCE) & (weights.sum(axis=1) <= 1.0 + TOLERANCE)
    return np.maximum(weights, 0.0), exist
