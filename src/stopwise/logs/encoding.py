"""Encoding of raw context columns as numbers."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.checks import short_repr
from stopwise.errors import InvalidContextError, InvalidParameterError
from stopwise.logs.rows import Problems, RowBatch, describe_value, parse_number
from stopwise.text import suggestion

Raw: TypeAlias = "str | float | bool | None"  # a value in a table or a request
Kind: TypeAlias = Literal["number", "date", "category"]

SAMPLE_ROWS = 2_048  # if they are all plain numbers, an encoding is fitted without reading more
MIN_CATEGORY_ROWS, MIN_CATEGORY_SHARE = 10, 0.01  # rarer categories share a coordinate
MAX_CATEGORIES = 10_000  # distinct texts of a column
DIGITS = 12  # of a mean, so that it does not depend on the size of batches
UNCHANGED = "number, unchanged"
PLURAL = {"number": "numbers", "date": "dates", "category": "categories"}
EXPECTED = {"number": "a finite number such as 0.5", "date": "a date such as 2026-01-31"}
BOOLS = {"true": 1.0, "false": 0.0}
AMBIGUOUS = re.compile(r"(?=.*\d)[\d\s.,:/_-]+")  # 0,5 or 31/1/2026: neither number nor category
DAY, EPOCH = timedelta(days=1), datetime(1970, 1, 1, tzinfo=UTC)


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """The encoding of one column."""

    name: str
    kind: Kind = "number"
    fill: float | None = None  # replaces empty cells; None if they are invalid
    values: tuple[str, ...] = ()  # categories with their own coordinate
    usual: str = ""  # the most frequent category: zeros in all coordinates
    first: str = ""  # the date that is day 0

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates that encode the column."""
        if self.kind == "category":
            return tuple(f"{self.name}={v or '(empty)'}" for v in (*self.values, "(other)"))
        gap = (f"{self.name} is empty",) if self.fill is not None else ()
        return (self.name, *gap)

    def numbers(self, raw: Raw) -> list[float]:
        """Return the coordinates of a value; raise ValueError if the value is invalid."""
        if self.kind == "category":
            indicators = [float(_category(raw) == value) for value in self.values]
            return [*indicators, float(_category(raw) not in (self.usual, *self.values))]
        if raw is None and self.fill is not None:
            return [self.fill, 1.0]
        kind, value = _parse(raw)
        if kind != self.kind or not math.isfinite(value):
            if raw is not None:
                raise ValueError(f"is {describe_value(raw)}; it must be {EXPECTED[self.kind]}")
            raise ValueError(
                "is empty, but the encoding was fitted to rows without empty cells (at least the "
                f"first {SAMPLE_ROWS:,}); give it a value, or fit the encoding to a log with an "
                "empty cell in these rows, so that the mean replaces empty cells"
            )
        value -= _parse(self.first)[1] if self.kind == "date" else 0.0
        return [value, 0.0][: len(self.coordinates)]

    def describe(self) -> str:
        """Return the encoding in words, for reports."""
        if self.kind == "category":
            categories = ", ".join(v or "(empty)" for v in (*self.values, "all other values"))
            return f"category: 0 or 1 for each of {categories}; zeros for {self.usual or '(empty)'}"
        text = f"days since {self.first}" if self.kind == "date" else UNCHANGED
        if self.fill is not None:
            text += f"; empty cells become the mean ({self.fill:.6g}), marked by a 0/1 column"
        return text


class Encoding(msgspec.Struct, frozen=True):
    """Encodes named values as the numbers of a context; `Log.encoding` is fitted to a log.

    To save an encoding with a policy, set ``policy.encoding = log.encoding.to_spec()``. A service
    accepts the same spec as the ``context`` of a cascade.

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
        """The names of the coordinates of a context."""
        return tuple(name for column in self.columns for name in column.coordinates)

    def vector(self, values: Mapping[str, Raw]) -> list[float]:
        """Return the context for named values; raise `InvalidContextError` if one is invalid."""
        names = {column.name for column in self.columns}
        problems: list[str] = []
        if missing := sorted(names - set(values)):
            problems.append(f"missing context values: {', '.join(missing)}")
        if unknown := sorted(set(values) - names):
            hint = suggestion(unknown[0], sorted(names))
            problems.append(f"unknown context values: {', '.join(unknown)}; {hint}")
        if problems:
            raise InvalidContextError("; ".join(problems))
        numbers: list[float] = []
        for column in self.columns:
            try:
                numbers += column.numbers(values[column.name])
            except ValueError as error:
                raise InvalidContextError(f"{column.name!r} {error}") from None
        return numbers

    def rows(self, batch: RowBatch, sources: Mapping[str, str], problems: Problems) -> Floats:
        """Return the contexts of rows; ``sources`` maps names to columns of the file."""
        blocks = [column_numbers(c, batch, sources[c.name], problems) for c in self.columns]
        return np.hstack([np.empty((batch.n, 0)), *blocks])

    def describe(self) -> dict[str, str]:
        """Return the encoding of each column in words, for reports."""
        return {column.name: column.describe() for column in self.columns}

    def to_spec(self) -> dict[str, Any]:
        """Return the encoding as plain values, ready for JSON."""
        return msgspec.json.decode(msgspec.json.encode(self))  # lists, as read from a file

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> "Encoding":
        """Return the encoding that `to_spec` describes."""
        try:
            encoding = msgspec.convert(spec, Encoding)
        except msgspec.ValidationError as error:
            raise InvalidParameterError(f"invalid encoding: {error}") from error
        for column in encoding.columns:
            if column.kind == "date" and _parse(column.first)[0] != "date":
                raise InvalidParameterError(
                    f"invalid encoding: 'first' of the date column {short_repr(column.name)} must "
                    f"be a date, got {short_repr(column.first)}"
                )
        return encoding


def fit(batches: Iterable[RowBatch], sources: Mapping[str, str], log: str) -> Encoding:
    """Fit an encoding to columns; read only `SAMPLE_ROWS` rows if these are all plain numbers."""
    columns = [_ColumnFit(name, source) for name, source in sources.items()]
    for batch in batches:
        problems = Problems(log, batch.first, batch.lines)
        for column in columns:
            column.add(batch, problems)
        problems.raise_any()
        if batch.first + batch.n >= SAMPLE_ROWS and all(column.plain for column in columns):
            return Encoding(tuple(Column(name) for name in sources))
    return Encoding(tuple(column.encoding() for column in columns))


class _ColumnFit:
    """Statistics of one column, from which its encoding is built."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source
        self._kind: Kind | None = None
        self._rows = self._empty = 0
        self._sum, self._first = 0.0, math.inf  # of numbers, or of dates in days
        self._texts: Counter[str] = Counter()

    def add(self, batch: RowBatch, problems: Problems) -> None:
        cells = batch.cells(self._source, "number")
        self._rows += batch.n
        for row, cell in cells.invalid.items():
            if cell.family is None:
                message = f"is {cell.description}; it must be a number, a text or a date"
                problems.at(row, self._source, message)
        if cells.family == "number" and not cells.invalid:
            # `Encoding.rows` rejects infinite and NaN values.
            values = cells.values[~cells.null & np.isfinite(cells.values)]
            with np.errstate(over="ignore"):  # in the sum of very large numbers
                distinct = [(0, values.mean(), len(values))] if len(values) else []
        else:
            cells = batch.cells(self._source, "text")
            counts = np.bincount(cells.values[~cells.null], minlength=len(cells.texts)).tolist()
            distinct = [(k, cells.texts[k], n) for k, n in enumerate(counts) if n]
        self._empty += int(cells.null.sum())
        for code, raw, n in distinct:
            kind, value = _parse(raw)
            self._kind = self._kind or kind
            if kind != self._kind or (kind == "category" and AMBIGUOUS.fullmatch(raw)):
                message = f"is {describe_value(raw)}"
                if kind != self._kind:
                    message += f" in a column of {PLURAL[self._kind]}"
                message += (
                    "; write numbers as 0.5, dates as 2026-01-31 and categories with a letter, and "
                    "leave unknown cells empty"
                )
                where = ~cells.null & ((cells.values == code) | (cells.family == "number"))
                problems.where(where, self._source, message)
            elif kind == "category":
                self._texts[_category(raw)] += n
            elif math.isfinite(value):
                self._sum += n * value
                self._first = min(self._first, value)
        if len(self._texts) > MAX_CATEGORIES:
            message = (
                f"has more than {MAX_CATEGORIES:,} distinct texts, too many for a category; leave "
                "the column out"
            )
            problems.at(batch.n - 1, self._source, message)

    @property
    def plain(self) -> bool:
        """Whether all cells so far are numbers, none of them empty."""
        return self._kind == "number" and not self._empty

    def encoding(self) -> Column:
        """Return the encoding of the column."""
        if self._kind == "category":
            self._texts[""] += self._empty
            texts = sorted(self._texts, key=lambda text: (-self._texts[text], text))
            least = max(MIN_CATEGORY_ROWS, MIN_CATEGORY_SHARE * self._rows)
            frequent = tuple(text for text in texts[1:] if self._texts[text] >= least)
            return Column(self._name, "category", values=frequent, usual=texts[0])
        mean, first = self._sum / max(self._rows - self._empty, 1), ""
        if self._kind == "date":
            first = (EPOCH + self._first * DAY).isoformat(" ").removesuffix("+00:00")
            first = first.removesuffix(" 00:00:00")
            mean -= _parse(first)[1]
        fill = float(f"{mean:.{DIGITS}g}") if self._empty else None
        return Column(self._name, self._kind or "number", fill, first=first)


def column_numbers(column: Column, batch: RowBatch, source: str, problems: Problems) -> Floats:
    """Return the coordinates of a column, (n, coordinates), for a batch of rows."""
    cells = batch.cells(source, "number" if column.kind == "number" else "text")
    if cells.invalid:
        cells = batch.cells(source, "text")
    plain = column.kind == "number" and cells.family == "number"
    raws: list[str | None] = [None] if plain else [*cells.texts, None]
    codes: Ints = np.where(cells.null, len(raws) - 1, -1 if plain else cells.values)
    table = np.zeros((len(raws), len(column.coordinates)))
    present: list[int] = np.unique(codes[codes >= 0]).tolist()
    for code in present:
        try:
            table[code] = column.numbers(raws[code])
        except ValueError as error:
            problems.where(codes == code, source, str(error))
    if not plain:
        return table[codes]
    numbers = np.where(cells.null, table[0, 0], cells.values)
    problems.where(
        ~np.isfinite(numbers),
        source,
        lambda row: (
            f"is {numbers[row]}; it must be {EXPECTED['number']}, or empty (null) if unknown"
        ),
    )
    return np.column_stack([numbers, cells.null.astype(float)])[:, : table.shape[1]]


def _parse(raw: Raw) -> tuple[Kind, float]:
    """Return the kind and the number of a value: days since 1970 for dates, NaN for categories."""
    text = str(raw).strip()
    if text.lower() in BOOLS:
        return "number", BOOLS[text.lower()]
    if isinstance(parse_number(text), int | float):
        return "number", float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "category", math.nan
    return "date", (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) / DAY


def _category(raw: Raw) -> str:
    """Return a category as text; 1 and 1.0 give the same text, as do True and "true"."""
    text = "" if raw is None else str(raw).strip()
    if isinstance(parse_number(text), float):
        text = text.removesuffix(".0")
    return text.lower() if text in ("True", "False") else text
