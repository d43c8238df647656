"""The stopping test in numpy, for batches."""

import numpy as np

from stopwise.arrays import Bools, Ints


def first_passing(wins: Bools) -> Ints:
    """Return the first arm i that wins against every deeper arm j, or the last.

    ``wins[t, i, j]`` is whether C_j − C_i exceeds the upper bound of the pair in round t; only
    i < j is read. The engine has the same test in ``first_passing_arm.h``.

    Examples
    --------
    >>> gaps = np.array([[0.0, 0.2, 0.5], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]])
    >>> upper = np.array([[0.0, 0.1, 0.6], [0.0, 0.0, 0.1], [0.0, 0.0, 0.0]])
    >>> first_passing(gaps[None] > upper).tolist()
    [1]
    """
    continues = np.triu(~wins, 1).any(axis=-1)
    return np.argmin(continues, axis=-1)  # always False for the last arm
