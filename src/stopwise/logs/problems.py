"""What is wrong with some rows, told of the first of them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidLogError
from stopwise.logs.cells import Batch


class NoRowsError(InvalidLogError):
    """A log that has columns at most."""


class Problems:
    """Collects what is wrong with a few rows, and keeps the first row that has something.

    Examples
    --------
    >>> problems = Problems("log.parquet", first=100)
    >>> problems.at(7, "context.age", "is empty")
    >>> problems.where(np.array([False, True]), "output.small", lambda row: "is NaN")
    >>> problems.tell()
    Traceback (most recent call last):
    stopwise.errors.InvalidLogError: log.parquet, row 102, column 'output.small': is NaN
    """

    def __init__(self, file: str, first: int, batch: Batch | None = None) -> None:
        self._file = file
        self._first = first
        self._batch = batch
        self._worst: tuple[int, str, str] | None = None

    def at(self, row: int, column: str, words: str) -> None:
        """Note that a cell is wrong."""
        if self._worst is None or row < self._worst[0]:
            self._worst = row, column, words

    def where(
        self, wrong: NDArray[np.bool_], column: str, words: Callable[[int], str] | str
    ) -> None:
        """Note that the cells of a column are wrong in some rows; ``words`` says how."""
        row = int(wrong.argmax()) if len(wrong) else 0
        if len(wrong) and wrong[row]:
            self.at(row, column, words if isinstance(words, str) else words(row))

    def tell(self) -> None:
        """Raise `InvalidLogError` if anything was noted."""
        if self._worst is not None:
            row, column, words = self._worst
            line = None if self._batch is None else self._batch.line(row)
            raise InvalidLogError(f"{place(self._file, self._first + row, line, column)}: {words}")


def place(file: str, row: int, line: int | None = None, column: str | None = None) -> str:
    """Name a place in a log; rows come from 0 and are shown from 1.

    Examples
    --------
    >>> place("log.csv", 2, 4, "label")
    "log.csv, row 3 (line 4), column 'label'"
    """
    on_line = "" if line is None else f" (line {line})"
    in_column = "" if column is None else f", column {column!r}"
    return f"{file}, row {row + 1}{on_line}{in_column}"
