"""Which row of a finite table each round shows."""

import numpy as np

from stopwise.environments.base import Ints


def round_robin(rows: int, rounds: int) -> Ints:
    """Return row numbers in order, from the first again past the end.

    Examples
    --------
    >>> round_robin(3, 7).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    """
    return np.arange(rounds, dtype=np.int64) % rows


def shuffled(rows: int, rounds: int, random: np.random.Generator) -> Ints:
    """Return row numbers in random order; past the end, all of them in a fresh order.

    Examples
    --------
    >>> order = shuffled(3, 6, np.random.default_rng(0))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    passes = -(-rounds // rows)
    orders = [random.permutation(rows) for _ in range(passes)]
    return np.concatenate([np.empty(0, dtype=np.int64), *orders])[:rounds]
