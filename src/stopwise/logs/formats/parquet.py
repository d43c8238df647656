"""Logs in Parquet; written as JSON lines, which are converted at the end."""

import re
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from stopwise.errors import InvalidLogError
from stopwise.files import put_in_place
from stopwise.logs.formats.arrow import ArrowReader, arrow
from stopwise.logs.formats.json_lines import JsonLinesWriter
from stopwise.logs.formats.line_writer import Field, Row

BUFFER = 1 << 20  # bytes of each column that are read ahead
NULL = "__HIVE_DEFAULT_PARTITION__"  # a folder of rows without a value
GROUP = 65_536  # rows that are in memory when a file is written


def open_parquet(path: Path) -> ArrowReader:
    """Open a file, or a folder or pattern of files; folders ``key=value`` give columns too."""
    files, root = [path], Path(path.anchor)
    if not path.is_file():
        found = path.rglob("*.parquet") if path.is_dir() else root.glob(str(path.relative_to(root)))
        files = sorted(found, key=lambda file: re.sub(r"\d+", lambda n: n[0].zfill(20), str(file)))
    pa = arrow()
    names, rows, many = list[list[str]](), 0, files != [path]
    for file in files:
        with _opened(file) as opened:
            inside = opened.schema_arrow.names
            keys = _keys(file) if many else {}  # which some writers repeat in the files
            names.append([*inside, *(key for key in keys if key not in inside)])
            rows += opened.metadata.num_rows
        if set(names[-1]) != set(names[0]):
            differ = ", ".join(sorted(map(repr, set(names[-1]) ^ set(names[0]))))
            raise InvalidLogError(f"{file} and {files[0]} must have the same columns: {differ}")
    if not rows:
        held = f" in {len(files)} Parquet files" if many else ""
        raise InvalidLogError(f"{path.name} has no rows{held}")

    def start(columns: list[str], size: int) -> Iterator[Any]:
        for file in files:
            with _opened(file) as opened:
                inside = set(opened.schema_arrow.names)
                keys = {k: v for k, v in (_keys(file) if many else {}).items() if k not in inside}
                wanted = [name for name in columns if name not in keys]
                for record in opened.iter_batches(batch_size=size, columns=wanted):
                    more = {
                        key: pa.repeat(pa.scalar(keys[key], pa.string()), len(record))
                        for key in keys
                    }
                    yield pa.record_batch(dict(zip(wanted, record.columns, strict=True)) | more)

    return ArrowReader(path.name, tuple(names[0]), start, rows)


def _keys(file: Path) -> dict[str, str | None]:
    """Return the columns that the folders of a file stand for, as Hive writes them: texts."""
    pairs = (unquote(part).partition("=") for part in file.parts[:-1] if "=" in part)
    return {name: None if word == NULL else word for name, _, word in pairs}


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    """Open a file; if pyarrow cannot read it, raise an error that names it."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    try:
        # A buffer for each column; otherwise row groups would be held in memory, however long.
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | InvalidLogError):
            raise
        raise InvalidLogError(
            f"{path.name} cannot be read as Parquet: it is damaged, cut off or of another format "
            f"({str(error).splitlines()[0]})"
        ) from error


class ParquetWriter:
    """Writes Parquet: rows go to a file of JSON lines beside it, which `close` converts."""

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        if append:
            raise InvalidLogError(
                f"{path.name}: a Parquet file ends in its table of contents, so nothing can be "
                "appended; write another file, or CSV or JSON lines"
            )
        arrow("pyarrow.parquet")
        self._path = path
        self._fields = fields
        self._types: set[type] = set()  # of the answers
        self._rows = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.jsonl")
        self._lines = JsonLinesWriter(self._rows, fields, append=False)

    def write(self, row: Row) -> None:
        """Write a row to the JSON lines."""
        self._lines.write(row)
        answers = (v for f, v in zip(self._fields, row, strict=True) if f.holds == "answer")
        self._types.update(map(type, answers))

    def close(self) -> None:
        """Convert the rows and put the file in its place; if that fails, leave the JSON lines."""
        self._lines.close()
        part = self._rows.with_suffix(".part")
        try:
            self._convert(part)
            put_in_place(part, self._path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            error.add_note(f"{self._path.name} is not written. Its rounds are in {self._rows}.")
            raise
        self._rows.unlink()

    def _convert(self, part: Path) -> None:
        pa, pq = arrow(), arrow("pyarrow.parquet")
        # The narrowest type that holds all answers; bools among numbers are 0 and 1.
        answer, number = pa.null(), None
        widths = {bool: pa.bool_, int: pa.int64, float: pa.float64, str: pa.string}
        for kind, wider in widths.items():
            if kind in self._types:
                answer, number = wider(), kind
        types = {"text": pa.string(), "number": pa.float64(), "bool": pa.bool_(), "answer": answer}
        types["time"] = pa.timestamp("us", tz="UTC")
        schema = pa.schema([(field.name, types[field.holds]) for field in self._fields])
        decoder = msgspec.json.Decoder()
        with self._rows.open("rb") as lines, pq.ParquetWriter(part, schema) as file:
            while rows := list(map(decoder.decode, islice(lines, GROUP))):
                columns: list[Any] = []
                for field, column in zip(self._fields, schema, strict=True):
                    values = rows
                    for key in field.path:
                        values = [row[key] for row in values]
                    if field.holds == "answer" and number is not None:
                        values = [None if v is None else number(v) for v in values]
                    read_as = pa.string() if field.holds == "time" else column.type
                    columns.append(pa.array(values, read_as).cast(column.type))
                file.write_table(pa.table(columns, schema=schema))
