"""The two tables of the paper's experiments; README.md here says where they come from."""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidParameterError

TABLES = ("pima", "heart")


def load_table(name: str) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.int64]]:
    """Load a table that comes with Stopwise.

    Parameters
    ----------
    name : {"pima", "heart"}
        Which one.

    Returns
    -------
    columns : tuple of str
        The names of the attributes.
    X : ndarray of shape (n, d)
        The attributes, in the units of the source.
    y : ndarray of shape (n,)
        The labels, 0 or 1.

    Examples
    --------
    >>> columns, X, y = load_table("heart")
    >>> columns[:3], X.shape, int(y.sum())
    (('age', 'sex', 'cp'), (297, 13), 137)
    """
    if name not in TABLES:
        raise InvalidParameterError(f"no table is called {name!r}; there are {', '.join(TABLES)}")
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="ascii")
    header, *rows = text.splitlines()
    table = np.array([row.split(",") for row in rows], dtype=np.float64)
    return tuple(header.split(",")[:-1]), table[:, :-1].copy(), table[:, -1].astype(np.int64)
