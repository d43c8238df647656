"""Logs from Arrow: tables and streams with the PyCapsule interface, and Arrow columns."""

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
    """Import pyarrow, which is optional and slow to import, or a module of it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError.of("a log in Parquet or Arrow", "pyarrow", "logs") from error


class ArrowReader(NamedTuple):
    """Record batches: ``start(columns, size)`` begins to read them, again unless ``once``."""

    name: str
    names: tuple[str, ...]  # of its columns
    start: Callable[[list[str], int], Iterable[Any]]
    rows: int | None = None  # how many, if that is known
    once: bool = False  # whether it can be read only once

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        first, columns = 0, list(layout.used)
        for record in self.start(columns, size):
            for part in (record.slice(k, size) for k in range(0, len(record), size)):
                read = partial(cells_of, part.select(columns), self.name)
                yield RowBatch(first, len(part), read)
                first += len(part)
        if not first and self.once:
            raise InvalidLogError(
                f"{self.name} is a stream that can be read only once, and this reads it again (as "
                "a replay does): give a table, Log(reader.read_all()), or write it to Parquet first"
            )
        if not first:
            raise InvalidLogError(f"{self.name} has no rows")


def open_stream(source: Any, name: str) -> ArrowReader:
    """Open what has ``__arrow_c_stream__``: a data frame, a relation, a table or a stream."""
    pa = arrow()
    try:
        unread: list[Any] = [pa.RecordBatchReader.from_stream(source)]  # it may be the only one
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidLogError(
            f"{name} cannot be read as a table ({str(error).splitlines()[0]}); give each column a "
            "name of its own and values of one type"
        ) from error

    def start(columns: list[str], size: int) -> Any:
        return unread.pop() if unread else pa.RecordBatchReader.from_stream(source)

    once = isinstance(source, pa.RecordBatchReader)
    return ArrowReader(name, tuple(unread[0].schema.names), start, once=once)


def cells_of(record: Any, file: str, column: str, use: Use) -> Cells:
    """Return a column of a record batch, for a use."""
    pa, array = arrow(), record.column(column)
    types = pa.types
    if types.is_dictionary(array.type):
        if array.dictionary.type == pa.string_view():  # which pyarrow cannot take from
            words = array.dictionary.cast(pa.large_string())
            array = pa.DictionaryArray.from_arrays(array.indices, words)
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
        found: Any = coded.dictionary
        if date:
            texts = found.to_numpy(zero_copy_only=False).astype(str)
        else:
            texts = map(_exact, found.to_pylist())
        return Cells("text", codes, null, tuple(map(str, texts)))
    if types.is_uint64(kind) or (types.is_decimal(kind) and use == "answer"):
        return gather(list(map(_exact, array.to_pylist())), use)
    if types.is_boolean(kind) or types.is_integer(kind):
        array = array.cast(pa.int64())
    elif types.is_floating(kind) or types.is_decimal(kind):
        array = array.cast(pa.float64())
    else:
        raise InvalidLogError(
            f"{file}: column {column!r} is of type {kind}; outputs and labels are numbers, bools "
            "or text, and contexts may be dates too"
        )
    return Cells("number", array.fill_null(0).to_numpy(), null)


def _exact(value: Any) -> Any:
    """Return a decimal as the int or float that equals it; without one itself, which is invalid."""
    for kind in (int, float) if isinstance(value, Decimal) else ():
        if Decimal(repr(kind(value))) == value:
            return kind(value)
    return value
