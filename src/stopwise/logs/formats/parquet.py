"""Reading and writing logs in Parquet."""

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

BUFFER_SIZE = 1 << 20  # bytes of each column that are read ahead
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # names the folder of rows without a value
GROUP_ROWS = 65_536  # rows in memory while a file is written


def open_parquet(path: Path) -> ArrowReader:
    """Open a file, a folder or a glob; folders named ``key=value`` are columns, as in Hive."""
    files, root = [path], Path(path.anchor)
    if not path.is_file():
        if path.is_dir():
            matches = path.rglob("*.parquet")
        else:
            matches = root.glob(str(path.relative_to(root)))
        files = sorted(matches, key=_natural_order)
    pa = arrow()
    names, rows, many = list[list[str]](), 0, files != [path]
    for file in files:
        with _opened(file) as opened:
            stored = opened.schema_arrow.names
            keys = _keys(file) if many else {}  # some writers also store them in the files
            names.append([*stored, *(key for key in keys if key not in stored)])
            rows += opened.metadata.num_rows
        if set(names[-1]) != set(names[0]):
            difference = ", ".join(sorted(map(repr, set(names[-1]) ^ set(names[0]))))
            raise InvalidLogError(
                f"{file} and {files[0]} must have the same columns, but differ in {difference}"
            )
    if not rows:
        place = f" in {len(files)} Parquet files" if many else ""
        raise InvalidLogError(f"{path.name} has no rows{place}")

    def start(columns: list[str], size: int) -> Iterator[Any]:
        for file in files:
            with _opened(file) as opened:
                stored = set(opened.schema_arrow.names)
                keys = {k: v for k, v in (_keys(file) if many else {}).items() if k not in stored}
                to_read = [name for name in columns if name not in keys]
                for record in opened.iter_batches(batch_size=size, columns=to_read):
                    constant = {
                        key: pa.repeat(pa.scalar(keys[key], pa.string()), len(record))
                        for key in keys
                    }
                    yield pa.record_batch(
                        dict(zip(to_read, record.columns, strict=True)) | constant
                    )

    return ArrowReader(path.name, tuple(names[0]), start, rows)


def _natural_order(file: Path) -> str:
    """Return a sort key in which part-9 comes before part-10."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), str(file))


def _keys(file: Path) -> dict[str, str | None]:
    """Return the columns encoded in the folders of a file, as Hive does; values are texts."""
    pairs = (unquote(folder).partition("=") for folder in file.parts[:-1] if "=" in folder)
    return {name: None if value == HIVE_NULL else value for name, _, value in pairs}


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    """Open a file; name it in the error if pyarrow cannot read it."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    try:
        # Without a buffer per column, complete row groups of any length would be in memory.
        with pq.ParquetFile(path, buffer_size=BUFFER_SIZE, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | InvalidLogError):
            raise
        raise InvalidLogError(
            f"{path.name} cannot be read as Parquet: it is damaged, truncated or in another format "
            f"({str(error).splitlines()[0]})"
        ) from error


class ParquetWriter:
    """Writes rows as JSON lines to a temporary file; `close` converts it to Parquet."""

    def __init__(self, path: Path, fields: Sequence[Field], *, append: bool) -> None:
        if append:
            raise InvalidLogError(
                f"cannot append to {path.name}: Parquet files cannot be extended; write another "
                "file, or use CSV or JSON lines"
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
        """Convert the rows and move the file into place; on an error, keep the JSON lines."""
        self._lines.close()
        temporary = self._rows.with_suffix(".part")
        try:
            self._convert(temporary)
            put_in_place(temporary, self._path)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            error.add_note(f"{self._path.name} was not written; its rounds are in {self._rows}")
            raise
        self._rows.unlink()

    def _convert(self, path: Path) -> None:
        pa, pq = arrow(), arrow("pyarrow.parquet")
        # The narrowest type of all answers; bools among numbers become 0 and 1.
        answer, number = pa.null(), None
        widths = {bool: pa.bool_, int: pa.int64, float: pa.float64, str: pa.string}
        for kind, wider in widths.items():
            if kind in self._types:
                answer, number = wider(), kind
        types = {"text": pa.string(), "number": pa.float64(), "bool": pa.bool_(), "answer": answer}
        types["time"] = pa.timestamp("us", tz="UTC")
        schema = pa.schema([(field.name, types[field.holds]) for field in self._fields])
        decoder = msgspec.json.Decoder()
        with self._rows.open("rb") as lines, pq.ParquetWriter(path, schema) as file:
            while rows := list(map(decoder.decode, islice(lines, GROUP_ROWS))):
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
