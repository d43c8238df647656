"""The formats of a log. A new one is a file here, with these two, and a line in `registry`."""

from collections.abc import Iterator
from typing import Protocol

from stopwise.logs.cells import RowBatch
from stopwise.logs.columns import Layout, Row


class RowReader(Protocol):
    """Reads a file: ``Reader(path)`` finds the names of its columns, `batches` the rows.

    What cannot be read is an `InvalidLogError`; a file without rows a `NoRowsError`.
    """

    names: tuple[str, ...]  # of the columns, in order
    rows: int | None  # how many, where the file says

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time, with the columns that ``layout`` uses."""
        ...


class RowWriter(Protocol):
    """Writes a file: ``Writer(path, fields, append=…)`` begins it, or continues an existing one."""

    def write(self, row: Row) -> None:
        """Write a row, one value for each field: completely or, if that fails, not at all."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...
