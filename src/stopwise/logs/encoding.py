"""Encode raw columns of a context as numbers."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidContextError, InvalidParameterError
from stopwise.logs.rows import Problems, RowBatch, describe_value, parse_number

Raw: TypeAlias = "str | float | bool | None"  # a value as a table or a request has it
Kind: TypeAlias = Literal["number", "date", "category"]

FIRST = 2_048  # rows: if they hold plain numbers only, no more are read to fit an encoding
LEAST_ROWS, LEAST_SHARE = 10, 0.01  # rarer categories share a coordinate
MOST_TEXTS = 10_000  # distinct texts of a column; a column with more is not a category
DIGITS = 12  # of a mean: how rows were cut into batches must not show
UNCHANGED = "a number as it is"
NEEDED = {"number": "a finite number (with a point)", "date": "a date such as 2026-01-31"}
NO_GAPS = f"where no cell of the log, or of its first {FIRST:,} rows, was"
BOOLS = {"true": 1.0, "false": 0.0}
UNCLEAR = re.compile(r"(?=.*\d)[\d\s.,:/_-]+")  # 0,5 or 31/1/2026, if they have no other kind
DAY, EPOCH = timedelta(days=1), datetime(1970, 1, 1, tzinfo=UTC)


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """One column: what it holds, and how that becomes numbers."""

    name: str
    kind: Kind = "number"
    fill: float | None = None  # what a gap is read as; None: there must be none
    values: tuple[str, ...] = ()  # categories that have a coordinate each
    usual: str = ""  # the most frequent category, which has none
    first: str = ""  # the date from which days are counted

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of its numbers."""
        if self.kind == "category":
            return tuple(f"{self.name}={v or '(empty)'}" for v in (*self.values, "(other)"))
        gap = (f"{self.name} is empty",) if self.fill is not None else ()
        return (self.name, *gap)

    def numbers(self, raw: Raw) -> list[float]:
        """Return the numbers of a value; raise ValueError, in words, if it does not fit."""
        if self.kind == "category":
            places = [float(_word(raw) == value) for value in self.values]
            return [*places, float(_word(raw) not in (self.usual, *self.values))]
        if raw is None and self.fill is not None:
            return [self.fill, 1.0]
        kind, value = _read(raw)
        if kind != self.kind or not math.isfinite(value):
            words = f"is {describe_value(raw)}; this must be {NEEDED[self.kind]}"
            if raw is None:
                words = f"is empty, {NO_GAPS}; fill it, or put one such row first: then gaps are "
                words += "read as the mean"
            raise ValueError(f"{words}; or leave out such rows")
        value -= _read(self.first)[1] if self.kind == "date" else 0.0
        return [value, 0.0][: len(self.coordinates)]

    def describe(self) -> str:
        """Say what is done to it."""
        if self.kind == "category":
            each = ", ".join(v or "(empty)" for v in (*self.values, "all other values"))
            return f"category: 0 or 1 for each of {each}; zeros for {self.usual or '(empty)'}"
        words = f"days since {self.first}" if self.kind == "date" else UNCHANGED
        gaps = f"; gaps are {self.fill:.6g}, the mean, and 1" if self.fill is not None else ""
        return words + gaps


class Encoding(msgspec.Struct, frozen=True):
    """Turns named values into the numbers of a context; `Log.encoding` is fitted to a log.

    To store it with a policy, write ``policy.encoding = log.encoding.to_spec()``. A service takes
    the same as the ``context`` of a cascade.

    Examples
    --------
    >>> city = Column("city", "category", values=("Rome",), usual="Paris")
    >>> encoding = Encoding(
    ...     (Column("age", fill=40.0), city, Column("day", "date", first="2026-01-01"))
    ... )
    >>> encoding.coordinates
    ('age', 'age is empty', 'city=Rome', 'city=(other)', 'day')
    >>> encoding.vector({"age": None, "city": "Oslo", "day": "2026-01-03"})
    [40.0, 1.0, 0.0, 1.0, 2.0]
    """

    columns: tuple[Column, ...]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the numbers of a context."""
        return tuple(name for column in self.columns for name in column.coordinates)

    def vector(self, values: Mapping[str, Raw]) -> list[float]:
        """Return the context of named values; `InvalidContextError` if one does not fit."""
        if wrong := set(values) ^ {column.name for column in self.columns}:
            raise InvalidContextError(f"missing or unknown: {', '.join(sorted(wrong))}")
        found: list[float] = []
        for column in self.columns:
            try:
                found += column.numbers(values[column.name])
            except ValueError as error:
                raise InvalidContextError(f"{column.name!r} {error}") from None
        return found

    def rows(self, batch: RowBatch, sources: Mapping[str, str], problems: Problems) -> Floats:
        """Return the contexts of a few rows; ``sources`` says which column of the file is which."""
        parts = [column_numbers(c, batch, sources[c.name], problems) for c in self.columns]
        return np.hstack([np.empty((batch.n, 0)), *parts])

    def describe(self) -> dict[str, str]:
        """Say what is done to each column."""
        return {column.name: column.describe() for column in self.columns}

    def to_spec(self) -> dict[str, Any]:
        """Return everything about it as plain values, ready for JSON."""
        return msgspec.json.decode(msgspec.json.encode(self))  # lists, as a file gives them back

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> "Encoding":
        """Return the encoding of a spec."""
        try:
            found = msgspec.convert(spec, Encoding)
        except msgspec.ValidationError as error:
            raise InvalidParameterError(f"this is no encoding: {error}") from error
        if any(c.kind == "date" and _read(c.first)[0] != "date" for c in found.columns):
            raise InvalidParameterError("this is no encoding: dates need a first one")
        return found


def fit(batches: Iterable[RowBatch], sources: Mapping[str, str], log: str) -> Encoding:
    """Read the columns of a context, ``sources`` by name; the first if all are plain numbers."""
    found = [_Fit(name, column) for name, column in sources.items()]
    for batch in batches:
        problems = Problems(log, batch.first, batch.lines)
        for one in found:
            one.add(batch, problems)
        problems.raise_any()
        if batch.first + batch.n >= FIRST and all(one.plain for one in found):
            return Encoding(tuple(Column(name) for name in sources))
    return Encoding(tuple(one.column() for one in found))


class _Fit:
    """What one column holds."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source
        self._kind: Kind | None = None
        self._rows = self._empty = 0
        self._sum, self._first = 0.0, math.inf  # of numbers, or of dates in days
        self._texts: Counter[str] = Counter()

    def add(self, batch: RowBatch, problems: Problems) -> None:
        cells = batch.cells(self._source, "number")
        self._rows += batch.n
        for row, cell in cells.wrong.items():
            if cell.family is None:
                problems.at(row, self._source, f"is {cell.words}; give a number, a text or a date")
        if cells.family == "number" and not cells.wrong:
            values = cells.values[~cells.null & np.isfinite(cells.values)]  # `rows` refuses others
            with np.errstate(over="ignore"):  # of absurdly large numbers
                distinct = [(0, values.mean(), len(values))] if len(values) else []
        else:
            cells = batch.cells(self._source, "text")
            counts = np.bincount(cells.values[~cells.null], minlength=len(cells.words)).tolist()
            distinct = [(k, cells.words[k], n) for k, n in enumerate(counts) if n]
        self._empty += int(cells.null.sum())
        for code, raw, n in distinct:
            kind, value = _read(raw)
            self._kind = self._kind or kind
            if kind != self._kind or (kind == "category" and UNCLEAR.fullmatch(raw)):
                before = f", where cells before it hold a {self._kind}"
                words = f"is {describe_value(raw)}{before if kind != self._kind else ''}; write "
                words += "numbers as 0.5, dates as 2026-01-31 and categories with a letter; leave "
                words += "the cell empty if nobody knows"
                where = ~cells.null & ((cells.values == code) | (cells.family == "number"))
                problems.where(where, self._source, words)
            elif kind == "category":
                self._texts[_word(raw)] += n
            elif math.isfinite(value):
                self._sum += n * value
                self._first = min(self._first, value)
        if len(self._texts) > MOST_TEXTS:
            words = f"has more than {MOST_TEXTS:,} distinct texts up to here, too many for"
            problems.at(batch.n - 1, self._source, f"{words} categories; leave the column out")

    @property
    def plain(self) -> bool:
        """Whether it holds numbers only so far."""
        return self._kind == "number" and not self._empty

    def column(self) -> Column:
        """Return how the column becomes numbers."""
        if self._kind == "category":
            self._texts[""] += self._empty
            texts = sorted(self._texts, key=lambda word: (-self._texts[word], word))
            least = max(LEAST_ROWS, LEAST_SHARE * self._rows)
            frequent = tuple(word for word in texts[1:] if self._texts[word] >= least)
            return Column(self._name, "category", values=frequent, usual=texts[0])
        mean, first = self._sum / max(self._rows - self._empty, 1), ""
        if self._kind == "date":
            first = (EPOCH + self._first * DAY).isoformat(" ").removesuffix("+00:00")
            first = first.removesuffix(" 00:00:00")
            mean -= _read(first)[1]
        fill = float(f"{mean:.{DIGITS}g}") if self._empty else None
        return Column(self._name, self._kind or "number", fill, first=first)


def column_numbers(column: Column, batch: RowBatch, source: str, problems: Problems) -> Floats:
    """Return the numbers of a column in a few rows."""
    cells = batch.cells(source, "number" if column.kind == "number" else "text")
    if cells.wrong:
        cells = batch.cells(source, "text")
    plain = column.kind == "number" and cells.family == "number"
    raws: list[str | None] = [None] if plain else [*cells.words, None]
    codes: Ints = np.where(cells.null, len(raws) - 1, -1 if plain else cells.values)
    table = np.zeros((len(raws), len(column.coordinates)))
    present: list[int] = np.unique(codes[codes >= 0]).tolist()  # every distinct text once
    for code in present:
        try:
            table[code] = column.numbers(raws[code])
        except ValueError as error:
            problems.where(codes == code, source, str(error))
    if not plain:
        return table[codes]
    numbers = np.where(cells.null, table[0, 0], cells.values)
    words = f"this must be {NEEDED['number']}, or empty (null) if nobody knows"
    problems.where(~np.isfinite(numbers), source, lambda row: f"is {numbers[row]}; {words}")
    return np.column_stack([numbers, cells.null.astype(float)])[:, : table.shape[1]]


def _read(raw: Raw) -> tuple[Kind, float]:
    """Return what a value is, and a number, or a date in days, as a number."""
    text = str(raw).strip()
    if text.lower() in BOOLS:
        return "number", BOOLS[text.lower()]
    if isinstance(parse_number(text), int | float):
        return "number", float(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return "category", math.nan
    return "date", (when.replace(tzinfo=when.tzinfo or UTC) - EPOCH) / DAY


def _word(raw: Raw) -> str:
    """Return a category as text: that of a number does not depend on its type."""
    text = "" if raw is None else str(raw).strip()
    if isinstance(parse_number(text), float):
        text = text.removesuffix(".0")
    return text.lower() if text in ("True", "False") else text
