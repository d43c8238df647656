"""An append-only SQLite store of finished runs, which are identified by spec key and seed."""

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from os import PathLike
from pathlib import Path

import msgspec

from stopwise.errors import (
    CorruptFileError,
    InvalidParameterError,
    PersistenceError,
    UnsupportedVersionError,
)
from stopwise.research.experiments.runs import Trace
from stopwise.research.experiments.spec import ExperimentSpec

VERSION = 2  # of the schema; the keys of runs contain `spec.FORMAT`
APPLICATION = 0x53544F50  # "STOP", SQLite's application_id
LOCK_TIMEOUT = 60.0  # seconds to wait for another writing process (heuristic)

SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS specs (key TEXT PRIMARY KEY, spec TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS runs (
    key TEXT NOT NULL REFERENCES specs (key),
    seed INTEGER NOT NULL,
    trace BLOB NOT NULL,
    UNIQUE (key, seed)
) STRICT;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
"""


class RunStore(AbstractContextManager["RunStore"]):
    """A file of finished runs, created if it does not exist.

    Several processes may write at once. If a process is killed, only runs that it has not yet `put`
    are lost.

    Raises
    ------
    CorruptFileError
        If the file is damaged or not a store.
    UnsupportedVersionError
        If this version of Stopwise cannot read the format of the file.
    """

    def __init__(self, path: "str | PathLike[str]") -> None:
        self.path = Path(path)
        with self._translated():
            self._db = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def put(self, spec: ExperimentSpec, traces: Iterable[Trace]) -> None:
        """Store runs of a spec in one transaction, synced to disk; keep runs already stored."""
        key = spec.key
        with self._translated(), self._db:  # commits or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR IGNORE INTO specs VALUES (?, ?)", (key, spec.to_json()))
            for trace in traces:
                if trace.key != key:
                    raise InvalidParameterError(
                        f"traces must have the key of the spec, {key}, got {trace.key}; if the run "
                        "is from another machine, check that both have the same Stopwise version"
                    )
                row = key, trace.seed, trace.encode()
                self._db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", row)

    def get(self, spec: ExperimentSpec) -> dict[int, Trace]:
        """Return a spec's runs by seed, in ascending order of seeds."""
        with self._translated():
            query = "SELECT seed, trace FROM runs WHERE key = ? ORDER BY seed"
            return {seed: Trace.decode(b) for seed, b in self._db.execute(query, (spec.key,))}

    def missing(self, spec: ExperimentSpec, seeds: Iterable[int]) -> list[int]:
        """Return the seeds whose runs are not stored, in order and without duplicates."""
        with self._translated():
            rows = self._db.execute("SELECT seed FROM runs WHERE key = ?", (spec.key,))
            stored = {seed for (seed,) in rows}
        return [seed for seed in dict.fromkeys(seeds) if seed not in stored]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _open(self) -> None:
        if (
            self._number("application_id") == 0
            and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()
        ):
            self._db.executescript(SCHEMA)
        if self._number("application_id") != APPLICATION:
            raise CorruptFileError(
                f"{self.path} is a database, but not a store of Stopwise runs; use another path"
            )
        if (version := self._number("user_version")) != VERSION:
            raise UnsupportedVersionError(
                f"{self.path} has format {version}, but this version of Stopwise reads format "
                f"{VERSION}; use another path, or delete the file"
            )
        with suppress(sqlite3.OperationalError):  # faster, but fails while others write
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = EXTRA")  # commits are synced to disk
        (report,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise CorruptFileError(
                f"{self.path} is damaged ({report}); restore a backup, or delete the file"
            )

    def _number(self, pragma: str) -> int:
        return self._db.execute(f"PRAGMA {pragma}").fetchone()[0]

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Translate SQLite and msgspec errors into Stopwise errors."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked for too long, no folder, disk full
            raise PersistenceError(f"cannot use {self.path}: {error}") from error
        except sqlite3.ProgrammingError:
            raise  # closed, or used from another thread: SQLite's message is clear
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise CorruptFileError(
                f"{self.path} is damaged or not a store of runs ({error}); restore a backup, or "
                "use another path"
            ) from error
