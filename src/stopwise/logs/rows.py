"""Rows of a log as stored: columns, cells, and errors that locate a cell."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Bools
from stopwise.errors import InvalidLogError
from stopwise.text import shorten

Family: TypeAlias = Literal["number", "text"]  # answers are comparable within a family
Use: TypeAlias = Literal["number", "answer", "text"]  # how the cells of a column are parsed
# The line on which a row ends, and the row; for an invalid row, the error message instead.
Record: TypeAlias = "tuple[int, Any | str]"

EXACT = 2**53  # every integer up to this magnitude is exact as a float
MAX_LISTED = 10  # problems in one error message
BOM = b"\xef\xbb\xbf"


class Layout(msgspec.Struct, frozen=True):
    """The role of each column of a log; None for a role without a column."""

    arms: tuple[str, ...]  # names, in the order of the cascade
    context: tuple[str, ...]  # names of the coordinates: those of base, then the revealed ones
    base: tuple[str, ...]  # columns of the context before the first arm
    revealed: tuple[tuple[str, ...], ...]  # by arm (all but the last), columns it adds
    outputs: tuple[str, ...]  # by arm, the column of its output
    costs: tuple[str | None, ...]  # by arm, the column of its cost; () if no arm has one
    right: tuple[str | None, ...]  # by arm, whether it was right; () if no arm has one
    kind: str | None
    label: str | None
    stop: str | None
    rule_stop: str | None
    failed: str | None

    @property
    def answers(self) -> tuple[str, ...]:
        """The columns compared with one another: the outputs and, if present, the label."""
        return self.outputs if self.label is None else (*self.outputs, self.label)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns to read, without duplicates."""
        optional = [self.stop, self.rule_stop, self.failed, self.kind, *self.costs, *self.right]
        names = [*self.base, *chain(*self.revealed), *self.answers, *filter(None, optional)]
        return tuple(dict.fromkeys(names))

    @property
    def sources(self) -> dict[str, str]:
        """The column of each coordinate of the context before the first arm, by name."""
        return dict(zip(self.context, self.base, strict=False))

    def only(self, base: Sequence[str]) -> "Layout":
        """Return a layout that reads only these columns."""
        unset = dict.fromkeys(("kind", "label", "stop", "rule_stop", "failed"))
        empty = dict.fromkeys(("arms", "revealed", "outputs", "costs", "right"), ())
        return msgspec.structs.replace(self, base=tuple(base), **unset, **empty)


class InvalidCell(msgspec.Struct, frozen=True):
    """A cell whose value cannot be stored in its column."""

    description: str
    family: Family | None = None


class Cells(msgspec.Struct, frozen=True, eq=False):
    """A column of a batch of rows; bools are numbers, as in Python, where ``True == 1``."""

    family: Family
    values: NDArray[Any]  # float64 or int64 numbers, or indices into ``texts``; 0 where null
    null: Bools  # which cells are empty
    texts: tuple[str, ...] = ()  # the distinct texts
    invalid: Mapping[int, InvalidCell] = {}  # by row

    def describe(self, row: int) -> str:
        """Return the value of a cell for an error message."""
        value = self.values[row].item()
        return describe_value(self.texts[value] if self.family == "text" else value)


CellReader: TypeAlias = Callable[[str, Use], Cells]  # (column, use) → cells


class RowBatch(msgspec.Struct, frozen=True, eq=False):
    """Consecutive rows of a file, whose columns are parsed on demand."""

    first: int  # index of the first row
    n: int
    cells: CellReader
    lines: Sequence[int] | None = None  # the line on which each row ends, from 1; None in Parquet


class Problems:
    """Collects the problems of a batch of rows and raises them as one error.

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
        self._messages: dict[tuple[int, str | None], str] = {}  # the first problem of each cell

    def at(self, row: int, column: str | None, message: str) -> None:
        """Record a problem of a cell, or of the entire row if ``column`` is None."""
        self._messages.setdefault((row, column), message)

    def where(self, invalid: Bools, column: str, message: Callable[[int], str] | str) -> None:
        """Record a problem of a column in each row where ``invalid`` is true."""
        for row in np.flatnonzero(invalid)[:MAX_LISTED].tolist():
            self.at(row, column, message if isinstance(message, str) else message(row))

    def raise_any(self) -> None:
        """Raise `InvalidLogError` if a problem was recorded."""
        if not self._messages:
            return
        by_row = sorted(self._messages.items(), key=lambda item: item[0][0])
        listed: list[str] = []
        for (row, column), message in by_row[:MAX_LISTED]:
            where = describe_row(
                self._first + row, None if self._lines is None else self._lines[row]
            )
            listed.append(f"{where}{f', column {column!r}' if column else ''}: {message}")
        if len(listed) == 1:
            raise InvalidLogError(f"{self._file}, {listed[0]}")
        first = f" (the first {MAX_LISTED} are listed)" if len(listed) == MAX_LISTED else ""
        raise InvalidLogError(
            "\n  ".join([f"{self._file} cannot be read; fix these cells{first}:", *listed])
        )


def describe_row(row: int, line: int | None = None) -> str:
    """Return the position of a row for a message, counted from 1; ``row`` counts from 0."""
    return f"row {row + 1}" if line is None else f"row {row + 1} (line {line})"


def decode_lines(lines: Iterable[bytes], file: str) -> Iterator[str]:
    """Decode lines from UTF-8; a byte order mark in the first line is dropped."""
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
    """Yield the rows of a text file, up to ``size`` at a time; ``read`` parses their columns."""
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
    """Return Python values (numbers, bools, texts and None) as a column.

    Examples
    --------
    >>> cells = gather([1, None, 3])
    >>> cells.family, cells.values.tolist(), cells.null.tolist()
    ('number', [1, 0, 3], [False, True, False])
    >>> gather(["cat", "dog", "cat", 5]).invalid
    {3: InvalidCell(description='the number 5', family='number')}
    """
    if use == "text":
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
        reason = "does not fit in 64 bits"
        if float in types:
            kind, least, most = np.float64, -EXACT, EXACT
            reason = "is too large to compare exactly with fractions"
        numbers = [0 if value is None else value for value in values]
        invalid = {
            row: InvalidCell(f"{value}, which {reason}", "number")
            for row, value in enumerate(numbers)
            if type(value) is int and not least <= value <= most
        }
        if not invalid:
            return Cells("number", np.array(numbers, dtype=kind), null)
    else:
        families = dict[int, Family | None]()
        families |= {row: _family(v) for row, v in enumerate(values) if v is not None}
        expected = next(filter(None, families.values()), None)
        invalid = {
            row: InvalidCell(describe_value(values[row]), family)
            for row, family in families.items()
            if family is None or family != expected
        }
    valid = gather([None if row in invalid else value for row, value in enumerate(values)], use)
    return msgspec.structs.replace(valid, invalid=invalid)


def is_blank(text: str) -> bool:
    """Return whether a text is empty or white space."""
    return not text.strip()


def parse_number(text: str) -> int | float | str | None:
    """Return the number in a text; None for an empty text; any other text unchanged."""
    if not text:
        return None
    for kind in (int, float) if "_" not in text else ():  # only Python reads 1_000 as a number
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def describe_value(value: Any) -> str:
    """Return the type and the value for an error message."""
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
    """Return names for an error message."""
    return ", ".join(map(repr, names)) or "none"
