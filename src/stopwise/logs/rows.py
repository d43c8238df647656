"""Rows of a log as stored: columns, cells, and errors that name a cell."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Bools
from stopwise.errors import InvalidLogError
from stopwise.text import shorten

Family: TypeAlias = Literal["number", "text"]  # answers of one family can be compared
Use: TypeAlias = Literal["number", "answer", "text"]  # what a column is read for
# A row with the line on which it ends; a text instead of the row says what is wrong with it.
Record: TypeAlias = "tuple[int, Any | str]"

EXACT = 2**53  # whole numbers up to here are floats exactly
MOST = 10  # problems that one error lists
BOM = b"\xef\xbb\xbf"


class Layout(msgspec.Struct, frozen=True):
    """What the columns of a log hold; None where it has no such column."""

    arms: tuple[str, ...]  # names, in the order of the cascade
    context: tuple[str, ...]  # names of all coordinates: those of base, then what each arm adds
    base: tuple[str, ...]  # columns of the context before the first arm
    revealed: tuple[tuple[str, ...], ...]  # columns that each arm but the last adds
    outputs: tuple[str, ...]  # the column of each arm's output
    costs: tuple[str | None, ...]  # that of its cost; empty if none has any
    right: tuple[str | None, ...]  # that says whether it was right; empty if none has any
    kind: str | None
    label: str | None
    stop: str | None
    rule_stop: str | None
    failed: str | None

    @property
    def answers(self) -> tuple[str, ...]:
        """The columns that are compared with one another: outputs, and the label if any."""
        return self.outputs if self.label is None else (*self.outputs, self.label)

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        optional = [self.stop, self.rule_stop, self.failed, self.kind, *self.costs, *self.right]
        names = [*self.base, *chain(*self.revealed), *self.answers, *filter(None, optional)]
        return tuple(dict.fromkeys(names))

    @property
    def sources(self) -> dict[str, str]:
        """The columns of the context before the first arm, by their names in it."""
        return dict(zip(self.context, self.base, strict=False))

    def only(self, base: Sequence[str]) -> "Layout":
        """Return a layout that reads nothing but some columns."""
        none = dict.fromkeys(("kind", "label", "stop", "rule_stop", "failed"))
        empty = dict.fromkeys(("arms", "revealed", "outputs", "costs", "right"), ())
        return msgspec.structs.replace(self, base=tuple(base), **none, **empty)


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


CellReader: TypeAlias = Callable[[str, Use], Cells]  # column, use → its cells


class RowBatch(msgspec.Struct, frozen=True, eq=False):
    """A few rows of a file: the number of the first, how many, and a function for their columns.

    ``lines`` are those of the file on which the rows end, from 1; None in Parquet.
    """

    first: int
    n: int
    cells: CellReader
    lines: Sequence[int] | None = None


class Problems:
    """Collects what is wrong with a few rows.

    Examples
    --------
    >>> problems = Problems("log.parquet", first=100)
    >>> problems.where(np.array([False, True, True]), "output.small", lambda row: "is NaN")
    >>> problems.at(0, "context.age", "is empty")
    >>> problems.raise_any()
    Traceback (most recent call last):
    stopwise.errors.InvalidLogError: log.parquet cannot be read; fix these cells:
      row 101, column 'context.age': is empty
      row 102, column 'output.small': is NaN
      row 103, column 'output.small': is NaN
    """

    def __init__(self, file: str, first: int, lines: Sequence[int] | None = None) -> None:
        self._file = file
        self._first = first
        self._lines = lines
        self._found: dict[tuple[int, str | None], str] = {}  # the first problem of each cell

    def at(self, row: int, column: str | None, message: str) -> None:
        """Record that a cell is wrong, or a row."""
        self._found.setdefault((row, column), message)

    def where(self, wrong: Bools, column: str, message: Callable[[int], str] | str) -> None:
        """Record that cells of a column are wrong in some rows."""
        for row in np.flatnonzero(wrong)[:MOST].tolist():
            self.at(row, column, message if isinstance(message, str) else message(row))

    def raise_any(self) -> None:
        """Raise `InvalidLogError` if anything was recorded."""
        if not self._found:
            return
        found = sorted(self._found.items(), key=lambda one: one[0][0])
        listed: list[str] = []
        for (row, column), message in found[:MOST]:
            where = describe_row(
                self._first + row, None if self._lines is None else self._lines[row]
            )
            listed.append(f"{where}{f', column {column!r}' if column else ''}: {message}")
        if len(listed) == 1:
            raise InvalidLogError(f"{self._file}, {listed[0]}")
        first = f" (the first {MOST}, there may be more)" if len(listed) == MOST else ""
        raise InvalidLogError(
            "\n  ".join([f"{self._file} cannot be read; fix these cells{first}:", *listed])
        )


def describe_row(row: int, line: int | None = None) -> str:
    """Name a row of a log; rows are numbered from 0 and shown from 1."""
    return f"row {row + 1}" if line is None else f"row {row + 1} (line {line})"


def decode_lines(lines: Iterable[bytes], file: str) -> Iterator[str]:
    r"""Decode lines from UTF-8."""
    for number, line in enumerate(lines, 1):
        try:
            yield (line.removeprefix(BOM) if number == 1 else line).decode()
        except UnicodeDecodeError as error:
            raise InvalidLogError(
                f"{file}, line {number}: not UTF-8 (byte {error.start + 1} is "
                f"0x{line[error.start]:02x}); save the file as UTF-8"
            ) from None


def batches_of(
    records: Iterator[Record], read: Callable[[Sequence[Any]], CellReader], file: str, size: int
) -> Iterator[RowBatch]:
    """Yield the rows of a text file, up to ``size`` at a time; ``read`` gives the cells of some."""
    first = 0
    while batch := list(islice(records, size)):
        lines = [line for line, _ in batch]
        problems = Problems(file, first, lines)
        for k, (_, row) in enumerate(batch):
            if isinstance(row, str):
                problems.at(k, None, row)
        problems.raise_any()
        yield RowBatch(first, len(batch), read([row for _, row in batch]), lines)
        first += len(batch)


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


def parse_number(text: str) -> int | float | str | None:
    """Return the number in a text, None if it is empty, or the text if it is not a number."""
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
        return f"the text {shorten(value, 60)!r}"
    if isinstance(value, int | float):
        return f"the {'bool' if isinstance(value, bool) else 'number'} {value}"
    return f"a {type(value).__name__}: {shorten(str(value), 60)!r}"


def _family(value: Any) -> Family | None:
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


def quoted(names: Iterable[str]) -> str:
    """Return names for an error."""
    return ", ".join(map(repr, names)) or "none"
