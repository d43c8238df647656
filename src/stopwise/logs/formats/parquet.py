"""Logs in Parquet: columns straight into arrays; written as JSON lines, converted at the end."""

import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidLogError, missing_package
from stopwise.logs.cells import Cells, RowBatch, Use, gather
from stopwise.logs.columns import Field, Layout, Row
from stopwise.logs.formats.json_lines import JsonLinesWriter
from stopwise.logs.problems import NoRowsError
from stopwise.reporting.files import put_in_place

BUFFER = 1 << 20  # bytes of each column that are read ahead
GROUP = 65_536  # rows that are in memory when a file is written


def arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow, which is optional and slow to import, or a module of it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package("a log in Parquet", "pyarrow", "logs") from error


class ParquetReader:
    """A Parquet file, read a few rows at a time and only the columns that are needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as file:
            self.names: tuple[str, ...] = tuple(file.schema_arrow.names)
            self.rows: int | None = file.metadata.num_rows
        if not self.rows:
            raise NoRowsError(f"{path.name} has no rows")

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        first = 0
        with self._opened() as file:
            for record in file.iter_batches(batch_size=size, columns=list(layout.used)):
                yield RowBatch(first, len(record), partial(self._cells, record))
                first += len(record)

    @contextmanager
    def _opened(self) -> Generator[Any]:
        """Open the file; if pyarrow cannot read it, raise an error that names it."""
        pa, pq = arrow(), arrow("pyarrow.parquet")
        try:
            # A buffer for each column; otherwise row groups would be held in memory, however long.
            with pq.ParquetFile(self._path, buffer_size=BUFFER, pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError | InvalidLogError):
                raise
            raise InvalidLogError(
                f"{self._path.name} cannot be read as Parquet: it is damaged, cut off or of "
                f"another format ({str(error).splitlines()[0]})"
            ) from error

    def _cells(self, record: Any, column: str, use: Use) -> Cells:
        pa, array = arrow(), record.column(column)
        types = pa.types
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        kind = array.type
        null: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
        if null.all():
            return Cells("number", np.zeros(len(array), dtype=np.int64), null)
        if str(kind) in {"string", "large_string", "string_view"}:
            coded = array.dictionary_encode()
            codes = coded.indices.fill_null(0).to_numpy().astype(np.int64)
            return Cells("text", codes, null, tuple(coded.dictionary.to_pylist()))
        if (
            types.is_uint64(kind)
            or use == "text"
            or (types.is_decimal(kind) and use == "answer")
            or (types.is_boolean(kind) and use == "arm")
        ):
            return gather(list(map(_exact, array.to_pylist())), use)
        if types.is_boolean(kind) or types.is_integer(kind):
            array = array.cast(pa.int64())
        elif types.is_floating(kind) or types.is_decimal(kind):
            array = array.cast(pa.float64())
        else:
            raise InvalidLogError(
                f"{self._path.name}: column {column!r} is of type {kind}; logs hold numbers, bools "
                "and text"
            )
        return Cells("number", array.fill_null(0).to_numpy(), null)


def _exact(value: Any) -> Any:
    """Return a decimal as int or float; itself, which is no answer, if neither equals it."""
    for kind in (int, float) if isinstance(value, Decimal) else ():
        if Decimal(repr(kind(value))) == value:
            return kind(value)
    return value


class ParquetWriter:
    """Writes Parquet: rows go to a file of JSON lines beside it, which `close` converts."""

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        if append:
            raise InvalidLogError(
                f"{path.name}: a Parquet file ends in its table of contents, so nothing can be "
                "appended; write another file, or CSV or JSON lines"
            )
        arrow("pyarrow.parquet")
        self._path = path
        self._fields = fields
        self._types: set[type] = set()  # of the answers
        self._rows = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.jsonl")
        try:
            self._lines = JsonLinesWriter(self._rows, fields, append=False)
        except OSError as error:
            error.filename = str(path)  # the one that the user knows
            raise

    def write(self, row: Row) -> None:
        """Write a row to the JSON lines."""
        self._lines.write(row)
        answers = (v for f, v in zip(self._fields, row, strict=True) if f.holds == "answer")
        self._types.update(map(type, answers))

    def close(self) -> None:
        """Convert the rows and put the file in its place; if that fails, leave the JSON lines."""
        self._lines.close()
        part = self._rows.with_suffix(".part")
        try:
            self._convert(part)
            put_in_place(part, self._path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            error.add_note(f"{self._path.name} is not written. Its rounds are in {self._rows}.")
            raise
        self._rows.unlink()

    def _convert(self, part: Path) -> None:
        pa, pq = arrow(), arrow("pyarrow.parquet")
        # The narrowest type that holds all answers; bools among numbers are 0 and 1.
        answer, number = pa.null(), None
        for kind, wider in (
            (bool, pa.bool_),
            (int, pa.int64),
            (float, pa.float64),
            (str, pa.string),
        ):
            if kind in self._types:
                answer, number = wider(), kind
        types = {"text": pa.string(), "number": pa.float64(), "answer": answer}
        types["time"] = pa.timestamp("us", tz="UTC")
        schema = pa.schema([(field.name, types[field.holds]) for field in self._fields])
        decoder = msgspec.json.Decoder()
        with self._rows.open("rb") as lines, pq.ParquetWriter(part, schema) as file:
            while rows := list(map(decoder.decode, islice(lines, GROUP))):
                columns: list[Any] = []
                for field, column in zip(self._fields, schema, strict=True):
                    values = rows
                    for key in field.path:
                        values = [row[key] for row in values]
                    if field.holds == "answer" and number is not None:
                        values = [None if v is None else number(v) for v in values]
                    read_as = pa.string() if field.holds == "time" else column.type
                    columns.append(pa.array(values, read_as).cast(column.type))
                file.write_table(pa.table(columns, schema=schema))
