"""The formats of a log, by suffix."""

from collections.abc import Callable
from glob import has_magic
from pathlib import Path
from typing import TypeAlias

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.formats.arrow import ArrowReader
from stopwise.logs.formats.csv import CsvReader, CsvWriter
from stopwise.logs.formats.json_lines import JsonLinesReader, JsonLinesWriter
from stopwise.logs.formats.lines import LineReader, LineWriter
from stopwise.logs.formats.parquet import ParquetWriter, open_parquet

RowReader: TypeAlias = LineReader | ArrowReader
RowWriter: TypeAlias = LineWriter | ParquetWriter
FORMATS: dict[str, tuple[Callable[[Path], RowReader], Callable[..., RowWriter]]] = {
    ".parquet": (open_parquet, ParquetWriter),
    ".csv": (CsvReader, CsvWriter),
    ".jsonl": (JsonLinesReader, JsonLinesWriter),
    ".ndjson": (JsonLinesReader, JsonLinesWriter),
}


def format_of(path: Path) -> str:
    """Return the suffix of a file in lower case; a folder is of Parquet."""
    suffix = ".parquet" if path.is_dir() else path.suffix.lower()
    if suffix not in FORMATS:
        raise InvalidParameterError(
            f"the format of {path.name} is not known; a log ends in {', '.join(FORMATS)}"
        )
    return suffix


def open_rows(path: Path) -> RowReader:
    """Open a file; in Parquet perhaps many."""
    suffix = format_of(path)
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidLogError(f"{path.name} is empty: it has no columns and no rows")
    if not path.exists() and not (suffix == ".parquet" and has_magic(str(path))):
        raise FileNotFoundError(f"there is no file {path}")
    return FORMATS[suffix][0](path)
