"""One column of a few rows, whatever the format of the file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Bools

Family: TypeAlias = Literal["number", "text"]  # answers of one family can be compared
Use: TypeAlias = Literal["number", "answer", "text"]  # what a column is read for

EXACT = 2**53  # whole numbers up to here are floats exactly


class WrongCell(msgspec.Struct, frozen=True):
    """A cell that does not fit the others of its column: what it holds, and its family."""

    words: str
    family: Family | None = None


class Cells(msgspec.Struct, frozen=True, eq=False):
    """One column of a few rows; bools are numbers, as in Python, where ``True == 1``."""

    family: Family
    values: NDArray[Any]  # float64 or int64 numbers, or positions in ``words``; 0 where null
    null: Bools  # which cells are empty
    words: tuple[str, ...] = ()  # the distinct texts
    wrong: Mapping[int, WrongCell] = {}  # by row, cells that do not fit the others

    def describe(self, row: int) -> str:
        """Return what a cell holds, for an error."""
        value = self.values[row].item()
        return describe_value(self.words[value] if self.family == "text" else value)


class RowBatch(msgspec.Struct, frozen=True, eq=False):
    """A few rows of a file: the number of the first, how many, and a function for their columns.

    ``lines`` are those of the file on which the rows end, from 1; None in Parquet.
    """

    first: int
    n: int
    cells: Callable[[str, Use], Cells]
    lines: Sequence[int] | None = None


def gather(values: Sequence[Any], use: Use = "answer") -> Cells:
    """Turn Python values into a column: numbers, bools, texts and None.

    Examples
    --------
    >>> cells = gather([1, None, 3])
    >>> cells.family, cells.values.tolist(), cells.null.tolist()
    ('number', [1, 0, 3], [False, True, False])
    >>> gather(["cat", "dog", "cat", 5]).wrong
    {3: WrongCell(words='the number 5', family='number')}
    """
    if use == "text":  # whatever they are
        values = [None if value is None else str(value) for value in values]
    elif use == "answer" and any(isinstance(value, int | float) for value in values):
        values = [None if isinstance(v, str) and is_blank(v) else v for v in values]
    null = np.array([value is None for value in values], dtype=np.bool_)
    types: set[type] = set(map(type, values)) - {type(None)}
    if types == {str}:
        index: dict[str, int] = {}
        codes = [0 if v is None else index.setdefault(v, len(index)) for v in values]
        return Cells("text", np.array(codes, dtype=np.int64), null, tuple(index))
    if types <= {int, float, bool}:
        kind, least, most = np.int64, -(2**63), 2**63 - 1
        words = "a number of more than 64 bits"
        if float in types:
            kind, least, most = np.float64, -EXACT, EXACT
            words = "too large to compare with fractions"
        numbers = [0 if value is None else value for value in values]
        wrong = {
            row: WrongCell(f"{value}, {words}", "number")
            for row, value in enumerate(numbers)
            if type(value) is int and not least <= value <= most
        }
        if not wrong:
            return Cells("number", np.array(numbers, dtype=kind), null)
    else:
        families = dict[int, Family | None]()
        families |= {row: _family(v) for row, v in enumerate(values) if v is not None}
        expected = next((one for one in families.values() if one), None)
        wrong = {
            row: WrongCell(describe_value(values[row]), family)
            for row, family in families.items()
            if family is None or family != expected
        }
    rest = gather([None if row in wrong else value for row, value in enumerate(values)], use)
    return msgspec.structs.replace(rest, wrong=wrong)


def is_blank(text: str) -> bool:
    """Return whether a text has no characters but space."""
    return not text.strip()


def parsed(text: str) -> int | float | str | None:
    """Return a text as a number, None if it is empty, and the text itself if it is no number."""
    if not text:
        return None
    for kind in (int, float) if "_" not in text else ():  # to Python alone, 1_000 is a number
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def describe_value(value: Any) -> str:
    """Return what a value is, for an error."""
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    if isinstance(value, int | float):
        return f"the {'bool' if isinstance(value, bool) else 'number'} {value}"
    return f"a {type(value).__name__}: {_short(str(value))!r}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _family(value: Any) -> Family | None:
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None
