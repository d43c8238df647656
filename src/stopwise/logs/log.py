"""A log, read in bounded memory."""

import hashlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast, get_args

import msgspec

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.cells import Batch
from stopwise.logs.chunk import Chunk, make_chunk
from stopwise.logs.columns import Columns, Layout, arrange
from stopwise.logs.csv_rows import CsvRows
from stopwise.logs.json_lines import JsonLines
from stopwise.logs.parquet import ParquetRows
from stopwise.logs.problems import NoRowsError

Format: TypeAlias = Literal["parquet", "csv", "jsonl"]

SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


class Source(Protocol):
    """A file of rows, in whatever format."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows it has, where the file says."""
        ...

    def describe(self) -> str:
        """Tell its columns, and their types where it has some."""
        ...

    def batches(self, layout: Layout, size: int, start: int) -> Iterator[Batch]:
        """Yield all rows from number ``start`` on, up to ``size`` at a time."""
        ...


class Log:
    r"""Rounds in a file: one row a round, in Parquet, CSV or JSON lines (docs/logs.md).

    Opening a log looks at its columns and at nothing else; `chunks` reads it, as often as you
    like, in memory that does not grow with the file.

    Parameters
    ----------
    path : str or path
        The file.
    columns : Columns, optional
        What the columns are called, if not as in the format.
    format : {"parquet", "csv", "jsonl"}, optional
        Default: by the suffix, ``.parquet``, ``.csv``, ``.jsonl`` or ``.ndjson``.

    Attributes
    ----------
    path : Path
        The file.
    columns : Columns
        As given.
    layout : Layout
        What each column is for.
    arms : tuple of str
        In the order of the cascade.
    context : tuple of str
        Names of the coordinates: those known from the start, then what each arm reveals,
        ``<arm>.<name>``. What the last arm reveals comes too late to decide anything and is
        left out.
    sees : tuple of int or None
        How many coordinates are known when standing at each arm but the last, as `PerStage`
        takes it; None where no arm reveals any.
    has_labels, has_costs : bool
        Whether there is a column of right answers; of what calls really cost.
    rows : int or None
        How many rounds there are, where the file says (Parquet).

    Raises
    ------
    InvalidLogError
        If the file is damaged, empty or lacks a column; `chunks` raises it at the first row that
        is not as it must be.
    FileNotFoundError
        If there is no such file.
    MissingPackageError
        If it is a Parquet file and pyarrow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "log.csv")
    >>> _ = path.write_text(
    ...     "context.age,output.nurse,output.doctor,label\n"
    ...     "0.3,ill,ill,ill\n"
    ...     "0.9,well,ill,\n"
    ...     "0.2,well,,\n"
    ... )
    >>> log = Log(path)
    >>> log.arms, log.context, log.has_labels
    (('nurse', 'doctor'), ('age',), True)
    >>> for chunk in log.chunks():
    ...     print(chunk.rounds.differ.tolist(), chunk.rounds.reach.tolist(), chunk.values)
    [[0], [1], [0]] [1, 1, 0] ('ill', 'well')
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: "str | PathLike[str]",
        columns: Columns | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the word people look for
    ) -> None:
        self.path = Path(path)
        self.columns = columns or Columns()
        self._source = source_of(self.path, format_of(self.path, format))
        self.layout = arrange(self._source.names, self.columns, self.path.name)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms (see the class)."""
        return self.layout.arms

    @property
    def context(self) -> tuple[str, ...]:
        """Names of the coordinates (see the class)."""
        return self.layout.context

    @property
    def sees(self) -> tuple[int, ...] | None:
        """How many coordinates are known at each arm but the last (see the class)."""
        return self.layout.sees

    @property
    def has_labels(self) -> bool:
        """Whether there is a column of right answers."""
        return self.layout.label is not None

    @property
    def has_costs(self) -> bool:
        """Whether there are columns of what calls really cost."""
        return bool(self.layout.costs)

    @property
    def rows(self) -> int | None:
        """How many rounds there are, where the file says."""
        return self._source.rows

    def chunks(self, size: int = 65_536, *, start: int = 0) -> Iterator[Chunk]:
        """Yield the rounds in order, up to ``size`` at a time.

        Parameters
        ----------
        size : int
            How many rounds to hold in memory at most.
        start : int
            The number of the first round to yield, from 0: those before it are passed over
            unchecked, which is quick.

        Raises
        ------
        InvalidLogError
            At the first row that is not as it must be.
        """
        if size < 1 or start < 0:
            raise InvalidParameterError(
                f"size must be at least 1 and start at least 0; they are {size} and {start}"
            )
        return self._chunks(size, start)

    def _chunks(self, size: int, start: int) -> Iterator[Chunk]:
        family = None
        for batch in self._source.batches(self.layout, size, start):
            if batch.n == 0:
                continue
            chunk, family = make_chunk(batch, self.layout, family, self.path.name)
            yield chunk

    def fingerprint(self) -> str:
        """Return a name for what the file holds now and how it is read.

        It is cheap, made of the file's size, time of change and columns: a file that was
        written anew, or is read with other columns, has another.
        """
        stat = self.path.stat()
        parts = (
            str(stat.st_size),
            str(stat.st_mtime_ns),
            self._source.describe(),
            msgspec.json.encode(self.columns).decode(),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Log({self.path.name!r}, arms={list(self.arms)}, context={list(self.context)})"


def format_of(path: Path, given: str | None = None) -> Format:
    """Return the format of a file, by its suffix unless given.

    Examples
    --------
    >>> format_of(Path("log.ndjson"))
    'jsonl'
    """
    if given is not None:
        if given not in get_args(Format):
            raise InvalidParameterError(
                f"no format is called {given!r}; there are {', '.join(get_args(Format))}"
            )
        return cast("Format", given)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameterError(
            f"{path.name} does not tell its format; it should end in {', '.join(SUFFIXES)}, or "
            f"say format= one of {', '.join(get_args(Format))}"
        )
    return SUFFIXES[path.suffix.lower()]


def source_of(path: Path, kind: Format) -> Source:
    """Open a file as what it is."""
    if path.is_dir():
        raise InvalidLogError(f"{path} is a folder; a log is one file")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise NoRowsError(f"{path.name} is empty: it has no columns and no rows")
    if kind == "parquet":
        return ParquetRows(path)
    return CsvRows(path) if kind == "csv" else JsonLines(path)
