"""Rounds without contexts: how often each arm was revealed, how often each pair differed.

The state is ``n`` (K,) and ``disagreed`` (K, K), read above the diagonal. Pairs are numbered row by
row, as in ``cascade.pairs()``. One round from Python and a whole run call the same functions: a
logarithm or a draw compiled here may differ in its last bit from one of numpy's.
"""

import math

import numpy as np

from stopwise.engine.arrays import Bytes, Floats, Ints
from stopwise.engine.compiled import compiled, compiled_nogil

ESTIMATE, UPPER = 0, 1  # rows of ``noted`` (2, n_pairs): p̂_ij and what a gap is compared with


@compiled
def decide_ucb(gaps: Floats, n: Ints, disagreed: Ints, rounds: int, a: float, noted: Floats) -> int:
    """Return the stop of USS-UCB after so many rounds: index_ij = p̂_ij + √(a·ln t / n_j)."""
    strength = a * math.log(rounds + 1)
    k = 0
    for i in range(n.shape[0]):
        for j in range(i + 1, n.shape[0]):
            noted[ESTIMATE, k] = disagreed[i, j] / n[j]
            noted[UPPER, k] = math.inf
            if n[j] > 0:
                noted[UPPER, k] = noted[ESTIMATE, k] + math.sqrt(strength / n[j])
            k += 1
    return _first_winner(gaps, noted)


@compiled
def decide_ts(
    gaps: Floats, n: Ints, disagreed: Ints, random: np.random.Generator, noted: Floats
) -> int:
    """Return the stop of USS-TS: q_ij ~ Beta(1 + disagreements, 1 + agreements).

    Every pair is drawn, in order, wherever the stop is: each decision uses one row of draws.
    """
    k = 0
    for i in range(n.shape[0]):
        for j in range(i + 1, n.shape[0]):
            noted[ESTIMATE, k] = disagreed[i, j] / n[j]
            noted[UPPER, k] = random.beta(1.0 + disagreed[i, j], 1.0 + n[j] - disagreed[i, j])
            k += 1
    return _first_winner(gaps, noted)


@compiled
def _first_winner(gaps: Floats, noted: Floats) -> int:
    """Return the first arm i with C_j − C_i > upper_ij for all j > i."""
    last = gaps.shape[0] - 1
    k = 0
    for i in range(last):
        wins = True
        for j in range(i + 1, last + 1):
            wins = wins and gaps[i, j] > noted[UPPER, k]
            k += 1
        if wins:
            return i
    return last


@compiled
def learn(n: Ints, disagreed: Ints, stop: int, differ: Bytes) -> None:
    """Count a round that went to ``stop``; of ``differ`` (n_pairs,) no more is read."""
    k = 0
    for i in range(n.shape[0]):
        if i <= stop:
            n[i] += 1
        for j in range(i + 1, n.shape[0]):
            if j <= stop:
                disagreed[i, j] += differ[k]
            k += 1


@compiled_nogil
def run_ucb(
    gaps: Floats, n: Ints, disagreed: Ints, rounds: int, a: float, differ: Bytes, stops: Ints
) -> None:
    """Play rounds of USS-UCB in order; ``differ`` is (rounds, n_pairs)."""
    noted = np.empty((2, differ.shape[1]))
    for t in range(stops.shape[0]):
        stops[t] = decide_ucb(gaps, n, disagreed, rounds + t, a, noted)
        learn(n, disagreed, stops[t], differ[t])


@compiled_nogil
def run_ts(
    gaps: Floats,
    n: Ints,
    disagreed: Ints,
    random: np.random.Generator,
    differ: Bytes,
    stops: Ints,
) -> None:
    """Play rounds of USS-TS in order; ``differ`` is (rounds, n_pairs)."""
    noted = np.empty((2, differ.shape[1]))
    for t in range(stops.shape[0]):
        stops[t] = decide_ts(gaps, n, disagreed, random, noted)
        learn(n, disagreed, stops[t], differ[t])
