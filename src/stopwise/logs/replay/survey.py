"""What must be known of a whole log before it is replayed: its length and its ranges."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.logs.arrow import arrow
from stopwise.logs.log import Log

Floats = NDArray[np.float64]
Progress: TypeAlias = Callable[[str, int, int], object]

STAGE = "looking through the log"
SAMPLE = 1 << 20  # bytes from which the number of lines is guessed, for the progress bar only
PARQUET = b"PAR1"  # how such a file begins


class Survey(msgspec.Struct, frozen=True, eq=False):
    """How many rounds a log has, and from where to where each coordinate of its contexts goes."""

    rows: int
    low: Floats
    high: Floats


def survey(log: Log, progress: Progress | None = None) -> Survey:
    r"""Look through a log once, or at the summary of itself that a Parquet file keeps.

    Any other file is read, and so checked, from end to end.

    Raises
    ------
    InvalidLogError
        At the first row that is not as it must be.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("context.age,output.a,output.b\n3,cat,cat\n9,cat,dog\n")
    ...     found = survey(Log(path))
    >>> found.rows, found.low.tolist(), found.high.tolist()
    (2, [3.0], [9.0])
    """
    return _summary(log) or _read(log, progress)


def _read(log: Log, progress: Progress | None) -> Survey:
    d, n_base = len(log.context), len(log.layout.base)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    revealed_by = np.repeat(
        np.arange(len(log.layout.revealed)), [len(names) for names in log.layout.revealed]
    )
    rows, guess = 0, log.rows or _guessed_rows(log.path)
    for chunk in log.chunks():
        if progress is not None and rows:
            progress(STAGE, rows, max(rows + 1, guess))  # there are more
        contexts, reach = chunk.rounds.contexts, chunk.rounds.reach
        if n_base:
            low[:n_base] = np.minimum(low[:n_base], contexts[:, :n_base].min(axis=0))
            high[:n_base] = np.maximum(high[:n_base], contexts[:, :n_base].max(axis=0))
        for c, arm in enumerate(revealed_by.tolist(), start=n_base):
            known = contexts[reach >= arm, c]
            low[c] = min(low[c], known.min(initial=np.inf))
            high[c] = max(high[c], known.max(initial=-np.inf))
        rows += chunk.n
    if progress is not None:
        progress(STAGE, rows, rows)
    return Survey(rows, *_settled(low, high))


def _settled(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Give a coordinate that was never known a range; −0 and 0 are the same."""
    never = low > high
    return np.where(never, 0.0, low + 0.0), np.where(never, 0.0, high + 0.0)


def _guessed_rows(path: Path) -> int:
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
    return max(1, round(path.stat().st_size * sample.count(b"\n") / max(len(sample), 1)))


def _summary(log: Log) -> Survey | None:
    """Return what the row groups of a Parquet file say of themselves; None if they do not."""
    with log.path.open("rb") as file:
        if file.read(len(PARQUET)) != PARQUET:
            return None
    names = [*log.layout.base, *(name for more in log.layout.revealed for name in more)]
    with arrow("pyarrow.parquet").ParquetFile(log.path) as file:
        summary: Any = file.metadata
        places = {summary.schema.column(i).path: i for i in range(summary.num_columns)}
        low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        for g in range(summary.num_row_groups):
            group = summary.row_group(g)
            for c, name in enumerate(names):
                if name not in places:
                    return None
                column = group.column(places[name])
                found = _range(column.statistics, group.num_rows)
                if found is None:
                    return None
                low[c], high[c] = min(low[c], found[0]), max(high[c], found[1])
        return Survey(int(summary.num_rows), *_settled(low, high))


def _range(statistics: Any, rows: int) -> tuple[float, float] | None:
    """Return the least and the largest value of a column in a row group, where it is told."""
    if statistics is None:
        return None
    if statistics.has_null_count and statistics.null_count == rows:
        return np.inf, -np.inf
    if not statistics.has_min_max:
        return None
    low, high = statistics.min, statistics.max
    try:
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        return None
    return (low, high) if np.isfinite([low, high]).all() else None
