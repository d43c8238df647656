"""Finished runs in one SQLite file: append-only, safe to kill, safe to share.

A run is identified by its spec's key and its seed. Numbers are kept as raw little-endian bytes,
so what comes out is what went in, to the last bit.
"""

import sqlite3
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stopwise.errors import (
    CorruptFileError,
    InvalidParameterError,
    IrreproducibleRunError,
    PersistenceError,
    UnsupportedVersionError,
)
from stopwise.experiments.runs import Trace
from stopwise.experiments.spec import ExperimentSpec

VERSION = 1  # of the tables; the meaning of runs has its own number, in their keys
APPLICATION = 0x53544F50  # "STOP": how SQLite files say whose they are
PATIENCE = 60.0  # seconds to wait for another process that writes (heuristic)

SCHEMA = f"""
CREATE TABLE specs (key TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
CREATE TABLE runs (
    key TEXT NOT NULL REFERENCES specs (key),
    seed INTEGER NOT NULL,
    rounds BLOB NOT NULL,
    regret BLOB NOT NULL,
    total_cost BLOB,
    undominated BLOB NOT NULL,
    depths BLOB NOT NULL,
    seconds REAL NOT NULL,
    UNIQUE (key, seed)
) STRICT;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class RunStore:
    """A file of finished runs.

    Several processes may write at once. A process that is killed loses what it had not `put`,
    and nothing else.

    Parameters
    ----------
    path : path
        The file; made if it is not there.

    Raises
    ------
    CorruptFileError
        If the file is damaged or is not a store.
    UnsupportedVersionError
        If a newer Stopwise wrote it.

    Examples
    --------
    >>> import tempfile
    >>> from stopwise.experiments.runs import execute
    >>> from stopwise.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=100)
    >>> with tempfile.TemporaryDirectory() as folder, RunStore(f"{folder}/runs.db") as store:
    ...     store.put(spec, [execute(spec, 0), execute(spec, 2)])
    ...     store.missing(spec, range(4))
    [1, 3]
    """

    def __init__(self, path: "str | PathLike[str]") -> None:
        self.path = Path(path)
        with self._understood():
            self._db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._understood():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def put(self, spec: ExperimentSpec, traces: Iterable[Trace]) -> None:
        """Keep runs of a spec, all or none; on disk when this returns.

        Runs that are already there are left as they are.

        Raises
        ------
        IrreproducibleRunError
            If one that is already there has other numbers.
        """
        key = spec.key
        with self._understood(), self._writing():
            self._db.execute("INSERT OR IGNORE INTO specs VALUES (?, ?)", (key, spec.to_json()))
            for trace in traces:
                if trace.key != key:
                    raise InvalidParameterError(
                        f"a run of experiment {trace.key} was given as one of {key}; if it came "
                        "from another machine, does that run the same version of Stopwise?"
                    )
                added = self._db.execute(
                    "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(trace)
                )
                if added.rowcount == 0:
                    self._same_as_kept(trace)

    def get(self, spec: ExperimentSpec) -> dict[int, Trace]:
        """Return the runs of a spec by seed, in the order of seeds."""
        with self._understood():
            rows = self._db.execute("SELECT * FROM runs WHERE key = ? ORDER BY seed", (spec.key,))
            traces = [self._trace(row) for row in rows]
        return {trace.seed: trace for trace in traces}

    def missing(self, spec: ExperimentSpec, seeds: Iterable[int]) -> list[int]:
        """Return those of the seeds whose runs are not here, each once, in the order given."""
        with self._understood():
            rows = self._db.execute("SELECT seed FROM runs WHERE key = ?", (spec.key,))
            kept = {seed for (seed,) in rows}
        return [seed for seed in dict.fromkeys(seeds) if seed not in kept]

    def specs(self) -> list[ExperimentSpec]:
        """Return every experiment of which there are runs."""
        with self._understood():
            rows = self._db.execute("SELECT spec FROM specs ORDER BY rowid").fetchall()
        return [ExperimentSpec.from_json(text) for (text,) in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _open(self) -> None:
        if (
            self._number("application_id") == 0
            and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()
        ):
            self._create()
        if self._number("application_id") != APPLICATION:
            raise CorruptFileError(f"{self.path} is a database, but not one of Stopwise's runs")
        if (version := self._number("user_version")) != VERSION:
            raise UnsupportedVersionError(
                f"{self.path} has format {version}; this version of Stopwise reads {VERSION}"
            )
        self._db.execute("PRAGMA synchronous = FULL")
        (report,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise CorruptFileError(
                f"{self.path} is damaged ({report}); restore a copy, or remove it to start afresh"
            )

    def _create(self) -> None:
        # Readers do not hold up writers in this mode. SQLite does not wait for its turn to change
        # the mode, so that of several processes which make the file at once all but one fail.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        with self._writing():
            if self._number("application_id") == 0:  # nobody was faster
                for statement in filter(None, map(str.strip, SCHEMA.split(";"))):
                    self._db.execute(statement)

    def _number(self, pragma: str) -> int:
        return self._db.execute(f"PRAGMA {pragma}").fetchone()[0]

    def _same_as_kept(self, trace: Trace) -> None:
        kept = self._trace(
            self._db.execute(
                "SELECT * FROM runs WHERE key = ? AND seed = ?", (trace.key, trace.seed)
            ).fetchone()
        )
        if not trace.agrees(kept):
            raise IrreproducibleRunError(
                f"seed {trace.seed} of experiment {trace.key} was done twice with different "
                f"numbers: final regret {kept.regret[-1]!r} in {self.path}, {trace.regret[-1]!r} "
                "now. A run must depend on its spec and seed alone; look for a difference of "
                "versions or machines before you trust either"
            )

    def _trace(self, row: Sequence[Any]) -> Trace:
        key, seed, rounds, regret, total_cost, undominated, depths, seconds = row
        try:
            trace = Trace(
                key=key,
                seed=seed,
                rounds=_array(rounds, "<i8"),
                regret=_array(regret, "<f8"),
                total_cost=None if total_cost is None else _array(total_cost, "<f8"),
                undominated=_array(undominated, "<f8"),
                depths=_array(depths, "<i8"),
                seconds=seconds,
            )
        except ValueError as error:
            raise CorruptFileError(f"{self.path}: seed {seed} of {key} is damaged") from error
        curves = [trace.regret, trace.undominated, trace.total_cost]
        if any(curve is not None and curve.shape != trace.rounds.shape for curve in curves):
            raise CorruptFileError(f"{self.path}: seed {seed} of {key} is damaged")
        return trace

    @contextmanager
    def _writing(self) -> Generator[None, None, None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite rolls back by itself when the disk is full
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _understood(self) -> Generator[None, None, None]:
        """Say what SQLite's errors mean here."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked for too long, no folder, disk full
            raise PersistenceError(f"{self.path} cannot be used: {error}") from error
        except sqlite3.ProgrammingError:
            raise  # a closed store, another thread: the caller's mistake, said well by SQLite
        except sqlite3.DatabaseError as error:
            raise CorruptFileError(
                f"{self.path} is damaged, or no store of runs ({error}); restore a copy, or, if "
                "it was a store, remove it to start afresh"
            ) from error


def _row(trace: Trace) -> tuple[Any, ...]:
    return (
        trace.key,
        trace.seed,
        trace.rounds.astype("<i8").tobytes(),
        trace.regret.astype("<f8").tobytes(),
        None if trace.total_cost is None else trace.total_cost.astype("<f8").tobytes(),
        trace.undominated.astype("<f8").tobytes(),
        trace.depths.astype("<i8").tobytes(),
        trace.seconds,
    )


def _array(data: bytes, dtype: str) -> NDArray[Any]:
    return np.frombuffer(data, dtype=dtype).astype(dtype[1:])  # a copy, in native order
