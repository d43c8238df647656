"""The event log in an SQLite file: the default, for one machine.

With a write-ahead log and synchronous=FULL, a commit is on disk before it returns. All statements
run in one thread, which releases the interpreter lock during disk access.

SQLite silently drops a damaged end of its write-ahead log, and with it acknowledged commits. The
end of the event log is therefore also recorded in the file ``<log>-owner``, which the process that
appends keeps locked. The record is written after each commit without a sync, so it may be older
than the event log but never newer.
"""

import asyncio
import os
import sqlite3
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

from msgspec.structs import astuple

from stopwise.errors import CorruptLogError, StoreError, UnsupportedVersionError
from stopwise.service.persistence.blocks import START, Block
from stopwise.service.persistence.stores.base import COLUMNS, FORMAT, EventStore, Snapshot

T = TypeVar("T")
FREED_PAGES = 2_000  # pages of the file to free at once, between commits
BUSY_TIMEOUT = 10.0  # seconds to wait for another connection to this file

_TABLES = """
CREATE TABLE IF NOT EXISTS block (
    base INTEGER PRIMARY KEY, count INTEGER NOT NULL, time REAL NOT NULL,
    digest BLOB NOT NULL, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    position INTEGER NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL,
    digest BLOB NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (position, part));
"""
_AFTER = f"SELECT {COLUMNS} FROM block WHERE base > ? ORDER BY base"
_END = "SELECT base + count - 1, digest FROM block ORDER BY base DESC LIMIT 1"
_COMPLETE = "SELECT position FROM snapshot GROUP BY position HAVING count(*) = max(parts)"
_PARTS = "SELECT parts, digest, payload FROM snapshot WHERE position = ? ORDER BY part"
# The end of a log whose blocks were all deleted.
_SNAPSHOT_END = (
    f"SELECT position, digest FROM snapshot WHERE position = ({_COMPLETE} ORDER BY 1 DESC)"
)

# The checkpoint interval is in pages; 64 pages are about one part of a snapshot.
_UNSYNCED = "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 64"

_MAGIC = b"stopwise"
_RECORD = struct.Struct("<8sQ16s8s")  # magic, position, digest, and a checksum of these


def _new_thread() -> ThreadPoolExecutor:
    """Return an executor with the single thread that uses the connection."""
    return ThreadPoolExecutor(1, "stopwise-sqlite")


class SqliteStore(EventStore):
    """A store in an SQLite file, which is created if it does not exist."""

    shared: ClassVar[bool] = False
    _table: ClassVar[str] = "block"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # symbolic links share the owner file
        self._owner_path = self.path.with_name(f"{self.path.name}-owner")
        self._owner: IO[bytes] | None = None
        self._connection: sqlite3.Connection | None = None
        self._last_event: int | None = None  # position of the last event; None: uncertain
        self._thread = _new_thread()

    async def open(self) -> None:
        await self._run(lambda: self._sql)

    async def close(self) -> None:
        if self._connection is not None or self._owner is not None:
            await self._run(self._close)
        # Otherwise the thread would live as long as anything refers to this store.
        self._thread.shutdown(wait=False)
        self._thread = _new_thread()  # starts if the store is opened again

    async def begin(self, after: int) -> list[Block]:
        """Acquire the append lock until `close`; reject a log that has lost events."""
        if self._last_event is not None:
            return []
        await self._run(self._acquire_lock)
        if problem := await self.lost_events():
            raise CorruptLogError(
                f"{self.path}: {problem}. Restore a backup; or, if you replaced the log with "
                f"another copy on purpose, delete {self._owner_path} to continue with that copy"
            )
        blocks = [Block(*row) for row in await self._rows(_AFTER, after)]
        self._last_event, _ = await self.end()
        return blocks

    async def commit(self, block: Block) -> None:
        # No other process appends to this file, so a cached end stays valid.
        end = (await self.end())[0] if self._last_event is None else self._last_event
        if block.base != end + 1:
            raise StoreError(
                f"the next block of {self.path} must begin at event {end + 1:,}, got "
                f"{block.base:,}; nothing was written"
            )
        self._last_event = None  # uncertain until the insertion has returned
        await self._run(lambda: self._append(block))
        self._last_event = block.end

    async def release(self) -> None:
        """Do nothing: the store keeps the lock until `close`."""

    async def end(self) -> tuple[int, bytes]:
        rows = await self._rows(_END) or await self._rows(_SNAPSHOT_END)
        return (rows[0][0], rows[0][1]) if rows else (0, START)

    async def recorded_end(self) -> tuple[int, bytes] | None:
        return await self._run(self._read_record)

    async def snapshot(self, position: int) -> Snapshot | None:
        rows = await self._rows(_PARTS, position)
        if rows and len(rows) == max(row[0] for row in rows):
            return Snapshot(position, rows[0][1], tuple(row[2] for row in rows))
        return None

    async def snapshots(self) -> list[int]:
        return [row[0] for row in await self._rows(f"{_COMPLETE} ORDER BY position")]

    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        position, digest, count = snapshot.position, snapshot.digest, len(snapshot.parts)
        # An interrupted attempt may have left parts.
        await self._rows("DELETE FROM snapshot WHERE position = ?", position)
        insert = "INSERT INTO snapshot VALUES (?, ?, ?, ?, ?)"
        # Parts are synced after their commit, during other commits; only the last one waits.
        await self._run(lambda: self._sql.executescript(_UNSYNCED))
        for k, part in enumerate(snapshot.parts):
            if k == count - 1:
                await self._rows("PRAGMA synchronous = FULL")
            began = time.monotonic()
            await self._rows(insert, position, k, count, digest, part)
            await asyncio.sleep(time.monotonic() - began)  # leave half of the disk time to commits
        for old in (await self.snapshots())[:-keep][-1:]:
            parts = "SELECT position, part FROM snapshot WHERE position <= ?"
            for row in await self._rows(parts, old):  # one at a time, between commits
                await self._rows("DELETE FROM snapshot WHERE position = ? AND part = ?", *row)

    async def drop_before(self, position: int) -> None:
        await self._rows("DELETE FROM block WHERE base + count - 1 <= ?1 AND base <= ?1", position)
        vacuum = f"PRAGMA incremental_vacuum({FREED_PAGES})"
        before = 0  # stop if the number does not change: some copies of a file cannot shrink
        while (free := (await self._rows("PRAGMA freelist_count"))[0][0]) != before:
            # As a script, because `execute` fetches no row and then frees only one page.
            await self._run(lambda: self._sql.executescript(vacuum))
            before = free

    # -- in the thread --------------------------------------------------------------------------

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self._run(lambda: self._sql.execute(query, values).fetchall())

    async def _run(self, work: Callable[[], T]) -> T:
        run = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        try:
            return await run(work)
        except (sqlite3.Error, OSError) as error:
            # The next use opens a new connection, because this one may be in an undefined state.
            with suppress(sqlite3.Error):
                if self._connection is not None:
                    await run(self._connection.close)
            self._connection = None
            self._last_event = None
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                raise CorruptLogError(
                    f"the event log {self.path} is damaged, or is not an event log: {error}. "
                    "Restore a backup, or choose another file"
                ) from error
            raise StoreError(f"cannot use the event log {self.path}: {error}") from error

    @property
    def _sql(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self.path.exists() and not self.path.is_file():
            if self.path.is_dir():
                example = self.path / "stopwise.db"
                raise StoreError(f"{self.path} is a directory; use a file such as {example}")
            raise StoreError(f"{self.path} is not a regular file; use a file such as stopwise.db")
        if self.path.exists() and self.path.stat().st_nlink > 1:
            # SQLite would use a separate write-ahead log for each name and damage the file.
            raise StoreError(
                f"{self.path} has another hard link, so writing could damage the event log. Delete "
                "the other link, or make a copy with SQLite's VACUUM INTO"
            )
        # One thread uses the connection, but another may close it.
        sql = sqlite3.connect(
            self.path, BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(sql)
        except BaseException:
            sql.close()
            raise
        self._connection = sql
        return sql

    def _prepare(self, sql: sqlite3.Connection) -> None:
        """Check the format before changing the file; create the tables if the file is new."""
        version = int(sql.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, FORMAT):
            raise UnsupportedVersionError(
                f"{self.path} has format {version}, but this version of Stopwise reads format "
                f"{FORMAT}. Use the version that wrote the file, or start with a new file"
            )
        if version == 0:
            tables = {row[0] for row in sql.execute("SELECT name FROM sqlite_master")}
            others = {t for t in tables - {"block", "snapshot"} if "sqlite_" not in t}
            if others:
                raise StoreError(
                    f"{self.path} is an SQLite file with other tables "
                    f"({', '.join(sorted(others))}); use a separate file for the event log"
                )
            sql.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must precede the first table
        sql.execute("PRAGMA journal_mode = WAL")
        sql.execute("PRAGMA synchronous = FULL")
        if version == 0:
            sql.executescript(f"{_TABLES} PRAGMA user_version = {FORMAT}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._owner is not None:
            self._owner.close()  # which releases the lock
        self._connection = None
        self._owner = None
        self._last_event = None

    def _acquire_lock(self) -> None:
        """Make this process the only one that appends to the file."""
        if self._owner is not None:
            return
        handle = os.open(self._owner_path, os.O_RDWR | os.O_CREAT, 0o666)
        owner = os.fdopen(handle, "r+b", buffering=0)
        try:
            import fcntl

            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no such lock; there, a second server fails to append
            pass
        except OSError:
            owner.close()
            raise StoreError(
                f"another process is already serving {self.path}; stop it, or use PostgreSQL for "
                "several servers"
            ) from None
        self._owner = owner

    def _append(self, block: Block) -> None:
        self._acquire_lock()
        self._sql.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?)", astuple(block))
        # The block is durable even if this fails, and an older record remains valid.
        with suppress(OSError):
            if self._owner is not None:
                self._owner.seek(0)
                self._owner.write(_pack_record(block.end, block.digest))

    def _read_record(self) -> tuple[int, bytes] | None:
        with suppress(FileNotFoundError, struct.error):  # no record, or a damaged one
            record = self._owner_path.read_bytes()
            _, position, digest, _ = _RECORD.unpack(record)
            if record == _pack_record(position, digest):
                return position, digest
        return None


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error means that the file is damaged or is not an SQLite file."""
    # None if Python's sqlite3 module raised the error. The low byte of a code is the primary code.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _pack_record(position: int, digest: bytes) -> bytes:
    record = _RECORD.pack(_MAGIC, position, digest, b"")
    return record[:-8] + blake2b(record, digest_size=8).digest()
