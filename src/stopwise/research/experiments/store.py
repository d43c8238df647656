"""Finished runs in one SQLite file: append-only, safe to kill, safe to share.

A run is identified by its spec's key and its seed. Its numbers come back to the last bit.
"""

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

VERSION = 2  # of the tables; the meaning of runs has its own number, in their keys
APPLICATION = 0x53544F50  # "STOP": how SQLite files say whose they are
LOCK_TIMEOUT = 60.0  # seconds to wait for another process that writes (heuristic)

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
    """A file of finished runs.

    Several processes may write at once. A process that is killed loses what it had not `put`,
    and nothing else. A missing file is created; `CorruptFileError` if it is damaged or not a store,
    `UnsupportedVersionError` if it has another format.
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
        """Store runs of a spec, all or none; on disk when this returns. Those here stay."""
        key = spec.key
        with self._translated(), self._db:  # which commits, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR IGNORE INTO specs VALUES (?, ?)", (key, spec.to_json()))
            for trace in traces:
                if trace.key != key:
                    raise InvalidParameterError(
                        f"a run of experiment {trace.key} was given as one of {key}; if it came "
                        "from another machine, does that run the same version of Stopwise?"
                    )
                row = key, trace.seed, trace.encode()
                self._db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", row)

    def get(self, spec: ExperimentSpec) -> dict[int, Trace]:
        """Return the runs of a spec by seed, in the order of seeds."""
        with self._translated():
            asked = "SELECT seed, trace FROM runs WHERE key = ? ORDER BY seed"
            return {seed: Trace.decode(b) for seed, b in self._db.execute(asked, (spec.key,))}

    def missing(self, spec: ExperimentSpec, seeds: Iterable[int]) -> list[int]:
        """Return those of the seeds whose runs are not here, each once, in the order given."""
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
            raise CorruptFileError(f"{self.path} is a database, but not one of Stopwise's runs")
        if (version := self._number("user_version")) != VERSION:
            raise UnsupportedVersionError(
                f"{self.path} has format {version}; this version of Stopwise reads {VERSION}; "
                "remove it to start afresh"
            )
        with suppress(sqlite3.OperationalError):  # faster, but refused while others write
            self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = EXTRA")  # a commit is on disk when it returns
        (report,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise CorruptFileError(
                f"{self.path} is damaged ({report}); restore a copy, or remove it to start afresh"
            )

    def _number(self, pragma: str) -> int:
        return self._db.execute(f"PRAGMA {pragma}").fetchone()[0]

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Translate errors of SQLite, and of reading runs."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked for too long, no folder, disk full
            raise PersistenceError(f"{self.path} cannot be used: {error}") from error
        except sqlite3.ProgrammingError:
            raise  # a closed store or another thread: SQLite's own message is clear
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as error:
            raise CorruptFileError(
                f"{self.path} is damaged, or no store of runs ({error}); restore a copy, or, if "
                "it was a store, remove it to start afresh"
            ) from error
