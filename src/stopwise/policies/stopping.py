"""The stopping test in numpy, for batches."""

import numpy as np

from stopwise.arrays import Bools, Ints


def first_passing(wins: Bools) -> Ints:
    """Return for each round the first arm i that wins against every deeper arm j.

    ``wins[t, i, j]`` is whether C_j − C_i exceeds the pair's upper bound in round t; only entries
    with i < j are read. The last arm always wins. The engine has the same test in
    ``first_passing_arm.h``.

    Examples
    --------
    >>> gaps = np.array([[0.0, 0.2, 0.5], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]])
    >>> upper = np.array([[0.0, 0.1, 0.6], [0.0, 0.0, 0.1], [0.0, 0.0, 0.0]])
    >>> first_passing(gaps[None] > upper).tolist()
    [1]
    """
    continues = np.triu(~wins, 1).any(axis=-1)
    return np.argmin(continues, axis=-1)  # `continues` is always False for the last arm
