"""Writers of CSV and JSON lines: each row is a line, written at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from stopwise.errors import InvalidLogError

Row: TypeAlias = list[Any]  # to be written: one value for each field; None for an empty cell


class Field(msgspec.Struct, frozen=True):
    """A column to write: its name in a table, where it is in a JSON object, and what it holds."""

    name: str
    path: tuple[str, ...]
    holds: Literal["text", "time", "number", "answer", "bool"]


class LineWriter(ABC):
    """Writes each row to the file at once: a crash loses at most the line being written.

    With ``append`` it continues an existing file; a last line that a crash cut off is removed.
    """

    _more: tuple[str, ...] = ()  # columns after those of the fields
    _quotes = False  # whether a cell may hold line breaks, between quotation marks

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        self._path = path
        self._fields = fields
        self._names = names = [*(field.name for field in fields), *self._more]
        continued = append and path.exists() and path.stat().st_size > 0
        if continued and (found := self._found_names()) != names:
            raise InvalidLogError(
                f"{path.name} cannot be appended to: its columns are {', '.join(found)}, and those "
                f"to be written are {', '.join(names)}"
            )
        self._end, unended = self._complete() if continued else (0, False)
        self._file = path.open("r+b" if continued else "wb", buffering=0)
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            if not self._end:
                self._put(self._opening())
            elif unended:
                self._put(b"\n")
        except BaseException:
            self._file.close()
            raise

    def write(self, row: Row) -> None:
        """Write a row; it has left this process when this returns."""
        self._put(self._encode(row))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _opening(self) -> bytes:
        """Return what the file begins with."""
        return b""

    def _put(self, line: bytes) -> None:
        """Write a complete line or, if the disk is full, nothing."""
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise
        self._end += len(line)

    def _complete(self) -> tuple[int, bool]:
        """Return where the last complete line ends, and whether its line break is missing."""
        end = complete = 0
        inside = False  # a quoted cell that continues over several lines
        with self._path.open("rb") as lines:
            for line in lines:
                end += len(line)
                inside ^= self._quotes and line.count(b'"') % 2 == 1
                if not inside and line.endswith(b"\n"):
                    complete = end
            lines.seek(complete)
            unended = self._is_complete(lines.read())
        return (end, True) if unended else (complete, False)

    @abstractmethod
    def _found_names(self) -> list[str]:
        """Return the columns of an existing file."""

    @abstractmethod
    def _is_complete(self, rest: bytes) -> bool:
        """Return whether a last line without a line break is complete."""

    @abstractmethod
    def _encode(self, row: Row) -> bytes:
        """Return a row as a line."""
