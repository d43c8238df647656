"""Logs in CSV: text, of which numbers are made."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stopwise.errors import InvalidLogError
from stopwise.logs.answers import Family
from stopwise.logs.cells import Cells, Use, gather
from stopwise.logs.columns import Layout
from stopwise.logs.lines import decoded, grouped
from stopwise.logs.problems import NoRowsError, place

# Outputs that are numbers in so many rows, with no exception, are numbers.
LOOKED_AT = 65_536

KINDS = ("number", "bool", "text")  # what the column ``kind`` may say
BOOLS = {"true": True, "false": False}


class CsvRows:
    """A CSV file, read a few rows at a time."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        _, header = next(self._cells(), (0, None))
        if header is None:
            raise NoRowsError(f"{path.name} is empty: it has no columns and no rows")
        self.names: tuple[str, ...] = tuple(name.strip() for name in header)
        if next(islice(self._cells(), 1, None), None) is None:
            raise NoRowsError(f"{path.name} has no rows below its header")

    def describe(self) -> str:
        """Tell the columns, for the fingerprint."""
        return repr(self.names)

    def batches(self, layout: Layout, size: int, start: int) -> Iterator["CsvBatch"]:
        """Yield all rows from number ``start`` on, up to ``size`` at a time."""
        family = self._family(layout) if layout.kind is None else None
        first = start
        for lines, rows in grouped(islice(self._records(), start, None), size):
            yield CsvBatch(first, lines, rows, self.names, layout, family, self._path.name)
            first += len(rows)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield every row below the header, with the line on which it ends."""
        for number, (line, cells) in enumerate(islice(self._cells(), 1, None)):
            if len(cells) != len(self.names):
                raise InvalidLogError(
                    f"{place(self._path.name, number, line)} has {len(cells)} cells under "
                    f"{len(self.names)} columns; is it cut off, or a comma not in quotation marks?"
                )
            yield line, cells

    def _cells(self) -> Iterator[tuple[int, list[str]]]:
        """Yield every row, the header first, with the line on which it ends."""
        row = 0
        with self._path.open("rb") as file:
            reader = csv.reader(decoded(file, self._path.name), strict=True)
            try:
                for cells in reader:
                    if cells:  # an empty line has none
                        yield reader.line_num, cells
                        row += 1
            except csv.Error as error:
                raise InvalidLogError(
                    f"{place(self._path.name, max(row - 1, 0), reader.line_num)}: {error}; is it "
                    "cut off, or a quotation mark missing?"
                ) from error

    def _family(self, layout: Layout) -> Family:
        """Look at the first rows to see whether outputs and labels are numbers."""
        columns = [self.names.index(name) for name in layout.answers]
        try:
            for _, cells in islice(self._records(), LOOKED_AT):
                if any(isinstance(_number(cells[k].strip()), str) for k in columns):
                    return "text"
        except InvalidLogError:
            pass  # it will be met again, in its turn
        return "number"


class CsvBatch:
    """A few rows of a CSV file."""

    def __init__(
        self,
        first: int,
        lines: Sequence[int],
        rows: Sequence[list[str]],
        names: Sequence[str],
        layout: Layout,
        family: Family | None,
        file: str,
    ) -> None:
        self.first = first
        self.n = len(rows)
        self._lines = lines
        self._columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        self._layout = layout
        self._family = family
        self._file = file

    def line(self, row: int) -> int:
        """Return the line on which a row ends, from 1."""
        return self._lines[row]

    def cells(self, column: str, use: Use) -> Cells:
        """Return a column, read as what it is used for."""
        texts = self._columns[column]
        if use == "arm":
            return gather([text.strip() or None for text in texts])
        if use == "number":
            try:
                numbers = np.array(list(map(float, texts)))
            except ValueError:
                numbers = None
            if numbers is None or "_" in "".join(texts):  # which float would pass over
                return gather([_number(text.strip()) for text in texts])
            return Cells("number", numbers)
        if self._layout.kind is not None:
            return gather(self._declared(column, texts, self._columns[self._layout.kind]))
        if self._family == "text":
            return gather([text.strip() or None for text in texts])
        return gather([_number(text.strip()) for text in texts])

    def _declared(self, column: str, texts: Sequence[str], kinds: Sequence[str]) -> list[Any]:
        """Return answers as the column ``kind`` says they are."""
        values: list[Any] = []
        for row, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
            if kind == "text":
                values.append(text if text or self._answered(row, column) else None)
            elif kind == "bool" and text in BOOLS:
                values.append(BOOLS[text])
            elif kind in KINDS:
                values.append(_number(text))
            elif kind or text:
                raise InvalidLogError(
                    f"{place(self._file, self.first + row, self._lines[row], 'kind')}: is "
                    f"{kind!r}; it must say what the outputs are: {', '.join(KINDS)}. Is the line "
                    "cut off?"
                )
            else:
                values.append(None)
        return values

    def _answered(self, row: int, column: str) -> bool:
        """Tell whether an empty cell is an empty text: that of an arm up to the stop is."""
        layout = self._layout
        if layout.stop is None or column not in layout.outputs:
            return False
        stop = self._columns[layout.stop][row]
        return stop in layout.arms[layout.outputs.index(column) :]


def _number(text: str) -> int | float | str | None:
    """Return the number a text stands for, None if it is empty, and the text if there is none."""
    if not text:
        return None
    if "_" in text:  # 1_000 is a number to Python, but hardly to anybody who writes tables
        return text
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
