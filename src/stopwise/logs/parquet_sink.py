"""Writing logs in Parquet: row group by row group to a file beside, moved into place at the end."""

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
        self._beside = self._fresh()
        self._writer = self._pq.ParquetWriter(self._beside, self._schema())

    def write(self, row: Row) -> None:
        """Take a row; every so often they are written."""
        for field, value in zip(self._fields, row, strict=True):
            if isinstance(value, str):
                _check_encodable(value, field.name, self._path.name)
        self._rows.append(row)
        if len(self._rows) >= GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left and put the file in its place."""
        try:
            self._flush()
            self._writer.close()
            self._beside.replace(self._path)
        except BaseException:
            self._beside.unlink(missing_ok=True)
            raise

    def _flush(self) -> None:
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
        if kind != self._answers:
            self._widen(kind)
        columns = [
            self._pa.array(_fitting([row[k] for row in self._rows], field, kind), column.type)
            for k, (field, column) in enumerate(zip(self._fields, self._schema(), strict=True))
        ]
        self._writer.write_table(self._pa.table(columns, schema=self._schema()))
        self._rows = []

    def _wider(self, answers: Sequence[Any]) -> Any:
        """Return the narrowest type that holds these answers and those written before."""
        pa = self._pa
        widths = [pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string()]
        types: set[type] = set(map(type, answers))
        held = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
        return max([self._answers, *(held[each] for each in types)], key=widths.index)

    def _widen(self, kind: Any) -> None:
        """Write anew what was written, with a wider type of answers: 1 becomes 1.0."""
        self._answers = kind
        self._writer.close()
        narrow, self._beside = self._beside, self._fresh()
        schema = self._schema()
        self._writer = self._pq.ParquetWriter(self._beside, schema)
        with self._pq.ParquetFile(narrow) as before:
            for record in before.iter_batches(batch_size=GROUP):
                self._writer.write_table(self._pa.Table.from_batches([record]).cast(schema))
        narrow.unlink()

    def _schema(self) -> Any:
        pa = self._pa
        types = {
            "text": pa.string(),
            "time": pa.timestamp("us", tz="UTC"),
            "number": pa.float64(),
            "answer": self._answers,
        }
        return pa.schema([(field.name, types[field.holds]) for field in self._fields])

    def _fresh(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex[:8]}")


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
