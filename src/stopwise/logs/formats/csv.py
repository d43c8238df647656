"""Reading and writing logs in CSV."""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stopwise.errors import InvalidLogError
from stopwise.logs.formats.line_writer import Field, LineWriter, Row
from stopwise.logs.rows import (
    CellReader,
    Cells,
    InvalidCell,
    Layout,
    Record,
    RowBatch,
    Use,
    batches_of,
    decode_lines,
    describe_row,
    gather,
    parse_number,
)

SAMPLE_ROWS = 65_536  # if all outputs in these rows are numbers, outputs are numbers
DELIMITERS = ",;\t"

KINDS = ("number", "bool", "text")  # valid values of the column ``kind``
BOOLS = {"true": True, "false": False}
_SPECIAL = re.compile('[",\r\n]')  # cells with one of these must be quoted


class CsvReader:
    """Reads a CSV file; the delimiter (comma, semicolon or tab) is detected from the header."""

    rows: int | None = None  # unknown in CSV
    once = False

    def __init__(self, path: Path) -> None:
        self._path = path
        header = None
        for self._delimiter in DELIMITERS:
            _, header = next(self._lines(), (0, None))
            if header is None or len(header) > 1:
                break
        if header is None:
            raise InvalidLogError(f"{path.name} is empty: it has no columns and no rows")
        self.names = tuple(name.strip() for name in header)
        if next(islice(self._lines(), 1, None), None) is None:
            raise InvalidLogError(f"{path.name} has no rows below its header")

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        text = layout.kind is None and self._holds_text(layout)
        read = partial(self._cells_of, layout, text)
        return batches_of(self._records(), read, self._path.name, size)

    def _records(self) -> Iterator[Record]:
        for line, cells in islice(self._lines(), 1, None):
            if len(cells) == len(self.names):
                yield line, cells
            else:
                counts = f"has {len(cells)} cells but the header has {len(self.names)}"
                yield line, f"{counts}; check for a truncated line or an unquoted delimiter"

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the last line number and the cells of every row, the header first."""
        row = 0
        with self._path.open("rb") as file:
            lines = decode_lines(file, self._path.name)
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            try:
                for cells in reader:
                    if cells:  # an empty line has none
                        yield reader.line_num, cells
                        row += 1
            except csv.Error as error:
                where = describe_row(max(row - 1, 0), reader.line_num)
                raise InvalidLogError(
                    f"{self._path.name}, {where}: {error}; check for a truncated line or a missing "
                    "quotation mark"
                ) from error

    def _holds_text(self, layout: Layout) -> bool:
        """Return whether an output or label in the first rows is not a number."""
        columns = [self.names.index(name) for name in layout.answers]
        try:
            return bool(columns) and any(
                isinstance(parse_number(cells[k].strip()), str)
                for _, cells in islice(self._records(), SAMPLE_ROWS)
                if not isinstance(cells, str)
                for k in columns
            )
        except InvalidLogError:
            return False  # raised again when that row is read

    def _cells_of(self, layout: Layout, text: bool, rows: Sequence[Any]) -> CellReader:
        """Return a function that parses columns of rows; ``text`` is whether answers are texts."""
        columns = dict(zip(self.names, zip(*rows, strict=True), strict=True))

        def read(column: str, use: Use) -> Cells:
            texts = columns[column]
            if use == "answer" and layout.kind is not None:
                return _declared(column, columns, layout)
            if use == "text" or (use == "answer" and text):
                return gather([cell.strip() or None for cell in texts])
            if use == "number" and "_" not in "".join(texts):  # float() would ignore it
                try:
                    numbers = np.array(list(map(float, texts)))
                except ValueError:
                    pass  # the cell is located below
                else:
                    return Cells("number", numbers, np.zeros(len(texts), dtype=np.bool_))
            return gather([parse_number(cell.strip()) for cell in texts])

        return read


def _declared(column: str, columns: dict[str, Any], layout: Layout) -> Cells:
    """Return a column of answers, each parsed as the cell ``kind`` of the row declares."""
    values: list[Any] = []
    invalid: dict[int, InvalidCell] = {}
    texts, kinds = columns[column], columns[layout.kind or ""]
    stops = columns[layout.stop] if layout.stop else ("",) * len(texts)
    # An empty cell of an arm up to the stop is an empty text.
    from_arm_on = layout.arms[layout.outputs.index(column) :] if column in layout.outputs else ()
    for row, (text, kind, stop) in enumerate(zip(texts, kinds, stops, strict=True)):
        if kind == "text":
            values.append(text if text or stop in from_arm_on else None)
        elif kind == "bool" and text in BOOLS:
            values.append(BOOLS[text])
        elif kind in KINDS:
            values.append(parse_number(text))
        else:
            values.append(None)
            if kind or text:
                message = (
                    f"in a row of the invalid kind {kind!r} (expected {', '.join(KINDS)}; check "
                    "for a truncated line)"
                )
                invalid[row] = InvalidCell(message)
    cells = gather(values)
    return msgspec.structs.replace(cells, invalid={**cells.invalid, **invalid})


class CsvWriter(LineWriter):
    """Writes CSV; the last column, ``kind``, tells 1 from "1" and reveals truncated lines."""

    _extra_columns = ("kind",)
    _multiline_cells = True

    def _header(self) -> bytes:
        return csv_line(self._names)

    def _existing_names(self) -> list[str]:
        with self._path.open("rb") as file:
            return next(csv.reader(decode_lines(file, self._path.name)), list[str]())

    def _is_complete(self, line: bytes) -> bool:
        cells = next(csv.reader([line.decode(errors="replace")]), [""])
        return len(cells) == len(self._names) and cells[-1] in KINDS

    def _encode(self, row: Row) -> bytes:
        cells = list(zip(self._fields, row, strict=True))
        answers = [v for field, v in cells if field.holds == "answer" and v is not None]
        if not answers:
            kind = ""
        elif isinstance(answers[0], str):
            kind = "text"
        elif all(isinstance(answer, bool) for answer in answers):
            kind = "bool"
        else:
            kind = "number"
        texts = [self._cell(field, value, kind) for field, value in cells]
        return csv_line([*texts, kind])

    def _cell(self, field: Field, value: Any, kind: str) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            as_text = kind == "bool" or field.holds == "bool"
            return str(value).lower() if as_text else str(int(value))
        text = str(value)
        if len(text) > csv.field_size_limit():
            raise InvalidLogError(
                f"{self._path.name}: {field.name!r} has {len(text):,} characters, but CSV readers "
                f"accept at most {csv.field_size_limit():,}; use Parquet or JSON lines"
            )
        return text


def csv_line(cells: Sequence[str]) -> bytes:
    """Return cells as a line of CSV."""
    # The csv module of Python 3.11 leaves a carriage return unquoted, which its reader rejects.
    quoted = (
        '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell for cell in cells
    )
    return (",".join(quoted) + "\n").encode()
