"""One column of a few rows, whatever the format of the file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Kind: TypeAlias = Literal["number", "bool", "text", "empty"]
Family: TypeAlias = Literal["number", "text"]  # outputs of one family can be compared
Use: TypeAlias = Literal["number", "answer", "arm"]  # what a column is read for

EXACT = 2**53  # whole numbers up to here are floats exactly


FamilyOrOther: TypeAlias = Literal["number", "text", "other"]


class WrongCell(msgspec.Struct, frozen=True):
    """A cell that does not fit the others of its column."""

    words: str  # what it holds
    family: FamilyOrOther = "other"


class Cells(msgspec.Struct, frozen=True, eq=False):
    """One column of a few rows.

    Attributes
    ----------
    kind : {"number", "bool", "text", "empty"}
        What the cells hold; "empty" where all are null.
    values : ndarray
        float64 or int64 numbers, or bools, or positions in ``words``. Anything where null.
    null : ndarray of bool or None
        Which cells hold nothing; None if all hold something.
    words : tuple of str
        The distinct texts.
    wrong : dict of int to WrongCell
        By row, cells that do not fit the others; they are null.
    """

    kind: Kind
    values: NDArray[Any]
    null: NDArray[np.bool_] | None = None
    words: tuple[str, ...] = ()
    wrong: Mapping[int, WrongCell] = {}

    @property
    def filled(self) -> NDArray[np.intp]:
        """The rows that hold something."""
        if self.kind == "empty":
            return np.zeros(0, dtype=np.intp)
        return np.arange(len(self.values)) if self.null is None else np.flatnonzero(~self.null)

    def describe(self, row: int) -> str:
        """Return what a cell holds, for an error."""
        value = self.values[row].item()
        return describe_value(self.words[value] if self.kind == "text" else value)


class RowBatch(msgspec.Struct, frozen=True, eq=False):
    """A few rows of a file: the number of the first, how many, and a function for their columns.

    ``lines`` are those of the file on which the rows end, from 1; None in Parquet.
    """

    first: int
    n: int
    cells: Callable[[str, Use], Cells]
    lines: Sequence[int] | None = None


def gather(values: Sequence[Any]) -> Cells:
    """Make a column of Python values: numbers, bools, texts and None.

    Examples
    --------
    >>> cells = gather([1, None, 3])
    >>> cells.kind, cells.values.tolist(), cells.null.tolist()
    ('number', [1, 0, 3], [False, True, False])
    >>> gather(["cat", "dog", "cat", 5]).wrong
    {3: WrongCell(words='the number 5', family='number')}
    """
    kinds: set[type] = set(map(type, values))
    null = None
    if type(None) in kinds:
        kinds.discard(type(None))
        null = np.array([value is None for value in values])
    if not kinds:
        return Cells("empty", np.zeros(len(values)), null)
    if kinds == {bool}:
        return Cells("bool", np.array(_filled(values, null, False), dtype=np.bool_), null)
    if kinds == {str}:
        return _texts(values, null)
    wrong: dict[int, WrongCell] = {}
    if kinds <= {int, bool}:
        whole = _filled(values, null, 0)
        try:
            return Cells("number", np.array(whole, dtype=np.int64), null)
        except OverflowError:
            for row, value in enumerate(whole):
                if not -(2**63) <= value < 2**63:
                    words = f"{value}, a number of more than 64 bits"
                    wrong[row] = WrongCell(words, "number")
    elif kinds <= {int, bool, float}:
        for row, value in enumerate(values):
            if isinstance(value, int) and abs(value) > EXACT:
                wrong[row] = WrongCell(f"{value}, too large to compare with fractions", "number")
        if not wrong:
            return Cells("number", np.array(_filled(values, null, 0.0), dtype=np.float64), null)
    else:
        families: dict[int, FamilyOrOther] = {
            row: _family(value) for row, value in enumerate(values) if value is not None
        }
        expected = next((one for one in families.values() if one != "other"), None)
        for row, family in families.items():
            if family != expected:
                wrong[row] = WrongCell(describe_value(values[row]), family)
    rest = gather([None if row in wrong else value for row, value in enumerate(values)])
    return msgspec.structs.replace(rest, wrong=wrong)


def describe_value(value: Any) -> str:
    """Return what a value is, for an error.

    Examples
    --------
    >>> describe_value("cat"), describe_value(3), describe_value([1])
    ("the text 'cat'", 'the number 3', "a list: '[1]'")
    """
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    if isinstance(value, int | float):
        return f"the number {value}" if not isinstance(value, bool) else f"the bool {value}"
    return f"a {type(value).__name__}: {_short(str(value))!r}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _family(value: Any) -> FamilyOrOther:
    if isinstance(value, bool | int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _filled(values: Sequence[Any], null: NDArray[np.bool_] | None, filler: Any) -> Sequence[Any]:
    return values if null is None else [filler if value is None else value for value in values]


def _texts(values: Sequence[Any], null: NDArray[np.bool_] | None) -> Cells:
    some = next(value for value in values if value is not None)
    index: dict[str, int] = {}
    codes = [index.setdefault(value, len(index)) for value in _filled(values, null, some)]
    return Cells("text", np.array(codes, dtype=np.int64), null, tuple(index))
