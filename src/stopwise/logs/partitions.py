"""Partitions of a log by the values of a column, and parallel work on them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from itertools import accumulate, groupby
from threading import Event
from typing import Any, TypeVar

import msgspec
import numpy as np

from stopwise.arrays import Ints
from stopwise.errors import InvalidParameterError
from stopwise.executors import Executor
from stopwise.logs.chunk import Chunk, make_chunk
from stopwise.logs.log import Log
from stopwise.logs.rows import RowBatch
from stopwise.progress import Progress, no_progress

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
# A task holds its rows in memory: about 150 bytes per row with ten coordinates.
MAX_TASK_ROWS = 1 << 20
BATCH_ROWS = 65_536


class Partition(Log):
    """Some rows of a log, held in memory and numbered from 0."""

    def __init__(self, log: Log, title: str, chunks: Sequence[Chunk]) -> None:
        self.__dict__.update(log.__dict__)
        self.path = log.path.with_name(f"{log.path.name} [{title}]".replace("/", "|"))
        self.rows, self._chunks_held = sum(chunk.n for chunk in chunks), chunks

    def _chunks(self, size: int, progress: Progress) -> Iterator[Chunk]:
        yield from self._chunks_held
        progress("reading", self.rows or 0, self.rows or 0)

    @staticmethod
    def sizes(log: Log, column: str, progress: Progress = no_progress) -> dict[str, int]:
        """Return the number of rows for each value of a column; empty cells count as ""."""
        if column not in log._file.names:
            raise InvalidParameterError(
                f"{log.path.name} has no column {column!r} to partition by; its columns are "
                f"{', '.join(map(repr, log._file.names))}"
            )
        sizes: dict[str, int] = {}
        for batch in log._file.batches(log.layout.only([column]), BATCH_ROWS):
            for value, rows in _rows_by_value(batch, column).items():
                sizes[value] = sizes.get(value, 0) + len(rows)
            progress("listing", batch.first + batch.n, log.rows or 0)
        return sizes

    @staticmethod
    def read(log: Log, column: str, values: Sequence[str]) -> "Iterator[tuple[str, Partition]]":
        """Yield each value with its partition; all partitions are read in one pass."""
        chunks: dict[str, list[Chunk]] = {value: [] for value in values}
        layout, family = msgspec.structs.replace(log.layout, base=(*log.layout.base, column)), None
        for batch in log._file.batches(layout, BATCH_ROWS):
            chunk, family = make_chunk(
                batch, log.layout, family, log.path.name, log.encoding, log.normalise_answers
            )
            for value, rows in _rows_by_value(batch, column).items():
                if value in chunks:
                    first = sum(earlier.n for earlier in chunks[value])
                    rounds = _take(chunk.rounds, rows)
                    chunks[value].append(_take(chunk, rows, first=first, rounds=rounds))
        for value in values:
            yield value, Partition(log, f"{column}={value}", chunks.pop(value))


def map_partitions(
    executor: Executor,
    log: Log,
    column: str | None,
    functions: Sequence[Callable[[Log, Progress], T]],
    stage: str,
    progress: Progress = no_progress,
) -> Generator[tuple[str, T], None, None]:
    """Apply functions to every partition of a log, or to the complete log if ``column`` is None.

    Yields the value of a partition and a result, in order of completion. If a worker is lost,
    another worker repeats its task, which may cover several partitions. Functions must be defined
    at module level.
    """
    _ = log.encoding  # fitted once and shared by all tasks
    tasks: list[tuple[Any, ...]] = [(log, column, [""], [function]) for function in functions]
    if column is not None:
        sizes = Partition.sizes(log, column, progress)
        groups = group_partitions(sizes, executor.workers())
        tasks = [(log, column, values, functions) for values in groups]
    with closing(executor.run(_run_task, tasks)) as results:
        for done, result in enumerate(results, 1):
            yield from result
            progress(stage, done, len(tasks))


def _run_task(
    log: Log,
    column: str | None,
    values: Sequence[str],
    functions: Sequence[Callable[[Log, Progress], T]],
    stop: Event | None = None,
) -> list[tuple[str, T]]:
    def check_cancelled(stage: str, done: int, of: int) -> None:
        if stop is not None and stop.is_set():
            raise CancelledError

    partitions = [("", log)] if column is None else Partition.read(log, column, values)
    return [
        (value, function(partition, check_cancelled))
        for value, partition in partitions
        for function in functions
    ]


def group_partitions(sizes: dict[str, int], workers: int) -> list[list[str]]:
    """Group partitions into tasks of similar size, if possible of at most `MAX_TASK_ROWS` rows.

    >>> group_partitions({"a": 10, "b": 10, "c": 5, "d": 5, "e": 10}, workers=2)
    [['a', 'b'], ['c', 'd', 'e']]
    """
    n_rows = sum(sizes.values())
    task_rows = n_rows / (workers * -(-n_rows // (workers * MAX_TASK_ROWS)))
    last_row = dict(zip(sizes, accumulate(sizes.values()), strict=True))

    def task(value: str) -> float:
        return (last_row[value] - sizes[value] / 2) // task_rows

    return [list(values) for _, values in groupby(sizes, task)]


def _rows_by_value(batch: RowBatch, column: str) -> dict[str, Ints]:
    """Return the rows that hold each value of a column."""
    cells = batch.cells(column, "text")
    # An empty cell and an empty text are the same value.
    empty = cells.texts.index("") if "" in cells.texts else -1
    codes = np.where(cells.null, empty, cells.values)
    distinct, index, counts = np.unique(codes, return_inverse=True, return_counts=True)
    codes_in_order: list[int] = distinct.tolist()
    values = ["" if code < 0 else cells.texts[code] for code in codes_in_order]
    rows = np.split(np.argsort(index, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(values, rows, strict=True))


def _take(struct: S, rows: Ints, **changes: Any) -> S:
    """Return a struct with only these rows of its arrays, and with ``changes`` to other fields."""
    for name, value in msgspec.structs.asdict(struct).items():
        if isinstance(value, np.ndarray):
            changes[name] = value[rows]
    return msgspec.structs.replace(struct, **changes)
