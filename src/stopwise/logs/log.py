"""A log of rounds: the meaning of its columns, and its rows in bounded memory."""

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
from stopwise.logs.encoding import FIRST, Column, Encoding, fit
from stopwise.logs.formats.arrow import ArrowReader, open_stream
from stopwise.logs.formats.csv import CsvReader
from stopwise.logs.formats.json_lines import JsonLinesReader
from stopwise.logs.formats.parquet import open_parquet
from stopwise.logs.rows import Layout, quoted
from stopwise.progress import Progress, no_progress

RowReader: TypeAlias = CsvReader | JsonLinesReader | ArrowReader
READERS: dict[str, Callable[[Path], RowReader]] = {
    ".parquet": open_parquet,
    ".csv": CsvReader,
    ".jsonl": JsonLinesReader,
    ".ndjson": JsonLinesReader,
}
CONTEXT, REVEALED, OUTPUT = "context.", "revealed.", "output."
COST, RIGHT = "cost.", "right."
SAMPLE = 1 << 20  # bytes from which the number of lines is guessed, for progress only


class Columns(msgspec.Struct, frozen=True):
    """The columns of a table that was not written by Stopwise.

    Leave out what has the names of the format (docs/logs.md). If ``outputs`` is given,
    ``stop``, ``rule_stop`` and ``failed`` are read only if they are given too.

    Attributes
    ----------
    context : tuple of str or None
        What is known before the first arm; default: every ``context.*``. An empty tuple
        means that the log has no contexts.
    outputs : tuple of str or None
        The output of each arm, in the order of the cascade; default: every ``output.*``.
    label : str or None
        The right answer; default: ``label``, if there is such a column. An empty text means that
        no column is read.
    right : tuple of str or None
        Whether the answer of each arm was right, in the order of ``outputs``; default: every
        ``right.*``. An empty tuple means that no column is read.
    stop : str or None
        The arm at which the round stopped, by name or 0-based number.
    rule_stop : str or None
        The arm at which the rule itself would have stopped.
    failed : str or None
        The arm that was run and did not answer.

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
    r"""Rounds in a table: one row per round, in files or in memory (docs/logs.md).

    Opening a log reads the names of its columns; `chunks` reads the rows, as often as you like, in
    memory that does not grow with the file. An `Encoding` is fitted to the contexts before.

    Parameters
    ----------
    source : str, path or table
        A file (``.parquet``, ``.csv``, ``.jsonl``, ``.ndjson``), a glob or a folder of Parquet
        files, or what has ``__arrow_c_stream__``: a frame of pandas or Polars, a relation of
        DuckDB, an Arrow table.
    columns : Columns, optional
        The names of the columns, if they are not those of the format.
    encoding : Encoding, optional
        That of the contexts, if it should not be fitted to this log.
    normalise_answers : bool
        Whether to compare answers without regard to case and space, and 1, true and yes as equal.
    name : str, optional
        What messages and results call it.

    Attributes
    ----------
    path : Path
        Of a table, its name.
    columns : Columns
    layout : Layout
        What each column is for.
    arms : tuple of str
        In the order of the cascade.
    context : tuple of str
        Names of the coordinates: those known from the start, then what each arm but the last
        reveals, ``<arm>.<name>``.
    encoding : Encoding
        How the columns known from the start become coordinates.
    sees : tuple of int or None
        How many coordinates are known after each arm but the last, as in the features that
        `bind` makes of `Answers`; None where no arm reveals any.
    has_labels, has_costs : bool
        Whether there are columns of right answers, or of which arms were right; of what calls
        really cost.
    rows : int or None
        How many rounds there are, where the file says (Parquet).

    Raises
    ------
    InvalidLogError
        If the file is damaged, empty or lacks a column; from `chunks`, if cells are wrong (it
        lists the first ten).

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
                f"a log is a file or a table (a data frame, an Arrow table), not a "
                f"{type(source).__name__}; of a lazy frame, give what .collect() returns"
            )
        else:
            self.path = Path(source)
            self._file = open_rows(self.path)
        self._sample, self.path = self.path, Path(name or self.path)
        self.layout = arrange(self._file.names, self.columns, self.path.name)
        self.rows = self._file.rows
        self.arms = self.layout.arms
        self.has_labels = self.layout.label is not None or bool(self.layout.right)
        self.has_costs = bool(self.layout.costs)
        self.normalise_answers, self._given = normalise_answers, encoding
        if (
            absent := {c.name for c in (encoding.columns if encoding else ())}
            - self.layout.sources.keys()
        ):
            raise InvalidParameterError(
                f"the context of {self.path.name}, {', '.join(self.layout.sources) or 'empty'}, "
                f"has no {', '.join(sorted(absent))}, which the encoding takes"
            )

    @cached_property
    def encoding(self) -> Encoding:
        """How the columns of the context become numbers; reads them, unless it was given."""
        sources = self.layout.sources
        if self._given is not None:
            return self._given
        if self._file.once or not sources:
            return Encoding(tuple(map(Column, sources)))
        batches = self._file.batches(self.layout.only(self.layout.base), FIRST)
        return fit(batches, sources, self.path.name)

    @property
    def n_initial(self) -> int:
        """How many coordinates are known before the first arm."""
        return len(self.encoding.coordinates)

    @property
    def context(self) -> tuple[str, ...]:
        """The names of all coordinates."""
        return (*self.encoding.coordinates, *self.layout.context[len(self.layout.base) :])

    @property
    def sees(self) -> tuple[int, ...] | None:
        """How many coordinates are known after each arm but the last."""
        known = accumulate(map(len, self.layout.revealed), initial=self.n_initial)
        return tuple(known)[1:] if any(self.layout.revealed) else None

    def chunks(self, size: int = 65_536, progress: Progress = no_progress) -> Iterator[Chunk]:
        """Yield the rounds in order, up to ``size`` at a time.

        Calls ``progress("reading", done, of)``; in text files ``of`` is a guess until the end.
        """
        return self._chunks(integer("size", size, least=1), progress)

    def read_cells(self, columns: Sequence[str], rows: Sequence[int]) -> list[list[str]]:
        """Return those of the columns that there are as text: names, then cells of some rows."""
        names = [name for name in columns if name in self._file.names]
        found: dict[int, list[str]] = {}
        for batch in self._file.batches(self.layout.only(names), 65_536):
            cells = [batch.cells(name, "text") for name in names]
            for k in {row - batch.first for row in rows}.intersection(range(batch.n)):
                row = ["" if c.null[k] else c.words[int(c.values[k])] for c in cells]
                found[batch.first + k] = row
        return [names, *(found[row] for row in rows)]

    def _chunks(self, size: int, progress: Progress) -> Iterator[Chunk]:
        family, done, expected = None, 0, self.rows or self._guessed_rows()
        encoding = self.encoding  # before the rows are read
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

    def _guessed_rows(self) -> int:
        if not self._sample.is_file():
            return 0
        with self._sample.open("rb") as file:
            sample = file.read(SAMPLE)
        return self._sample.stat().st_size * sample.count(b"\n") // max(len(sample), 1)

    def __repr__(self) -> str:
        return (
            f"Log({self.path.name!r}, arms={list(self.arms)}, context={list(self.layout.context)})"
        )


def format_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case; a folder is of Parquet."""
    suffix = ".parquet" if path.is_dir() else path.suffix.lower()
    if suffix not in READERS:
        raise InvalidParameterError(
            f"the format of {path.name} is not known; a log ends in {', '.join(READERS)}"
        )
    return suffix


def open_rows(path: Path) -> RowReader:
    """Open a file, or several in Parquet."""
    suffix = format_suffix(path)
    if path.is_file() and path.stat().st_size == 0:
        raise InvalidLogError(f"{path.name} is empty: it has no columns and no rows")
    if not path.exists() and not (suffix == ".parquet" and has_magic(str(path))):
        raise FileNotFoundError(f"there is no file {path}")
    return READERS[suffix](path)


def arrange(names: Sequence[str], columns: Columns, file: str) -> Layout:
    """Return what each column of a file is for; ``columns`` are the names that the user gave."""
    _check_distinct(names, "columns", file)
    outputs = _chosen(columns.outputs, OUTPUT, names, "outputs", file)
    base = _chosen(columns.context, CONTEXT, names, "context", file)
    if len(outputs) < 2:
        raise InvalidLogError(
            f"{file} has the output of {', '.join(outputs) or 'no arm'} only; a cascade has two "
            "arms or more"
        )
    arms = tuple(name.removeprefix(OUTPUT) for name in outputs)
    _check_distinct(arms, "arms", file)
    standard = columns.outputs is None
    of_arm: dict[str, int] = {}
    for name in names:
        if name.startswith((REVEALED, COST, RIGHT)) and name not in (columns.right or ()):
            arm = _arm_of(name, arms)
            if arm is not None:
                of_arm[name] = arm
            elif standard:
                raise InvalidLogError(
                    f"{file}: column {name!r} names no arm; the arms are {quoted(arms)}"
                )
    revealed = tuple(
        tuple(name for name, arm in of_arm.items() if arm == i and name.startswith(REVEALED))
        for i in range(len(arms) - 1)
    )
    prices = {arm: name for name, arm in of_arm.items() if name.startswith(COST)}
    right = _right(columns.right, of_arm, names, len(arms), file)
    given: dict[str, str | None] = {}
    for role in ("label", "stop", "rule_stop", "failed"):
        name: str | None = getattr(columns, role)
        if role == "label" and name == "":
            given[role] = None
            continue
        if name is not None and name not in names:
            raise _missing([name], names, role, file)
        expected = role in names and (standard or role == "label")
        given[role] = role if name is None and expected else name
    later = {given["label"]: "the label", **dict.fromkeys(outputs, "an output")}
    later |= dict.fromkeys(right, "a label")
    if known := [f"{name!r} is {later[name]}" for name in base if name in later]:
        raise InvalidLogError(
            f"{file}: {', '.join(known)}, which nobody knows before the first arm runs: leave it "
            "out of the context"
        )
    return Layout(
        arms=arms,
        context=(
            *(name.removeprefix(CONTEXT) for name in base),
            *(name.removeprefix(REVEALED) for name in chain(*revealed)),
        ),
        base=base,
        revealed=revealed,
        outputs=outputs,
        costs=tuple(prices.get(i) for i in range(len(arms))) if prices else (),
        right=right,
        kind="kind" if standard and "kind" in names else None,
        **given,
    )


def _right(
    chosen: tuple[str, ...] | None,
    of_arm: Mapping[str, int],
    names: Sequence[str],
    n_arms: int,
    file: str,
) -> tuple[str | None, ...]:
    """Return the column that says whether each arm was right; () if there is none."""
    if chosen is None:
        columns = {arm: name for name, arm in of_arm.items() if name.startswith(RIGHT)}
        return tuple(columns.get(i) for i in range(n_arms)) if columns else ()
    found = _chosen(chosen, RIGHT, names, "right", file) if chosen else ()
    if found and len(found) != n_arms:
        raise InvalidLogError(
            f"{file}: right names {len(found)} columns for {n_arms} arms: give one for each arm, "
            "in the order of the outputs"
        )
    return found


def _arm_of(column: str, arms: Sequence[str]) -> int | None:
    """Return the arm of ``revealed.<arm>.<name>``, ``cost.<arm>`` or ``right.<arm>``, or None.

    Names of arms may hold dots; of two that fit, the longer is meant.
    """
    fits = [
        i
        for i, arm in enumerate(arms)
        if column in (COST + arm, RIGHT + arm) or column.startswith(f"{REVEALED}{arm}.")
    ]
    return max(fits, key=lambda i: len(arms[i]), default=None)


def _chosen(
    given: tuple[str, ...] | None, prefix: str, names: Sequence[str], what: str, file: str
) -> tuple[str, ...]:
    """Return the columns that the user gave, or else those with the prefix."""
    if given is None:
        found = tuple(name for name in names if name.startswith(prefix))
        if not found:
            raise _missing([f"{prefix}<name>"], names, what, file)
        return found
    # In a file of the format, "age" is short for "context.age".
    found = tuple(name if name in names else prefix + name for name in given)
    absent = [name for name, full in zip(given, found, strict=True) if full not in names]
    if absent:
        raise _missing(absent, names, what, file)
    _check_distinct(found, what, file)
    return found


def _missing(absent: Sequence[str], names: Sequence[str], role: str, file: str) -> InvalidLogError:
    option = f"--{role}, " if role in ("context", "outputs", "label", "right") else ""
    none = ' ("" and () if there are none)' if role == "context" else ""
    return InvalidLogError(
        f"{file} has no column {quoted(absent)}; its columns are {quoted(names)}. Name your own "
        f"with {option}Columns({role}=…){none}"
    )


def _check_distinct(names: Sequence[str], what: str, file: str) -> None:
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise InvalidLogError(f"{file}: {what} are named twice: {quoted(twice)}")
