"""Partitions of a log by the values of a column, and work spread over them."""

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
MOST_ROWS = 1 << 20  # of a task, which holds them in memory: some 150 bytes each, ten coordinates
BATCH = 65_536  # rows that are read at a time


class Part(Log):
    """Rows of a log as a log: held in memory and numbered from 0."""

    def __init__(self, log: Log, title: str, held: Sequence[Chunk]) -> None:
        self.__dict__.update(log.__dict__)
        self.path = log.path.with_name(f"{log.path.name} [{title}]".replace("/", "|"))
        self.rows, self._held = sum(chunk.n for chunk in held), held

    def _chunks(self, size: int, progress: Progress) -> Iterator[Chunk]:
        yield from self._held
        progress("reading", self.rows or 0, self.rows or 0)

    @staticmethod
    def sizes(log: Log, by: str, progress: Progress = no_progress) -> dict[str, int]:
        """Return the values of a column, "" for none, and how many rows have each."""
        if by not in log._file.names:
            raise InvalidParameterError(
                f"{log.path.name} has no column {by!r} to tell rows apart by; its columns are "
                f"{', '.join(map(repr, log._file.names))}"
            )
        found: dict[str, int] = {}
        for batch in log._file.batches(log.layout.only([by]), BATCH):
            for value, rows in _owned(batch, by).items():
                found[value] = found.get(value, 0) + len(rows)
            progress("listing", batch.first + batch.n, log.rows or 0)
        return found

    @staticmethod
    def each(log: Log, by: str, values: Sequence[str]) -> "Iterator[tuple[str, Part]]":
        """Read the rows of some values, all at once, and yield them value by value."""
        held: dict[str, list[Chunk]] = {value: [] for value in values}
        reading, family = msgspec.structs.replace(log.layout, base=(*log.layout.base, by)), None
        for batch in log._file.batches(reading, BATCH):
            given = log.layout, family, log.path.name, log.encoding, log.normalise_answers
            chunk, family = make_chunk(batch, *given)
            for value, rows in _owned(batch, by).items():
                if value in held:
                    first = sum(part.n for part in held[value])
                    rounds = _take(chunk.rounds, rows)
                    held[value].append(_take(chunk, rows, first=first, rounds=rounds))
        for value in values:
            yield value, Part(log, f"{by}={value}", held.pop(value))


def spread(
    executor: Executor,
    log: Log,
    by: str | None,
    work: Sequence[Callable[[Log, Progress], T]],
    stage: str,
    progress: Progress = no_progress,
) -> Generator[tuple[str, T], None, None]:
    """Do some work with every part of a log, or with all of it; yield what that returns.

    Results come as they are ready, each with the value of its part. A lost worker's task, which
    reads a few parts, is done again by another; functions must be those of a module.
    """
    _ = log.encoding  # fitted once, and the same for all
    tasks: list[tuple[Any, ...]] = [(log, by, [""], [one]) for one in work]
    if by is not None:
        sizes = Part.sizes(log, by, progress)
        tasks = [(log, by, some, work) for some in grouped(sizes, executor.workers())]
    with closing(executor.run(_do, tasks)) as results:
        for done, result in enumerate(results, 1):
            yield from result
            progress(stage, done, len(tasks))


def _do(
    log: Log,
    by: str | None,
    values: Sequence[str],
    work: Sequence[Callable[[Log, Progress], T]],
    stop: Event | None = None,
) -> list[tuple[str, T]]:
    def progress(stage: str, done: int, of: int) -> None:
        if stop is not None and stop.is_set():
            raise CancelledError

    parts = [("", log)] if by is None else Part.each(log, by, values)
    return [(value, one(part, progress)) for value, part in parts for one in work]


def grouped(sizes: dict[str, int], workers: int) -> list[list[str]]:
    """Put parts into tasks of about equal size, of some `MOST_ROWS` at most if parts allow it.

    >>> grouped({"a": 10, "b": 10, "c": 5, "d": 5, "e": 10}, workers=2)
    [['a', 'b'], ['c', 'd', 'e']]
    """
    rows = sum(sizes.values())
    size = rows / (workers * -(-rows // (workers * MOST_ROWS)))
    ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    return [list(some) for _, some in groupby(sizes, lambda v: (ends[v] - sizes[v] / 2) // size)]


def _owned(batch: RowBatch, by: str) -> dict[str, Ints]:
    """Return the rows of each value of a column."""
    cells = batch.cells(by, "text")
    none = cells.words.index("") if "" in cells.words else -1  # the same tenant as an empty text
    values = np.where(cells.null, none, cells.values)
    kinds, which, n = np.unique(values, return_inverse=True, return_counts=True)
    found: list[int] = kinds.tolist()
    names = ["" if k < 0 else cells.words[k] for k in found]
    rows = np.split(np.argsort(which, kind="stable"), np.cumsum(n)[:-1])
    return dict(zip(names, rows, strict=True))


def _take(arrays: S, rows: Ints, **others: Any) -> S:
    """Return a struct with some rows of its arrays, and with other values of other fields."""
    for name, value in msgspec.structs.asdict(arrays).items():
        if isinstance(value, np.ndarray):
            others[name] = value[rows]
    return msgspec.structs.replace(arrays, **others)
