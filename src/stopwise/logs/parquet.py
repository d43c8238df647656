"""Logs in Parquet: columns straight into arrays."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidLogError
from stopwise.logs.arrow import arrow
from stopwise.logs.cells import Cells, Use
from stopwise.logs.columns import Layout
from stopwise.logs.problems import NoRowsError, place

BUFFER = 1 << 20  # bytes of each column that are read ahead


class ParquetRows:
    """A Parquet file, read a few rows at a time and only the columns that are needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _understood(path), self._open() as file:
            schema = file.schema_arrow
            self.rows: int | None = file.metadata.num_rows
        self.names: tuple[str, ...] = tuple(schema.names)
        self._types = {name: str(schema.field(i).type) for i, name in enumerate(schema.names)}
        if not self.rows:
            raise NoRowsError(f"{path.name} has no rows")

    def describe(self) -> str:
        """Tell the columns and their types, for the fingerprint."""
        return repr(self._types)

    def batches(self, layout: Layout, size: int, start: int) -> Iterator["ParquetBatch"]:
        """Yield all rows from number ``start`` on, up to ``size`` at a time."""
        first = start
        with _understood(self._path), self._open() as file:
            groups, skip = _groups(file.metadata, start)
            chunks = file.iter_batches(
                batch_size=size, row_groups=groups, columns=list(layout.used)
            )
            for record in chunks:
                if skip >= len(record):
                    skip -= len(record)
                    continue
                part = record.slice(skip)
                skip = 0
                yield ParquetBatch(part, first, self._path.name)
                first += len(part)

    def _open(self) -> Any:
        # A buffer for each column, or else whole row groups would be held, however long.
        return arrow("pyarrow.parquet").ParquetFile(
            self._path, buffer_size=BUFFER, pre_buffer=False
        )


class ParquetBatch:
    """A few rows of a Parquet file."""

    def __init__(self, record: Any, first: int, file: str) -> None:
        self._record = record
        self._file = file
        self.first = first
        self.n: int = len(record)

    def line(self, row: int) -> None:
        """Return None: Parquet has no lines."""

    def cells(self, column: str, use: Use) -> Cells:
        """Return a column."""
        pa = arrow()
        array = self._record.column(column)
        if pa.types.is_dictionary(array.type) and (
            not _is_text(pa, array.type.value_type) or array.dictionary.null_count
        ):
            array = array.dictionary_decode()
        kind = array.type
        null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if array.null_count == len(array):
            return Cells("empty", np.zeros(len(array)), null)
        if pa.types.is_dictionary(kind) or _is_text(pa, kind):
            coded = array if pa.types.is_dictionary(kind) else array.dictionary_encode()
            codes = _plain(coded.indices).astype(np.int64)
            return Cells("text", codes, null, tuple(coded.dictionary.to_pylist()))
        if pa.types.is_boolean(kind):
            return Cells("bool", _plain(array), null)
        if pa.types.is_integer(kind):
            values = _plain(array)
            if values.dtype == np.uint64 and values.max() >= 2**63:
                row = int((values >= 2**63).argmax())
                raise InvalidLogError(
                    f"{place(self._file, self.first + row, None, column)}: is {values[row]}, a "
                    "number of more than 63 bits; write it as text"
                )
            return Cells("number", values.astype(np.int64, copy=False), null)
        if pa.types.is_decimal(kind) and use == "answer":
            return self._exact(array.to_pylist(), column, null)
        if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            values = _plain(array.cast(pa.float64()))
            return Cells("number", values, null)
        raise InvalidLogError(
            f"{self._file}: column {column!r} is of type {kind}; logs hold numbers, bools and text"
        )

    def _exact(
        self, decimals: list[Decimal | None], column: str, null: NDArray[np.bool_] | None
    ) -> Cells:
        """Return decimals as numbers, of which two are equal only if the decimals are."""
        given = [Decimal(0) if value is None else value for value in decimals]
        if all(value == value.to_integral_value() and abs(value) < 2**63 for value in given):
            return Cells("number", np.array([int(value) for value in given], np.int64), null)
        numbers = [float(value) for value in given]
        for row, (value, number) in enumerate(zip(given, numbers, strict=True)):
            if Decimal(repr(number)) != value:
                raise InvalidLogError(
                    f"{place(self._file, self.first + row, None, column)}: is {value}, which has "
                    "too many digits to be compared as a number; write it as text"
                )
        return Cells("number", np.array(numbers), null)


def _plain(array: Any) -> NDArray[Any]:
    """Return an arrow array as numpy, zeros where it is null."""
    if array.null_count:
        array = array.fill_null(False if str(array.type) == "bool" else 0)
    return array.to_numpy(zero_copy_only=False)


def _is_text(pa: Any, kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def _groups(metadata: Any, start: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows from ``start`` on, and how many rows to skip in them."""
    skip = start
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if skip < rows:
            return list(range(group, metadata.num_row_groups)), skip
        skip -= rows
    return [], 0


@contextmanager
def _understood(path: Path) -> Generator[None]:
    """Word what pyarrow says of a file it cannot read."""
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
