"""Reading logs from Arrow tables and streams, and cells from Arrow columns."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from stopwise.arrays import Bools
from stopwise.errors import InvalidLogError, MissingPackageError
from stopwise.logs.rows import Cells, Layout, RowBatch, Use, gather


def arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or one of its modules on first use: it is optional and slow to import."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError.of(
            "reading or writing Parquet or Arrow", "pyarrow", "logs"
        ) from error


class ArrowReader(NamedTuple):
    """Reads record batches; ``start(columns, size)`` begins a new pass over them."""

    name: str
    names: tuple[str, ...]  # of the columns
    start: Callable[[list[str], int], Iterable[Any]]
    rows: int | None = None
    once: bool = False  # whether only one pass is possible

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        first, columns = 0, list(layout.used)
        for record in self.start(columns, size):
            for batch in (record.slice(k, size) for k in range(0, len(record), size)):
                read = partial(cells_of, batch.select(columns), self.name)
                yield RowBatch(first, len(batch), read)
                first += len(batch)
        if not first and self.once:
            raise InvalidLogError(
                f"{self.name} is a stream that is empty or was already read; a stream can be read "
                "only once, and a replay, for example, needs two passes; pass a table, as "
                "in Log(reader.read_all()), or first write the stream to a Parquet file"
            )
        if not first:
            raise InvalidLogError(f"{self.name} has no rows")


def open_stream(source: Any, name: str) -> ArrowReader:
    """Open an object with ``__arrow_c_stream__``: a data frame, relation, table or stream."""
    pa = arrow()
    try:
        unread: list[Any] = [pa.RecordBatchReader.from_stream(source)]  # perhaps the only one
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidLogError(
            f"{name} cannot be read as a table ({str(error).splitlines()[0]}); each column needs "
            "a unique name and values of one type"
        ) from error

    def start(columns: list[str], size: int) -> Any:
        return unread.pop() if unread else pa.RecordBatchReader.from_stream(source)

    once = isinstance(source, pa.RecordBatchReader)
    return ArrowReader(name, tuple(unread[0].schema.names), start, once=once)


def cells_of(record: Any, file: str, column: str, use: Use) -> Cells:
    """Return a column of a record batch as cells."""
    pa, array = arrow(), record.column(column)
    types = pa.types
    if types.is_dictionary(array.type):
        if array.dictionary.type == pa.string_view():  # pyarrow cannot decode it
            texts = array.dictionary.cast(pa.large_string())
            array = pa.DictionaryArray.from_arrays(array.indices, texts)
        array = array.dictionary_decode()
    kind = array.type
    null: Bools = array.is_null().to_numpy(zero_copy_only=False)
    if null.all():
        return Cells("number", np.zeros(len(array), dtype=np.int64), null)
    date = (types.is_date(kind) or types.is_timestamp(kind)) and use in ("number", "text")
    if date or use == "text" or str(kind) in {"string", "large_string", "string_view"}:
        if date:  # to UTC
            array = array.cast(pa.timestamp("us"), safe=False)
        coded = array.dictionary_encode()
        codes = coded.indices.fill_null(0).to_numpy().astype(np.int64)
        values: Any = coded.dictionary
        if date:
            distinct = values.to_numpy(zero_copy_only=False).astype(str)
        else:
            distinct = map(_exact, values.to_pylist())
        return Cells("text", codes, null, tuple(map(str, distinct)))
    if types.is_uint64(kind) or (types.is_decimal(kind) and use == "answer"):
        return gather(list(map(_exact, array.to_pylist())), use)
    if types.is_boolean(kind) or types.is_integer(kind):
        array = array.cast(pa.int64())
    elif types.is_floating(kind) or types.is_decimal(kind):
        array = array.cast(pa.float64())
    else:
        raise InvalidLogError(
            f"{file}: column {column!r} has the unsupported type {kind}; outputs and labels must "
            "be numbers, bools or text, and contexts may also be dates"
        )
    return Cells("number", array.fill_null(0).to_numpy(), null)


def _exact(value: Any) -> Any:
    """Return the int or float equal to a decimal; any other value, or decimal, unchanged."""
    for kind in (int, float) if isinstance(value, Decimal) else ():
        if Decimal(repr(kind(value))) == value:
            return kind(value)
    return value
