"""Writing logs line by line, CSV and JSON lines: a crash loses at most the line being written."""

import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stopwise.errors import InvalidLogError
from stopwise.logs.csv_rows import KINDS
from stopwise.logs.fields import Field, Row
from stopwise.logs.json_lines import JsonLines
from stopwise.logs.lines import decoded

_SPECIAL = re.compile('[",\r\n]')  # a cell that holds one of these must be quoted


class LineSink(ABC):
    """Writes each row to the file at once.

    Parameters
    ----------
    path : Path
        The file.
    fields : sequence of Field
        Its columns.
    append : bool
        Whether to go on with a file that is there. If a crash cut its last line off, that line
        is removed.
    """

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        self._path = path
        self._fields = fields
        going_on = append and path.exists() and not self._only_begun()
        if going_on:
            self._check_columns()
        self._file = path.open("r+b" if going_on else "wb", buffering=0)
        try:
            self._end = self._mend() if going_on else 0
            self._file.seek(self._end)
            if not going_on:
                self._put(self._opening())
        except BaseException:
            self._file.close()
            raise

    def write(self, row: Row) -> None:
        """Write a row; it has left this process when this returns."""
        try:
            line = self._encoded(row)
        except UnicodeEncodeError as error:
            raise InvalidLogError(
                f"{self._path.name}: {error.object[error.start : error.end]!r} in "
                f"{error.object[:60]!r} is not a character of Unicode, and cannot be written"
            ) from None
        self._put(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _only_begun(self) -> bool:
        """Tell whether the file holds no more than a part of what it begins with."""
        opening = self._opening()
        with self._path.open("rb") as file:
            found = file.read(len(opening) + 1)
        return len(found) <= len(opening) and opening.startswith(found)

    def _put(self, line: bytes) -> None:
        """Write a line whole or, if the disk will not have it, not at all."""
        left = memoryview(line)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise
        self._end += len(line)

    def _mend(self) -> int:
        """Return where the last whole line ends, after removing what a crash left behind it."""
        end = whole = 0
        inside = False  # a quoted cell that goes on over several lines
        with self._path.open("rb") as lines:
            for line in lines:
                end += len(line)
                inside ^= self._quotes and line.count(b'"') % 2 == 1
                if not inside and line.endswith(b"\n"):
                    whole = end
            lines.seek(whole)
            rest = lines.read()
        if rest and self._is_whole(rest):
            self._file.seek(end)
            self._file.write(b"\n")
            return end + 1
        self._file.truncate(whole)
        return whole

    _quotes = False  # whether a cell may hold line breaks, between quotation marks

    @abstractmethod
    def _check_columns(self) -> None:
        """Raise unless the file that is there has the columns to be written."""

    @abstractmethod
    def _opening(self) -> bytes:
        """Return what the file begins with."""

    @abstractmethod
    def _is_whole(self, rest: bytes) -> bool:
        """Tell whether a last line without a line break is complete."""

    @abstractmethod
    def _encoded(self, row: Row) -> bytes:
        """Return a row as a line."""

    def _refuse(self, found: Sequence[str], names: Sequence[str]) -> InvalidLogError:
        return InvalidLogError(
            f"{self._path.name} cannot be appended to: its columns are {', '.join(found)}, and "
            f"those to be written are {', '.join(names)}"
        )


class CsvSink(LineSink):
    """Writes CSV. A last column, ``kind``, tells 1 from "1", and a whole line from one cut off."""

    _quotes = True

    @property
    def _names(self) -> list[str]:
        return [*(field.name for field in self._fields), "kind"]

    def _check_columns(self) -> None:
        with self._path.open("rb") as file:
            header = next(csv.reader(decoded(file, self._path.name)), list[str]())
        if header != self._names:
            raise self._refuse(header, self._names)

    def _opening(self) -> bytes:
        return _csv_line(self._names)

    def _is_whole(self, rest: bytes) -> bool:
        try:
            (cells,) = csv.reader(io.StringIO(rest.decode(), newline=""), strict=True)
        except (csv.Error, ValueError):
            return False
        return len(cells) == len(self._names) and cells[-1] in KINDS

    def _encoded(self, row: Row) -> bytes:
        answers = [
            value
            for field, value in zip(self._fields, row, strict=True)
            if field.holds == "answer" and value is not None
        ]
        kind = _kind(answers)
        cells = [
            self._cell(field, value, kind) for field, value in zip(self._fields, row, strict=True)
        ]
        return _csv_line([*cells, kind])

    def _cell(self, field: Field, value: Any, kind: str) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower() if kind == "bool" else str(int(value))
        if isinstance(value, float):
            return repr(value)
        text = str(value)
        if field.name == "label" and not text:
            raise InvalidLogError(
                f"{self._path.name}: in CSV an empty label means that none is known; for labels "
                "that are empty text use Parquet or JSON lines"
            )
        if len(text) > csv.field_size_limit():
            raise InvalidLogError(
                f"{self._path.name}: {field.name!r} has {len(text):,} characters, and readers of "
                f"CSV take {csv.field_size_limit():,} at most; use Parquet or JSON lines"
            )
        return text


class JsonSink(LineSink):
    """Writes JSON lines."""

    def _check_columns(self) -> None:
        try:
            found = JsonLines(self._path).names
        except InvalidLogError:
            with self._path.open("rb") as file:
                if not file.readline().endswith(b"\n"):
                    return  # only a first line, cut off, which `_mend` removes
            raise
        names = [field.name for field in self._fields]
        if list(found) != names:
            raise self._refuse(found, names)

    def _opening(self) -> bytes:
        return b""

    def _is_whole(self, rest: bytes) -> bool:
        try:
            msgspec.json.decode(rest)
        except msgspec.DecodeError:
            return False
        return True

    def _encoded(self, row: Row) -> bytes:
        whole: dict[str, Any] = {}
        for field, value in zip(self._fields, row, strict=True):
            around = whole
            for key in field.path[:-1]:
                around = around.setdefault(key, {})
            around[field.path[-1]] = value
        return msgspec.json.encode(whole) + b"\n"


def _csv_line(cells: Sequence[str]) -> bytes:
    # The csv module of Python 3.11 leaves a carriage return unquoted, which its reader refuses.
    return (",".join(map(_quoted, cells)) + "\n").encode()


def _quoted(cell: str) -> str:
    if _SPECIAL.search(cell):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _kind(answers: Sequence[Any]) -> str:
    if not answers:
        return ""
    if isinstance(answers[0], str):
        return "text"
    return "bool" if all(isinstance(answer, bool) for answer in answers) else "number"
