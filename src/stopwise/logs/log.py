"""Logs of rounds: the roles of columns, and reading rows in bounded memory."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from glob import has_magic
from itertools import accumulate, chain
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from stopwise.checks import integer
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.chunk import Chunk, make_chunk
from stopwise.logs.encoding import SAMPLE_ROWS, Column, Encoding, fit
from stopwise.logs.formats.arrow import ArrowReader, open_stream
from stopwise.logs.formats.csv import CsvReader
from stopwise.logs.formats.json_lines import JsonLinesReader
from stopwise.logs.formats.parquet import open_parquet
from stopwise.logs.rows import Layout, quoted
from stopwise.progress import Progress, no_progress
from stopwise.text import closest

RowReader: TypeAlias = CsvReader | JsonLinesReader | ArrowReader
READERS: dict[str, Callable[[Path], RowReader]] = {
    ".parquet": open_parquet,
    ".csv": CsvReader,
    ".jsonl": JsonLinesReader,
    ".ndjson": JsonLinesReader,
}
CONTEXT, REVEALED, OUTPUT = "context.", "revealed.", "output."
COST, RIGHT = "cost.", "right."
SAMPLE_BYTES = 1 << 20  # read to estimate the number of lines, for progress only


class Columns(msgspec.Struct, frozen=True):
    """The column names of each role, for tables that do not use the standard names.

    Omit a role if its columns have the standard names (docs/log-format.md). If ``outputs`` is set,
    the columns ``stop``, ``rule_stop`` and ``failed`` are read only if named here.

    Attributes
    ----------
    context : tuple of str or None
        The context available before the first arm; default: every ``context.*``. An empty tuple
        means that the log has no contexts.
    outputs : tuple of str or None
        The output of each arm, in cascade order; default: every ``output.*``.
    label : str or None
        The right answer; default: ``label``, if present. An empty string reads no labels.
    right : tuple of str or None
        Whether the answer of each arm was right, in the order of ``outputs``; default: every
        ``right.*``. An empty tuple reads none.
    stop : str or None
        The arm at which the round stopped, by name or 0-based number.
    rule_stop : str or None
        The arm at which the stopping rule alone, without forced exploration, would have stopped.
    failed : str or None
        The arm that ran without giving an answer.

    Examples
    --------
    >>> Columns(context=("age", "bmi"), outputs=("small", "large"), label="truth").outputs
    ('small', 'large')
    """

    context: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    label: str | None = None
    right: tuple[str, ...] | None = None
    stop: str | None = None
    rule_stop: str | None = None
    failed: str | None = None


class Log:
    r"""A table of rounds, one per row, in files or in memory (docs/logs.md).

    Opening a log reads only its column names. `chunks` reads the rows in bounded memory and can be
    called repeatedly; the first call also fits an `Encoding` to the contexts.

    Parameters
    ----------
    source : str, path or table
        A file (``.parquet``, ``.csv``, ``.jsonl``, ``.ndjson``), a glob or a folder of Parquet
        files, or an object with ``__arrow_c_stream__``: a data frame of pandas or Polars, a
        relation of DuckDB, an Arrow table.
    columns : Columns, optional
        The roles of columns without standard names.
    encoding : Encoding, optional
        The encoding of the contexts; by default it is fitted to this log.
    normalise_answers : bool
        Whether to ignore case and surrounding space in answers, and to treat 1, true and yes as
        equal.
    name : str, optional
        The name used in messages and results.

    Attributes
    ----------
    path : Path
        The file; for a table in memory, its name.
    columns : Columns
    layout : Layout
        The role of each column.
    arms : tuple of str
        Names of the arms, in cascade order.
    context : tuple of str
        Names of the coordinates: those available before the first arm, then ``<arm>.<name>`` for
        those that each arm but the last reveals.
    encoding : Encoding
        The encoding of the columns available before the first arm.
    sees : tuple of int or None
        The number of coordinates available after each arm but the last, as in the features that
        `bind` builds from `Answers`; None if no arm reveals any.
    has_labels, has_costs : bool
        Whether there are columns for right answers (``label`` or ``right.*``) and for actual
        costs.
    rows : int or None
        The number of rounds, if the file records it (Parquet).

    Raises
    ------
    InvalidLogError
        If the file is damaged, empty or lacks a column; from `chunks`, if cells are invalid (the
        first ten are listed).

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
    ...     print(chunk.rounds.differ.tolist(), chunk.rounds.answered.tolist(), chunk.values)
    [[0], [1], [0]] [2, 2, 1] ('ill', 'well')
    >>> folder.cleanup()
    """

    def __init__(
        self,
        source: "str | PathLike[str] | Any",
        columns: Columns | None = None,
        *,
        encoding: Encoding | None = None,
        normalise_answers: bool = False,
        name: str | None = None,
    ) -> None:
        self.columns = columns or Columns()
        if hasattr(source, "__arrow_c_stream__"):
            self.path = Path(name or type(source).__name__)
            self._file: RowReader = open_stream(source, self.path.name)
        elif not hasattr(source, "__fspath__") and not isinstance(source, str):
            raise InvalidParameterError(
                f"a log must be a file or a table (a data frame, an Arrow table), got "
                f"{type(source).__name__}; call .collect() on a lazy frame"
            )
        else:
            self.path = Path(source)
            self._file = open_rows(self.path)
        self._sample, self.path = self.path, Path(name or self.path)
        self.layout = resolve_columns(self._file.names, self.columns, self.path.name)
        self.rows = self._file.rows
        self.arms = self.layout.arms
        self.has_labels = self.layout.label is not None or bool(self.layout.right)
        self.has_costs = bool(self.layout.costs)
        self.normalise_answers = normalise_answers
        self._fixed_encoding = encoding
        encoded = {column.name for column in encoding.columns} if encoding else set[str]()
        if missing := sorted(encoded - self.layout.sources.keys()):
            raise InvalidParameterError(
                f"{self.path.name} has no context column {quoted(missing)}, which the encoding "
                f"requires; its context columns: {quoted(self.layout.sources)}"
            )

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of the context; fitted to the log unless passed to the constructor."""
        sources = self.layout.sources
        if self._fixed_encoding is not None:
            return self._fixed_encoding
        if self._file.once or not sources:
            return Encoding(tuple(map(Column, sources)))
        batches = self._file.batches(self.layout.only(self.layout.base), SAMPLE_ROWS)
        return fit(batches, sources, self.path.name)

    @property
    def n_initial(self) -> int:
        """The number of coordinates available before the first arm."""
        return len(self.encoding.coordinates)

    @property
    def context(self) -> tuple[str, ...]:
        """The names of all coordinates."""
        return (*self.encoding.coordinates, *self.layout.context[len(self.layout.base) :])

    @property
    def sees(self) -> tuple[int, ...] | None:
        """The number of coordinates available after each arm but the last."""
        counts = accumulate(map(len, self.layout.revealed), initial=self.n_initial)
        return tuple(counts)[1:] if any(self.layout.revealed) else None

    def chunks(self, size: int = 65_536, progress: Progress = no_progress) -> Iterator[Chunk]:
        """Yield the rounds in order, up to ``size`` at a time.

        Calls ``progress("reading", done, of)``; for text files ``of`` is an estimate.
        """
        return self._chunks(integer("size", size, least=1), progress)

    def read_cells(self, columns: Sequence[str], rows: Sequence[int]) -> list[list[str]]:
        """Return cells as text: a header, then the given rows; unknown columns are skipped."""
        names = [name for name in columns if name in self._file.names]
        texts: dict[int, list[str]] = {}
        for batch in self._file.batches(self.layout.only(names), 65_536):
            cells = [batch.cells(name, "text") for name in names]
            for k in {row - batch.first for row in rows}.intersection(range(batch.n)):
                row = ["" if c.null[k] else c.texts[int(c.values[k])] for c in cells]
                texts[batch.first + k] = row
        return [names, *(texts[row] for row in rows)]

    def _chunks(self, size: int, progress: Progress) -> Iterator[Chunk]:
        family, done = None, 0
        expected = self.rows or self._estimated_rows()
        encoding = self.encoding  # may read the log, so before its rows
        for batch in self._file.batches(self.layout, size):
            if batch.n:
                if done:
                    progress("reading", done, max(done + 1, expected))
                chunk, family = make_chunk(
                    batch, self.layout, family, self.path.name, encoding, self.normalise_answers
                )
                yield chunk
                done += batch.n
        progress("reading", done, done)

    def _estimated_rows(self) -> int:
        if not self._sample.is_file():
            return 0
        with self._sample.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
        return self._sample.stat().st_size * sample.count(b"\n") // max(len(sample), 1)

    def __repr__(self) -> str:
        return (
            f"Log({self.path.name!r}, arms={list(self.arms)}, context={list(self.layout.context)})"
        )


def format_suffix(path: Path) -> str:
    """Return the suffix of a log in lower case; folders hold Parquet files."""
    suffix = ".parquet" if path.is_dir() else path.suffix.lower()
    if suffix not in READERS:
        raise InvalidParameterError(
            f"unknown format of {path.name}; the name of a log must end in {', '.join(READERS)}"
        )
    return suffix


def open_rows(path: Path) -> RowReader:
    """Open a file, or several Parquet files."""
    suffix = format_suffix(path)
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidLogError(f"{path.name} is empty: it has no columns and no rows")
    if not path.exists() and not (suffix == ".parquet" and has_magic(str(path))):
        raise FileNotFoundError(f"{path} does not exist")
    return READERS[suffix](path)


def resolve_columns(names: Sequence[str], columns: Columns, file: str) -> Layout:
    """Return the role of each column of a file; ``columns`` overrides the standard names."""
    _check_distinct(names, "columns", file)
    outputs = _choose_columns(columns.outputs, OUTPUT, names, "outputs", file)
    base = _choose_columns(columns.context, CONTEXT, names, "context", file)
    if len(outputs) < 2:
        raise InvalidLogError(
            f"{file} must have an output column for each of at least 2 arms, got {quoted(outputs)}"
        )
    arms = tuple(name.removeprefix(OUTPUT) for name in outputs)
    _check_distinct(arms, "arms", file)
    standard = columns.outputs is None
    arm_of_column: dict[str, int] = {}
    for name in names:
        if name.startswith((REVEALED, COST, RIGHT)) and name not in (columns.right or ()):
            arm = _arm_of(name, arms)
            if arm is not None:
                arm_of_column[name] = arm
            elif standard:
                raise InvalidLogError(
                    f"{file}: column {name!r} does not belong to an arm; the arms are "
                    f"{quoted(arms)}"
                )
    revealed = tuple(
        tuple(name for name, arm in arm_of_column.items() if arm == i and name.startswith(REVEALED))
        for i in range(len(arms) - 1)
    )
    costs = {arm: name for name, arm in arm_of_column.items() if name.startswith(COST)}
    right = _right_columns(columns.right, arm_of_column, names, len(arms), file)
    by_role: dict[str, str | None] = {}
    for role in ("label", "stop", "rule_stop", "failed"):
        name: str | None = getattr(columns, role)
        if role == "label" and name == "":
            by_role[role] = None
            continue
        if name is not None and name not in names:
            raise _missing([name], names, role, file)
        has_standard_name = role in names and (standard or role == "label")
        by_role[role] = role if name is None and has_standard_name else name
    unavailable = {by_role["label"]: "the label", **dict.fromkeys(outputs, "an output")}
    unavailable |= dict.fromkeys(right, "a label")
    if leaks := [f"{name!r} is {unavailable[name]}" for name in base if name in unavailable]:
        raise InvalidLogError(
            f"{file}: the context must be available before the first arm, but {', '.join(leaks)}; "
            "leave such columns out of the context"
        )
    initial_names = tuple(name.removeprefix(CONTEXT) for name in base)
    revealed_names = tuple(name.removeprefix(REVEALED) for name in chain(*revealed))
    return Layout(
        arms=arms,
        context=initial_names + revealed_names,
        base=base,
        revealed=revealed,
        outputs=outputs,
        costs=tuple(costs.get(i) for i in range(len(arms))) if costs else (),
        right=right,
        kind="kind" if standard and "kind" in names else None,
        **by_role,
    )


def _right_columns(
    chosen: tuple[str, ...] | None,
    arm_of_column: Mapping[str, int],
    names: Sequence[str],
    n_arms: int,
    file: str,
) -> tuple[str | None, ...]:
    """Return the ``right`` column of each arm, None if it has none; () if no arm has one."""
    if chosen is None:
        columns = {arm: name for name, arm in arm_of_column.items() if name.startswith(RIGHT)}
        return tuple(columns.get(i) for i in range(n_arms)) if columns else ()
    columns = _choose_columns(chosen, RIGHT, names, "right", file) if chosen else ()
    if columns and len(columns) != n_arms:
        raise InvalidLogError(
            f"{file}: right must have a column for each of the {n_arms} arms, in the order of the "
            f"outputs, got {len(columns)} columns"
        )
    return columns


def _arm_of(column: str, arms: Sequence[str]) -> int | None:
    """Return the arm of ``revealed.<arm>.<name>``, ``cost.<arm>`` or ``right.<arm>``, or None.

    Names of arms may contain dots; the longest match wins.
    """
    matches = [
        i
        for i, arm in enumerate(arms)
        if column in (COST + arm, RIGHT + arm) or column.startswith(f"{REVEALED}{arm}.")
    ]
    return max(matches, key=lambda i: len(arms[i]), default=None)


def _choose_columns(
    chosen: tuple[str, ...] | None, prefix: str, names: Sequence[str], role: str, file: str
) -> tuple[str, ...]:
    """Return the chosen columns; if none are chosen (None), all columns with the prefix."""
    if chosen is None:
        columns = tuple(name for name in names if name.startswith(prefix))
        if not columns:
            raise _missing([f"{prefix}<name>"], names, role, file)
        return columns
    # In a log with standard names, "age" is short for "context.age".
    columns = tuple(name if name in names else prefix + name for name in chosen)
    absent = [name for name, column in zip(chosen, columns, strict=True) if column not in names]
    if absent:
        raise _missing(absent, names, role, file)
    _check_distinct(columns, role, file)
    return columns


def _missing(absent: Sequence[str], names: Sequence[str], role: str, file: str) -> InvalidLogError:
    option = f"--{role} or " if role in ("context", "outputs", "label", "right") else ""
    if role == "context":
        empty = ', or pass an empty value (--context "", Columns(context=())) if there are none'
    else:
        empty = ""
    near = None if absent[0].endswith("<name>") else closest(absent[0], names)
    columns = f"columns are {quoted(names)}"
    hint = f"; its {columns}" if near is None else f"; did you mean {near!r}? Its {columns}"
    return InvalidLogError(
        f"{file} has no column {quoted(absent)}{hint}. Choose "
        f"other columns with {option}Columns({role}=…){empty}"
    )


def _check_distinct(names: Sequence[str], role: str, file: str) -> None:
    if duplicates := [name for name, n in Counter(names).items() if n > 1]:
        raise InvalidLogError(f"{file}: duplicate {role}: {quoted(duplicates)}")
