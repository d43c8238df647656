"""The event log in one SQLite file: the default, for one machine.

Write-ahead log with synchronous=FULL: a commit is on disk before it returns. All statements run in
one thread, which releases the interpreter while the disk works.

SQLite ignores a damaged end of its write-ahead log, and with it commits that were acknowledged.
Therefore the end of the log is recorded again in the file ``<log>-owner``, which is also the lock
of the process that may append. The record is written after each commit and not synced: it may be
older than the log, never newer.
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
FREED = 2_000  # pages of the file that are freed at once: others commit in between
BUSY = 10.0  # seconds to wait for another connection to this file

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
# If everything was compacted to a snapshot.
_SNAPSHOT_END = (
    f"SELECT position, digest FROM snapshot WHERE position = ({_COMPLETE} ORDER BY 1 DESC)"
)

_UNSYNCED = "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 64"  # pages, about a part

_MAGIC = b"stopwise"
_RECORD = struct.Struct("<8sQ16s8s")  # magic word, position, digest, checksum of these


def _new_thread() -> ThreadPoolExecutor:
    """Return the one thread in which a connection is used."""
    return ThreadPoolExecutor(1, "stopwise-sqlite")


class SqliteStore(EventStore):
    """A store in an SQLite file, which is created if there is none."""

    shared: ClassVar[bool] = False
    _table: ClassVar[str] = "block"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # one file, one name, one owner
        self._owner_path = self.path.with_name(f"{self.path.name}-owner")
        self._owner: IO[bytes] | None = None
        self._connection: sqlite3.Connection | None = None
        self._ends_at: int | None = None  # position of the last event, while it is certain
        self._thread = _new_thread()

    async def open(self) -> None:
        await self._run(lambda: self._sql)

    async def close(self) -> None:
        if self._connection is not None or self._owner is not None:
            await self._run(self._close)
        self._thread.shutdown(wait=False)  # or it lives as long as something refers to this store
        self._thread = _new_thread()  # started if the store is opened again

    async def begin(self, after: int) -> list[Block]:
        """Acquire the right to append, until this process ends; refuse a log that lost events."""
        if self._ends_at is not None:
            return []
        await self._run(self._own)
        if problem := await self.lost_events():
            raise CorruptLogError(
                f"{self.path}: {problem}. Restore a backup; or, if another copy of the log was put "
                f"there on purpose, delete {self._owner_path} to continue with that copy"
            )
        blocks = [Block(*row) for row in await self._rows(_AFTER, after)]
        self._ends_at, _ = await self.end()
        return blocks

    async def commit(self, block: Block) -> None:
        # Nobody else appends to this file, so a known end stays true.
        end = (await self.end())[0] if self._ends_at is None else self._ends_at
        if block.base != end + 1:
            raise StoreError(
                f"a block that begins at event {block.base:,} does not continue the log in "
                f"{self.path}, which ends with event {end:,}; nothing was written"
            )
        self._ends_at = None  # unknown until the insertion has returned
        await self._run(lambda: self._append(block))
        self._ends_at = block.end

    async def release(self) -> None:
        """Do nothing: the process has the right as long as it lives."""

    async def end(self) -> tuple[int, bytes]:
        rows = await self._rows(_END) or await self._rows(_SNAPSHOT_END)
        return (rows[0][0], rows[0][1]) if rows else (0, START)

    async def recorded_end(self) -> tuple[int, bytes] | None:
        return await self._run(self._recorded)

    async def snapshot(self, position: int) -> Snapshot | None:
        rows = await self._rows(_PARTS, position)
        if rows and len(rows) == max(row[0] for row in rows):
            return Snapshot(position, rows[0][1], tuple(row[2] for row in rows))
        return None

    async def snapshots(self) -> list[int]:
        return [row[0] for row in await self._rows(f"{_COMPLETE} ORDER BY position")]

    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        position, digest, count = snapshot.position, snapshot.digest, len(snapshot.parts)
        # An interrupted attempt may have left some of its parts.
        await self._rows("DELETE FROM snapshot WHERE position = ?", position)
        insert = "INSERT INTO snapshot VALUES (?, ?, ?, ?, ?)"
        # A part is synced after its commit, while others commit; only the last one waits for it.
        await self._run(lambda: self._sql.executescript(_UNSYNCED))
        for k, part in enumerate(snapshot.parts):
            if k == count - 1:
                await self._rows("PRAGMA synchronous = FULL")
            began = time.monotonic()
            await self._rows(insert, position, k, count, digest, part)
            await asyncio.sleep(time.monotonic() - began)  # half of the disk's time is for others
        for old in (await self.snapshots())[:-keep][-1:]:
            parts = "SELECT position, part FROM snapshot WHERE position <= ?"
            for row in await self._rows(parts, old):  # others commit in between
                await self._rows("DELETE FROM snapshot WHERE position = ? AND part = ?", *row)

    async def drop_before(self, position: int) -> None:
        await self._rows("DELETE FROM block WHERE base + count - 1 <= ?1 AND base <= ?1", position)
        before = 0  # a file that was copied by other means may not shrink
        while (free := (await self._rows("PRAGMA freelist_count"))[0][0]) != before:
            # As a script: `execute` frees only one page, since it fetches no row.
            await self._run(lambda: self._sql.executescript(f"PRAGMA incremental_vacuum({FREED})"))
            before = free

    # -- in the thread --------------------------------------------------------------------------

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self._run(lambda: self._sql.execute(query, values).fetchall())

    async def _run(self, work: Callable[[], T]) -> T:
        run = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        try:
            return await run(work)
        except (sqlite3.Error, OSError) as error:
            # The next use begins with a new connection, which this failure has not affected.
            with suppress(sqlite3.Error):
                if self._connection is not None:
                    await run(self._connection.close)
            self._connection = self._ends_at = None
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                raise CorruptLogError(
                    f"the event log {self.path} is damaged, or is not an event log: {error}. "
                    "Restore a backup, or choose another file"
                ) from error
            raise StoreError(f"the event log {self.path} cannot be used: {error}") from error

    @property
    def _sql(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self.path.exists() and not self.path.is_file():
            kind = "a directory" if self.path.is_dir() else "not a regular file"
            raise StoreError(
                f"{self.path} is {kind}: the store must be a file, such as "
                f"{self.path / 'stopwise.db' if self.path.is_dir() else 'stopwise.db'}"
            )
        if self.path.exists() and self.path.stat().st_nlink > 1:
            # SQLite would keep a WAL for each name, and damage the file.
            raise StoreError(
                f"{self.path} has a second name (a hard link), which an event log must not have. "
                "Delete the other name, or make a copy with SQLite's VACUUM INTO"
            )
        # One thread uses the connection, but another may close it.
        sql = sqlite3.connect(self.path, BUSY, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(sql)
        except BaseException:
            sql.close()
            raise
        self._connection = sql
        return sql

    def _prepare(self, sql: sqlite3.Connection) -> None:
        """Refuse what is no event log of this format, before anything in it is changed."""
        version = int(sql.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, FORMAT):
            raise UnsupportedVersionError(
                f"{self.path} is an event log of format {version}; this Stopwise reads format "
                f"{FORMAT}. Use the version that wrote it, or start with a new file"
            )
        if version == 0:
            tables = {row[0] for row in sql.execute("SELECT name FROM sqlite_master")}
            others = {t for t in tables - {"block", "snapshot"} if "sqlite_" not in t}
            if others:
                raise StoreError(
                    f"{self.path} is an SQLite file with other tables "
                    f"({', '.join(sorted(others))}): an event log needs a file of its own"
                )
            sql.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before there is any table
        sql.execute("PRAGMA journal_mode = WAL")
        sql.execute("PRAGMA synchronous = FULL")
        if version == 0:
            sql.executescript(f"{_TABLES} PRAGMA user_version = {FORMAT}")

    def _close(self) -> None:
        for one in (self._connection, self._owner):  # closing the owner releases the lock
            if one is not None:
                one.close()
        self._connection = self._owner = self._ends_at = None

    def _own(self) -> None:
        """Make this process the only one that appends to this file."""
        if self._owner is not None:
            return
        handle = os.open(self._owner_path, os.O_RDWR | os.O_CREAT, 0o666)
        owner = os.fdopen(handle, "r+b", buffering=0)
        try:
            import fcntl

            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no such lock: the second server fails to append
            pass
        except OSError:
            owner.close()
            raise StoreError(
                f"another process serves {self.path}: stop it, or use one PostgreSQL database"
            ) from None
        self._owner = owner

    def _append(self, block: Block) -> None:
        self._own()
        self._sql.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?)", astuple(block))
        # The block is durable whether it is recorded or not, and an older record stays true.
        with suppress(OSError):
            if self._owner is not None:
                self._owner.seek(0)
                self._owner.write(_packed(block.end, block.digest))

    def _recorded(self) -> tuple[int, bytes] | None:
        with suppress(FileNotFoundError, struct.error):  # no record, or of another length
            record = self._owner_path.read_bytes()
            _, position, digest, _ = _RECORD.unpack(record)
            if record == _packed(position, digest):
                return position, digest
        return None


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error shows that the file is not what SQLite wrote."""
    # None if the module itself raised it. An extended code has the primary one in its low byte.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _packed(position: int, digest: bytes) -> bytes:
    record = _RECORD.pack(_MAGIC, position, digest, b"")
    return record[:-8] + blake2b(record, digest_size=8).digest()
