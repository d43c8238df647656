"""Outputs and labels as whole numbers: equal numbers, equal answers."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Bools, Ints
from stopwise.logs.cells import EXACT, Cells, Family, RowBatch, is_blank, parsed
from stopwise.logs.problems import MOST, Problems

Codes: TypeAlias = list[Ints]
SAME = {"true": "1", "yes": "1", "false": "0", "no": "0"}
ALLOWED = "text, bools or numbers of 64 bits"


def encode(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> tuple[Codes, tuple[Any, ...] | None, Family | None]:
    """Give equal answers equal whole numbers ≥ 0, and −1 to none.

    Returns the numbers of each column; what they mean, or None where they are the answers
    themselves; and the family of all answers so far. ``expected`` is that of earlier rows.
    """
    expected = _family(columns, names, expected, problems)
    problems.raise_any()
    codes, values = _numbers(columns, names, problems) if expected == "number" else _texts(columns)
    for column, cells in zip(codes, columns, strict=True):
        column[cells.null] = -1
    return codes, values, expected


def mixed(found: str, expected: Family | None) -> str:
    """Word the error of two kinds of outputs in one log."""
    return (
        f"mixed types: is {found}, where the outputs so far are {expected}s; outputs and labels "
        "must be all numbers or all text, to be compared (--normalise-answers, "
        "Log(normalise_answers=True) reads 1, true and yes alike)"
    )


def normal(answer: Any) -> str:
    """Return an answer in its normal form: "1" for 1, 1.0, true and " Yes"."""
    text = str(answer).strip().casefold()
    number = parsed(text)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return SAME.get(text, text if number is None else str(number))


def normalised(batch: RowBatch, name: str) -> Cells:
    """Return answers in their normal form, all of them texts; those of space only are none."""
    wrong = batch.cells(name, "answer").wrong.items()
    cells = batch.cells(name, "text")
    words = [normal(word) for word in cells.words]
    index = {word: k for k, word in enumerate(dict.fromkeys(words))}
    codes = np.array([index[word] for word in words] or [0])[cells.values]
    null = cells.null | (codes == index.get("", -1))
    neither = {row: cell for row, cell in wrong if cell.family is None}  # a text nor a number
    return Cells("text", codes, null, tuple(index), neither)


def without_blanks(cells: Cells, answered: Bools) -> Cells:
    """Return a column in which blank texts are missing, as empty cells are in CSV.

    ``answered`` says of each row whether its ``stop`` records that the arm did answer: there an
    empty text is what it said.

    Examples
    --------
    >>> cells = Cells("text", np.array([0, 1, 0]), np.zeros(3, dtype=np.bool_), ("", "cat"))
    >>> without_blanks(cells, np.array([False, False, True])).null.tolist()
    [True, False, False]
    """
    if cells.family != "text":
        return cells
    blank = np.array([is_blank(word) for word in cells.words] or [False])
    return msgspec.structs.replace(cells, null=cells.null | (blank[cells.values] & ~answered))


def _family(
    columns: Sequence[Cells], names: Sequence[str], expected: Family | None, problems: Problems
) -> Family | None:
    """Return whether answers are numbers or texts, and record the cells that are not."""
    filled = [np.flatnonzero(~cells.null) for cells in columns]
    begins = [(int(rows[0]), i) for i, rows in enumerate(filled) if len(rows)]
    if expected is None and begins:
        expected = columns[min(begins)[1]].family
    for cells, name, rows in zip(columns, names, filled, strict=True):
        if cells.family != expected:
            for row in rows[:MOST].tolist():
                problems.at(row, name, mixed(cells.describe(row), expected))
        for row, cell in cells.wrong.items():
            if cell.family in (None, expected or "number"):
                problems.at(row, name, f"is {cell.words}; outputs and labels must be {ALLOWED}")
            else:
                problems.at(row, name, mixed(cell.words, expected))
    return expected


def _texts(columns: Sequence[Cells]) -> tuple[Codes, tuple[Any, ...]]:
    index: dict[str, int] = {}
    codes: Codes = []
    for cells in columns:
        table = [index.setdefault(word, len(index)) for word in cells.words]
        codes.append(np.array(table or [-1])[cells.values])  # a column without words is empty
    return codes, tuple(index)


def _numbers(
    columns: Sequence[Cells], names: Sequence[str], problems: Problems
) -> tuple[Codes, tuple[Any, ...] | None]:
    numbers = [cells.values for cells in columns]
    if all(values.dtype == np.int64 for values in numbers):
        if min(int(values.min()) for values in numbers) >= 0:
            return [values.copy() for values in numbers], None
    else:
        for values, name in zip(numbers, names, strict=True):
            if values.dtype == np.int64:
                large = (values > EXACT) | (values < -EXACT)
                message = "is too large a number to be compared with fractions; write text"
                problems.where(large, name, message)
            problems.where(
                ~np.isfinite(values),
                name,
                lambda row, v=values: (
                    f"is {v[row]}, which cannot be compared; leave a cell empty (null) where there "
                    "is no answer"
                ),
            )
    values, codes = np.unique(np.concatenate(numbers), return_inverse=True)
    return list(codes.astype(np.int64).reshape(len(columns), -1)), tuple(values.tolist())
