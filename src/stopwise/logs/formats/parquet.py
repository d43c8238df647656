"""Logs in Parquet: columns straight into arrays; written beside, moved into place at the end."""

import io
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidLogError, missing_package
from stopwise.logs.cells import Cells, RowBatch, Use, WrongCell
from stopwise.logs.columns import Field, Layout, Row
from stopwise.logs.problems import NoRowsError

BUFFER = 1 << 20  # bytes of each column that are read ahead
GROUP = 65_536  # rows that are held in memory before they are written


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
        with _readable(path), self._open() as file:
            self.names: tuple[str, ...] = tuple(file.schema_arrow.names)
            self.rows: int | None = file.metadata.num_rows
        if not self.rows:
            raise NoRowsError(f"{path.name} has no rows")

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        first = 0
        with _readable(self._path), self._open() as file:
            for record in file.iter_batches(batch_size=size, columns=list(layout.used)):
                yield RowBatch(first, len(record), partial(self._cells, record))
                first += len(record)

    def _open(self) -> Any:
        # A buffer for each column; otherwise row groups would be held in memory, however long.
        return arrow("pyarrow.parquet").ParquetFile(
            self._path, buffer_size=BUFFER, pre_buffer=False
        )

    def _cells(self, record: Any, column: str, use: Use) -> Cells:
        pa, array = arrow(), record.column(column)
        types = pa.types
        if types.is_dictionary(array.type) and (
            not _is_text(pa, array.type.value_type) or array.dictionary.null_count
        ):
            array = array.dictionary_decode()
        kind = array.type
        null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if array.null_count == len(array):
            return Cells("empty", np.zeros(len(array)), null)
        if types.is_dictionary(kind) or _is_text(pa, kind):
            coded = array if types.is_dictionary(kind) else array.dictionary_encode()
            codes = _plain(coded.indices).astype(np.int64)
            return Cells("text", codes, null, tuple(coded.dictionary.to_pylist()))
        if types.is_boolean(kind):
            return Cells("bool", _plain(array), null)
        if types.is_integer(kind):
            values = _plain(array)
            large = np.flatnonzero(values >= 2**63) if values.dtype == np.uint64 else ()
            wrong = {
                int(row): WrongCell(f"{values[row]}, a number of more than 63 bits")
                for row in large
            }
            return Cells("number", values.astype(np.int64, copy=False), null, wrong=wrong)
        if types.is_decimal(kind) and use == "answer":
            return _exact(array.to_pylist(), null)
        if types.is_floating(kind) or types.is_decimal(kind):
            return Cells("number", _plain(array.cast(pa.float64())), null)
        raise InvalidLogError(
            f"{self._path.name}: column {column!r} is of type {kind}; logs hold numbers, bools and "
            "text"
        )


def _exact(decimals: list[Decimal | None], null: NDArray[np.bool_] | None) -> Cells:
    """Return decimals as numbers, of which two are equal only if the decimals are."""
    given = [Decimal(0) if value is None else value for value in decimals]
    if all(value == value.to_integral_value() and abs(value) < 2**63 for value in given):
        return Cells("number", np.array([int(value) for value in given], np.int64), null)
    wrong = {
        row: WrongCell(f"{value}, which has too many digits to be compared as a number")
        for row, value in enumerate(given)
        if Decimal(repr(float(value))) != value
    }
    return Cells("number", np.array([float(value) for value in given]), null, wrong=wrong)


def _plain(array: Any) -> NDArray[Any]:
    """Return an arrow array as numpy, zeros where it is null."""
    if array.null_count:
        array = array.fill_null(False if str(array.type) == "bool" else 0)
    return array.to_numpy(zero_copy_only=False)


def _is_text(pa: Any, kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


@contextmanager
def _readable(path: Path) -> Generator[None]:
    """Say which file pyarrow cannot read."""
    pa = arrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | InvalidLogError):
            raise
        raise InvalidLogError(
            f"{path.name} cannot be read as Parquet: it is damaged, cut off or of another format "
            f"({str(error).splitlines()[0]})"
        ) from error


class ParquetWriter:
    """Writes Parquet, row group by row group. `close` puts the file in its place."""

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        if append:
            raise InvalidLogError(
                f"{path.name}: a Parquet file ends in its table of contents, so nothing can be "
                "appended; write another file, or CSV or JSON lines"
            )
        self._pa = arrow()
        self._pq = arrow("pyarrow.parquet")
        self._path = path
        self._fields = fields
        self._rows: list[Row] = []
        self._answers: Any = self._pa.null()  # the type of outputs and labels so far
        self._file = self._begin(self._answers)

    def write(self, row: Row) -> None:
        """Take a row; every so often they are written."""
        for field, value in zip(self._fields, row, strict=True):
            if isinstance(value, str):
                _check_encodable(value, field.name, self._path.name)
        if len(self._rows) >= GROUP:
            self._flush()  # before this row is taken: if the disk is full, it is not
        self._rows.append(row)

    def close(self) -> None:
        """Write what is left and put the file in its place."""
        try:
            self._flush()
            self._file.end()
            self._file.path.replace(self._path)
        except BaseException:
            self._file.discard()
            raise

    def _flush(self) -> None:
        self._file.drain()
        if not self._rows:
            return
        columns = dict(zip(self._fields, zip(*self._rows, strict=True), strict=True))
        answers = [
            v for field, values in columns.items() if field.holds == "answer" for v in values
        ]
        kind = self._wider(answers)
        schema = self._schema(kind)
        arrays = [
            self._pa.array(_fitting(values, field, kind), column.type)
            for (field, values), column in zip(columns.items(), schema, strict=True)
        ]
        table = self._pa.table(arrays, schema=schema)
        if kind != self._answers or self._file.ended:  # ended: widening it has failed before
            self._widen(kind)
        self._file.encode(table)
        self._rows = []
        self._file.drain()

    def _wider(self, answers: Sequence[Any]) -> Any:
        """Return the narrowest type that holds these answers and those written before."""
        pa = self._pa
        widths = [pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string()]
        held = dict(zip((type(None), bool, int, float, str), widths, strict=True))
        return max(
            [self._answers, *(held[kind] for kind in set(map(type, answers)))], key=widths.index
        )

    def _widen(self, kind: Any) -> None:
        """Write again what was written, with a wider type of answers: 1 becomes 1.0."""
        self._file.end()
        wide = self._begin(kind)
        try:
            with self._pq.ParquetFile(self._file.path) as before:
                for record in before.iter_batches(batch_size=GROUP):
                    table = self._pa.Table.from_batches([record])
                    wide.encode(table.cast(self._schema(kind)))
                    wide.drain()
        except BaseException:
            wide.discard()  # what was written before is still there
            raise
        self._file, narrow = wide, self._file
        self._answers = kind
        narrow.discard()

    def _begin(self, kind: Any) -> "_PartFile":
        beside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex[:8]}")
        return _PartFile(beside, self._pq, self._schema(kind))

    def _schema(self, kind: Any) -> Any:
        pa = self._pa
        time = pa.timestamp("us", tz="UTC")
        types = {"text": pa.string(), "time": time, "number": pa.float64(), "answer": kind}
        return pa.schema([(field.name, types[field.holds]) for field in self._fields])


class _PartFile:
    """A Parquet file being written. What a full disk refuses is retained and tried again."""

    def __init__(self, path: Path, pq: Any, schema: Any) -> None:
        self.path = path
        self.ended = False
        self._waiting = io.BytesIO()  # pyarrow cannot continue after a failed write; this can
        self._writer = pq.ParquetWriter(self._waiting, schema)
        self._size = 0
        self._file = path.open("wb", buffering=0)

    def encode(self, table: Any) -> None:
        """Take a row group; `drain` writes it."""
        self._writer.write_table(table)

    def drain(self) -> None:
        """Write what is waiting: all of it or, if the disk is full, nothing."""
        left = self._waiting.getvalue()
        size = self._size + len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise
        self._size = size
        self._waiting.seek(0)
        self._waiting.truncate()

    def end(self) -> None:
        """Complete the file; a second time does nothing."""
        if self._file.closed:
            return
        self.ended = True
        self._writer.close()
        self.drain()
        self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def _fitting(values: Sequence[Any], field: Field, kind: Any) -> Sequence[Any]:
    """Return values of a column as pyarrow takes them: bools among numbers are 0 and 1."""
    if field.holds == "answer" and str(kind) in {"int64", "double"}:
        number = int if str(kind) == "int64" else float
        return [None if value is None else number(value) for value in values]
    return values


def _check_encodable(text: str, column: str, file: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidLogError(
            f"{file}: {column!r} is {text[:60]!r}, which holds what is not a character of "
            "Unicode, and cannot be written"
        ) from None
