"""The stopping test in numpy, for many rounds whose upper values are known."""

import numpy as np

from stopwise.arrays import Bools, Ints


def first_passing(wins: Bools) -> Ints:
    """Return the first arm i that wins against every deeper arm j, or the last.

    ``wins[t, i, j]`` says for round t whether C_j − C_i exceeds the upper value of the pair; only
    i < j is read. The engine has the same test in ``first_passing.h``.

    Examples
    --------
    >>> gaps = np.array([[0.0, 0.2, 0.5], [0.0, 0.0, 0.3], [0.0, 0.0, 0.0]])
    >>> upper = np.array([[0.0, 0.1, 0.6], [0.0, 0.0, 0.1], [0.0, 0.0, 0.0]])
    >>> first_passing(gaps[None] > upper).tolist()
    [1]
    """
    goes_on = np.triu(~wins, 1).any(axis=-1)
    return np.argmin(goes_on, axis=-1)  # the last never goes on
