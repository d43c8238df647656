"""Base class of the writers of CSV and JSON lines."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from stopwise.errors import InvalidLogError

Row: TypeAlias = list[Any]  # a value for each field; None for an empty cell


class Field(msgspec.Struct, frozen=True):
    """A column to write: its name in a table, its path in a JSON object, and its type."""

    name: str
    path: tuple[str, ...]
    holds: Literal["text", "time", "number", "answer", "bool"]


class LineWriter(ABC):
    """Writes each row to the file immediately: a crash loses at most the line being written.

    With ``append``, an existing file is continued; a last line truncated by a crash is removed.
    """

    _extra_columns: tuple[str, ...] = ()  # after the fields
    _multiline_cells = False  # whether cells in quotation marks may contain line breaks

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        self._path = path
        self._fields = fields
        names = [field.name for field in fields] + list(self._extra_columns)
        self._names = names
        continued = append and path.exists() and path.stat().st_size > 0
        if continued and (existing := self._existing_names()) != names:
            raise InvalidLogError(
                f"cannot append to {path.name}: its columns are {', '.join(existing)}, but the new "
                f"columns are {', '.join(names)}"
            )
        self._end, unterminated = self._complete() if continued else (0, False)
        self._file = path.open("r+b" if continued else "wb", buffering=0)
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            if not self._end:
                self._put(self._header())
            elif unterminated:
                self._put(b"\n")
        except BaseException:
            self._file.close()
            raise

    def write(self, row: Row) -> None:
        """Write a row; on return, the operating system has received it."""
        self._put(self._encode(row))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _header(self) -> bytes:
        """Return the first line of a new file."""
        return b""

    def _put(self, line: bytes) -> None:
        """Write a complete line or, on an error such as a full disk, nothing."""
        unwritten = memoryview(line)
        try:
            while unwritten:
                unwritten = unwritten[self._file.write(unwritten) :]
        except OSError:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise
        self._end += len(line)

    def _complete(self) -> tuple[int, bool]:
        """Return the end of the last complete line, and whether its line break is missing."""
        end = complete = 0
        inside = False  # whether a quoted cell continues on the next line
        with self._path.open("rb") as lines:
            for line in lines:
                end += len(line)
                inside ^= self._multiline_cells and line.count(b'"') % 2 == 1
                if not inside and line.endswith(b"\n"):
                    complete = end
            lines.seek(complete)
            unterminated = self._is_complete(lines.read())
        return (end, True) if unterminated else (complete, False)

    @abstractmethod
    def _existing_names(self) -> list[str]:
        """Return the columns of an existing file."""

    @abstractmethod
    def _is_complete(self, line: bytes) -> bool:
        """Return whether a last line without a line break is complete."""

    @abstractmethod
    def _encode(self, row: Row) -> bytes:
        """Return a row as a line."""
