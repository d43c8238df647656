"""The two tables used in the paper's experiments; README.md in this folder states their origin."""

from importlib.resources import files

import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError
from stopwise.text import suggestion

TABLES = ("pima", "heart")


def load_table(name: str) -> tuple[tuple[str, ...], Floats, Ints]:
    """Load the table "pima" or "heart"; return its column names, data and labels (0 or 1).

    Examples
    --------
    >>> columns, X, y = load_table("heart")
    >>> columns[:3], X.shape, int(y.sum())
    (('age', 'sex', 'cp'), (297, 13), 137)
    """
    if name not in TABLES:
        raise InvalidParameterError(f"unknown table {name!r}; {suggestion(name, TABLES)}")
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="ascii")
    lines = text.splitlines()
    columns = lines[0].split(",")[:-1]
    table = np.array([line.split(",") for line in lines[1:]], dtype=np.float64)
    return tuple(columns), table[:, :-1].copy(), table[:, -1].astype(np.int64)
