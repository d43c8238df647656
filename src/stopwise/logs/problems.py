"""What is wrong with rows of a log: the first ten places, each with a remedy."""

from collections.abc import Callable, Sequence

import numpy as np

from stopwise.arrays import Bools
from stopwise.errors import InvalidLogError

MOST = 10  # problems that one error lists


class Problems:
    """Collects what is wrong with a few rows.

    Examples
    --------
    >>> problems = Problems("log.parquet", first=100)
    >>> problems.where(np.array([False, True, True]), "output.small", lambda row: "is NaN")
    >>> problems.at(0, "context.age", "is empty")
    >>> problems.raise_any()
    Traceback (most recent call last):
    stopwise.errors.InvalidLogError: log.parquet cannot be read; fix these cells:
      row 101, column 'context.age': is empty
      row 102, column 'output.small': is NaN
      row 103, column 'output.small': is NaN
    """

    def __init__(self, file: str, first: int, lines: Sequence[int] | None = None) -> None:
        self._file = file
        self._first = first
        self._lines = lines
        self._found: dict[tuple[int, str | None], str] = {}  # the first problem of each cell

    def at(self, row: int, column: str | None, message: str) -> None:
        """Record that a cell is wrong, or a row."""
        self._found.setdefault((row, column), message)

    def where(self, wrong: Bools, column: str, message: Callable[[int], str] | str) -> None:
        """Record that cells of a column are wrong in some rows."""
        for row in np.flatnonzero(wrong)[:MOST].tolist():
            self.at(row, column, message if isinstance(message, str) else message(row))

    def raise_any(self) -> None:
        """Raise `InvalidLogError` if anything was recorded."""
        if not self._found:
            return
        found = sorted(self._found.items(), key=lambda one: one[0][0])
        listed: list[str] = []
        for (row, column), message in found[:MOST]:
            where = place(self._first + row, None if self._lines is None else self._lines[row])
            listed.append(f"{where}{f', column {column!r}' if column else ''}: {message}")
        if len(listed) == 1:
            raise InvalidLogError(f"{self._file}, {listed[0]}")
        first = f" (the first {MOST}, there may be more)" if len(listed) == MOST else ""
        raise InvalidLogError(
            "\n  ".join([f"{self._file} cannot be read; fix these cells{first}:", *listed])
        )


def place(row: int, line: int | None = None) -> str:
    """Name a row of a log; rows are numbered from 0 and shown from 1."""
    return f"row {row + 1}" if line is None else f"row {row + 1} (line {line})"
