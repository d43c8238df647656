"""What a replay needs to know of a log beforehand: its length and the ranges of its contexts."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.formats.parquet import arrow
from stopwise.logs.log import Log
from stopwise.records import Progress, no_progress

Floats = NDArray[np.float64]

STAGE = "reading the log"
SAMPLE = 1 << 20  # bytes from which the number of lines is guessed, for the progress bar only
PARQUET = b"PAR1"  # the first bytes of such a file


class LogSummary(msgspec.Struct, frozen=True, eq=False):
    """How many rounds a log has, and the range of each coordinate of its contexts."""

    rows: int
    low: Floats
    high: Floats


def summarise(log: Log, progress: Progress = no_progress) -> LogSummary:
    r"""Read a log once, or the statistics that a Parquet file stores.

    Any other file is read, and so checked, from end to end.

    Raises
    ------
    InvalidLogError
        If rows cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("context.age,output.a,output.b\n3,cat,cat\n9,cat,dog\n")
    ...     found = summarise(Log(path))
    >>> found.rows, found.low.tolist(), found.high.tolist()
    (2, [3.0], [9.0])
    """
    stored = _stored(log)
    rows, low, high = stored if stored is not None else _read(log, progress)
    never = low > high  # a coordinate that no row has
    # adding 0 turns −0 into 0
    return LogSummary(rows, np.where(never, 0.0, low + 0.0), np.where(never, 0.0, high + 0.0))


def _read(log: Log, progress: Progress) -> tuple[int, Floats, Floats]:
    low, high = np.full(len(log.context), np.inf), np.full(len(log.context), -np.inf)
    arms = [arm for arm, names in enumerate(log.layout.revealed) for _ in names]
    known_from = [-1] * len(log.layout.base) + arms  # after which arm each coordinate is known
    rows, guess = 0, log.rows or _guessed_rows(log.path)
    for chunk in log.chunks():
        if rows:
            progress(STAGE, rows, max(rows + 1, guess))  # there are more
        for c, arm in enumerate(known_from):
            known = chunk.rounds.contexts[chunk.rounds.reach >= arm, c]
            low[c] = min(low[c], known.min(initial=np.inf))
            high[c] = max(high[c], known.max(initial=-np.inf))
        rows += chunk.n
    progress(STAGE, rows, rows)
    return rows, low, high


def _guessed_rows(path: Path) -> int:
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
    return max(1, round(path.stat().st_size * sample.count(b"\n") / max(len(sample), 1)))


def _stored(log: Log) -> tuple[int, Floats, Floats] | None:
    """Return what the row groups of a Parquet file store; None if they do not."""
    with log.path.open("rb") as file:
        if file.read(len(PARQUET)) != PARQUET:
            return None
    names = [*log.layout.base, *(name for more in log.layout.revealed for name in more)]
    with arrow("pyarrow.parquet").ParquetFile(log.path) as file:
        metadata: Any = file.metadata
        places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        if not places.keys() >= set(names):
            return None
        low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            for c, name in enumerate(names):
                found = _range(group.column(places[name]).statistics, group.num_rows)
                if found is None:
                    return None
                low[c], high[c] = min(low[c], found[0]), max(high[c], found[1])
        return int(metadata.num_rows), low, high


def _range(statistics: Any, rows: int) -> tuple[float, float] | None:
    """Return the least and the largest value of a column in a row group, where it is stored."""
    if statistics is None:
        return None
    if statistics.has_null_count and statistics.null_count == rows:
        return np.inf, -np.inf
    try:
        low, high = float(statistics.min), float(statistics.max)  # None without statistics
    except (TypeError, ValueError):
        return None
    return (low, high) if np.isfinite([low, high]).all() else None
