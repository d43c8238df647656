"""Outputs and labels as whole numbers: equal numbers, equal answers."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stopwise.logs.cells import EXACT, Cells, Family
from stopwise.logs.problems import MOST, Problems

Coded: TypeAlias = tuple[list[NDArray[np.int64]], tuple[Any, ...] | None]

# Negative whole numbers in a range this small become positions in it without sorting (heuristic).
SMALL_RANGE = 4096


def family(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> Family | None:
    """Return whether a log's answers are numbers or texts, and note the cells that are not.

    Bools count as numbers, as in Python, where ``True == 1``. ``expected`` is the family of earlier
    rows, None if they held nothing.
    """
    filled = [cells.filled for cells in columns]
    begins = [(int(rows[0]), i) for i, rows in enumerate(filled) if len(rows)]
    if expected is None and begins:
        expected = _family_of(columns[min(begins)[1]])
    for cells, name, rows in zip(columns, names, filled, strict=True):
        if len(rows) and _family_of(cells) != expected:
            for row in rows[:MOST].tolist():
                problems.at(row, name, mixed(cells.describe(row), expected))
        for row, cell in cells.wrong.items():
            if cell.family in ("other", expected or "number"):
                problems.at(row, name, f"is {cell.words}; outputs and labels must be {ALLOWED}")
            else:
                problems.at(row, name, mixed(cell.words, expected))
    return expected


ALLOWED = "text, bools or numbers of 64 bits"


def mixed(found: str, expected: Family | None) -> str:
    """Word the error of two kinds of outputs in one log.

    Examples
    --------
    >>> mixed("the text 'cat'", "number")
    "mixed types: is the text 'cat', where the outputs so far are numbers; ..."
    """
    return (
        f"mixed types: is {found}, where the outputs so far are {expected}s; outputs and labels "
        "must be all numbers or all text, to be compared"
    )


def encode(columns: Sequence[Cells], names: Sequence[str], problems: Problems) -> Coded:
    """Give equal answers equal whole numbers, −1 to none; return also what the numbers mean.

    The columns must be of one family (`family`). The second result is None where the whole
    numbers are the answers themselves.
    """
    kinds = {cells.kind for cells in columns} - {"empty"}
    if not kinds:
        coded: Coded = [np.full(len(cells.values), -1) for cells in columns], ()
    elif kinds == {"text"}:
        coded = _texts(columns)
    elif kinds == {"bool"}:
        coded = [cells.values.astype(np.int64) for cells in columns], (False, True)
    elif any(c.kind == "number" and c.values.dtype == np.float64 for c in columns):
        coded = _fractions(columns, names, problems)
    else:
        coded = _whole([cells.values.astype(np.int64) for cells in columns])
    for codes, cells in zip(coded[0], columns, strict=True):
        if cells.kind == "empty":
            codes[:] = -1
        elif cells.null is not None:
            codes[cells.null] = -1
    return coded


NO_ANSWER = "which cannot be compared; leave a cell empty (null) where there is no answer"


def _texts(columns: Sequence[Cells]) -> Coded:
    index: dict[str, int] = {}
    coded: list[NDArray[np.int64]] = []
    for cells in columns:
        if cells.kind == "empty":
            coded.append(np.empty(len(cells.values), dtype=np.int64))
        else:
            table = np.array([index.setdefault(word, len(index)) for word in cells.words])
            coded.append(table[cells.values])
    return coded, tuple(index)


def _whole(columns: list[NDArray[np.int64]]) -> Coded:
    low = min(int(values.min()) for values in columns)
    if low >= 0:
        return columns, None
    high = max(int(values.max()) for values in columns)
    if high - low < SMALL_RANGE:
        return [values - low for values in columns], tuple(range(low, high + 1))
    return _sorted(columns)


def _fractions(columns: Sequence[Cells], names: Sequence[str], problems: Problems) -> Coded:
    numbers: list[NDArray[np.float64]] = []
    for cells, name in zip(columns, names, strict=True):
        values = cells.values
        if values.dtype == np.int64:
            large = (values > EXACT) | (values < -EXACT)
            problems.where(
                large, name, "is too large a number to be compared with fractions; write text"
            )
        values = values.astype(np.float64)
        if cells.kind == "empty":
            values[:] = 0
        elif cells.null is not None:
            values[cells.null] = 0
        numbers.append(values)
        finite = np.isfinite(values)
        problems.where(~finite, name, lambda row, v=values: f"is {v[row]}, {NO_ANSWER}")
        values[~finite] = 0
    if all(((v >= 0) & (v <= EXACT) & (v == np.floor(v))).all() for v in numbers):
        return [v.astype(np.int64) for v in numbers], None
    return _sorted(numbers)


def _sorted(columns: Sequence[NDArray[Any]]) -> Coded:
    values, codes = np.unique(np.concatenate(columns), return_inverse=True)
    return list(codes.astype(np.int64).reshape(len(columns), -1)), tuple(values.tolist())


def _family_of(cells: Cells) -> Family:
    return "text" if cells.kind == "text" else "number"
