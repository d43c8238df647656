"""Writing logs in Parquet: row group by row group to a file beside, moved into place at the end."""

import io
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stopwise.errors import InvalidLogError
from stopwise.logs.arrow import arrow
from stopwise.logs.fields import Field, Row

GROUP = 65_536  # rows that are held in memory before they are written


class ParquetSink:
    """Writes Parquet. The file is in its place when `close` returns, and not before."""

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
        self._file = self._begun(self._answers)

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
        answers = [
            value
            for k, field in enumerate(self._fields)
            if field.holds == "answer"
            for value in (row[k] for row in self._rows)
            if value is not None
        ]
        kind = self._wider(answers)
        schema = self._schema(kind)
        columns = [
            self._pa.array(_fitting([row[k] for row in self._rows], field, kind), column.type)
            for k, (field, column) in enumerate(zip(self._fields, schema, strict=True))
        ]
        table = self._pa.table(columns, schema=schema)
        if kind != self._answers or self._file.ended:  # ended: widening it has failed before
            self._widen(kind)
        self._file.encode(table)
        self._rows = []
        self._file.drain()

    def _wider(self, answers: Sequence[Any]) -> Any:
        """Return the narrowest type that holds these answers and those written before."""
        pa = self._pa
        widths = [pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string()]
        types: set[type] = set(map(type, answers))
        held = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
        return max([self._answers, *(held[each] for each in types)], key=widths.index)

    def _widen(self, kind: Any) -> None:
        """Write anew what was written, with a wider type of answers: 1 becomes 1.0."""
        self._file.end()
        wide = self._begun(kind)
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

    def _begun(self, kind: Any) -> "_Growing":
        beside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex[:8]}")
        return _Growing(beside, self._pq, self._schema(kind))

    def _schema(self, kind: Any) -> Any:
        pa = self._pa
        types = {
            "text": pa.string(),
            "time": pa.timestamp("us", tz="UTC"),
            "number": pa.float64(),
            "answer": kind,
        }
        return pa.schema([(field.name, types[field.holds]) for field in self._fields])


class _Growing:
    """A Parquet file under way. What the disk will not take now is kept and tried again."""

    def __init__(self, path: Path, pq: Any, schema: Any) -> None:
        self.path = path
        self.ended = False
        self._waiting = io.BytesIO()  # pyarrow cannot go on after a write that failed; this can
        self._writer = pq.ParquetWriter(self._waiting, schema)
        self._size = 0
        self._file = path.open("wb", buffering=0)

    def encode(self, table: Any) -> None:
        """Take a row group; `drain` brings it to the disk."""
        self._writer.write_table(table)

    def drain(self) -> None:
        """Write what is waiting: all of it or, if the disk will not have it, nothing."""
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
        """Make it a whole file; a second time does nothing."""
        if self._file.closed:
            return
        self.ended = True
        self._writer.close()
        self.drain()
        self._file.close()

    def discard(self) -> None:
        """Leave nothing of it behind."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def _fitting(values: list[Any], field: Field, kind: Any) -> list[Any]:
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
