"""One column of a few rows, whatever the file it came from."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Kind: TypeAlias = Literal["number", "bool", "text", "empty"]
Use: TypeAlias = Literal["number", "answer", "arm"]  # what a column is read for

EXACT = 2**53  # whole numbers up to here are floats exactly


class Odd(msgspec.Struct, frozen=True):
    """A cell that cannot stand with those before it in its column."""

    row: int
    words: str  # what it holds
    family: Literal["number", "text", "other"]


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
    odd : Odd or None
        The first cell that cannot stand with those before it; it and all later ones are null.
    """

    kind: Kind
    values: NDArray[Any]
    null: NDArray[np.bool_] | None = None
    words: tuple[str, ...] = ()
    odd: Odd | None = None


class Batch(Protocol):
    """A few rows of a file."""

    @property
    def first(self) -> int:
        """The number of the first of them, from 0."""
        ...

    @property
    def n(self) -> int:
        """How many there are."""
        ...

    def line(self, row: int) -> int | None:
        """Return the line of the file on which a row ends, from 1; None if there are no lines."""
        ...

    def cells(self, column: str, use: Use) -> Cells:
        """Return a column."""
        ...


def gather(values: Sequence[Any]) -> Cells:
    """Make a column of Python values: numbers, bools, texts and None.

    Examples
    --------
    >>> cells = gather([1, None, 3])
    >>> cells.kind, cells.values.tolist(), cells.null.tolist()
    ('number', [1, 0, 3], [False, True, False])
    >>> gather(["cat", "dog", "cat", 5]).odd
    Odd(row=3, words='the number 5', family='number')
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
    if kinds <= {int, bool}:
        whole = _filled(values, null, 0)
        try:
            return Cells("number", np.array(whole, dtype=np.int64), null)
        except OverflowError:
            row = next(i for i, value in enumerate(whole) if not -(2**63) <= value < 2**63)
            return _cut(values, row, f"{values[row]}, a number of more than 64 bits")
    if kinds <= {int, bool, float}:
        numbers = _filled(values, null, 0.0)
        for row, value in enumerate(numbers):
            if isinstance(value, int) and abs(value) > EXACT:
                return _cut(values, row, f"{value}, too large to compare with fractions")
        return Cells("number", np.array(numbers, dtype=np.float64), null)
    families = [(i, _family(value)) for i, value in enumerate(values) if value is not None]
    expected = families[0][1]
    row = next(i for i, family in families if family == "other" or family != expected)
    return _cut(values, row, shown(values[row]))


def shown(value: Any) -> str:
    """Say what a value is, for an error.

    Examples
    --------
    >>> shown("cat"), shown(3), shown([1])
    ("the text 'cat'", 'the number 3', "a list: '[1]'")
    """
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    if isinstance(value, int | float):
        return f"the number {value}" if not isinstance(value, bool) else f"the bool {value}"
    return f"a {type(value).__name__}: {_short(str(value))!r}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _family(value: Any) -> Literal["number", "text", "other"]:
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


def _cut(values: Sequence[Any], row: int, words: str) -> Cells:
    """Return what comes before a row that cannot stand, and say what it holds."""
    before = gather([*values[:row], *[None] * (len(values) - row)])
    return msgspec.structs.replace(before, odd=Odd(row, words, _family(values[row])))
