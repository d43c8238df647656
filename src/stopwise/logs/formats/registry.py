"""The formats of a log. A new one is a module beside this, and a line in `FORMATS`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from stopwise.checks import choice
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.cells import RowBatch
from stopwise.logs.columns import Field, Layout, Row
from stopwise.logs.formats.csv import CsvReader, CsvWriter
from stopwise.logs.formats.json_lines import JsonLinesReader, JsonLinesWriter
from stopwise.logs.formats.parquet import ParquetReader, ParquetWriter
from stopwise.logs.problems import NoRowsError


class RowReader(Protocol):
    """Reads a file: the names of its columns, how many rows it has where it says, and the rows."""

    names: tuple[str, ...]
    rows: int | None

    def __init__(self, path: Path) -> None: ...

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        ...


class RowWriter(Protocol):
    """Writes rows to a file."""

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None: ...

    def write(self, row: Row) -> None:
        """Write a row."""
        ...

    def close(self) -> None:
        """Complete the file."""
        ...


class Format(NamedTuple):
    """How files of a format are read and written, and how their names end."""

    read: type[RowReader]
    write: type[RowWriter]
    suffixes: tuple[str, ...]


FORMATS = {
    "parquet": Format(ParquetReader, ParquetWriter, (".parquet",)),
    "csv": Format(CsvReader, CsvWriter, (".csv",)),
    "jsonl": Format(JsonLinesReader, JsonLinesWriter, (".jsonl", ".ndjson")),
}
SUFFIXES = {suffix: name for name, one in FORMATS.items() for suffix in one.suffixes}


def format_of(path: Path, given: str | None = None) -> str:
    """Return the name of a file's format, by its suffix unless given.

    Examples
    --------
    >>> format_of(Path("log.ndjson"))
    'jsonl'
    """
    if given is not None:
        return choice("format", given, FORMATS)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameterError(
            f"the format of {path.name} is not known; its name should end in "
            f"{', '.join(SUFFIXES)}, or write format= one of {', '.join(FORMATS)}"
        )
    return SUFFIXES[path.suffix.lower()]


def open_rows(path: Path, name: str) -> RowReader:
    """Open a file of a format."""
    if path.is_dir():
        raise InvalidLogError(f"{path} is a folder; a log is one file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise NoRowsError(f"{path.name} is empty: it has no columns and no rows")
    return FORMATS[name].read(path)
