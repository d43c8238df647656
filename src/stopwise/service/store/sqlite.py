"""The event log in one SQLite file: the default, for one machine.

Write-ahead log, synchronous=FULL: a commit has reached the disk before it returns. All statements
run in one thread of their own, in which the interpreter is free while the disk works.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, TypeVar

from stopwise.errors import StoreError, UnsupportedVersionError
from stopwise.service.store.base import START, Block, Snapshot

T = TypeVar("T")
FORMAT = 1
PAGE = 200  # blocks read at once
PART = 4 << 20  # bytes of a snapshot written at once
PAGES = 2_000  # of the file that are freed at once: others commit in between
BUSY = 10.0  # seconds to wait for another connection to this file

_TABLES = """
CREATE TABLE IF NOT EXISTS block (
    base INTEGER PRIMARY KEY, count INTEGER NOT NULL, time REAL NOT NULL,
    digest BLOB NOT NULL, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    position INTEGER NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL,
    digest BLOB NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (position, part));
"""
_WHOLE = "SELECT position FROM snapshot GROUP BY position HAVING count(*) = max(parts)"


class SqliteStore:
    """A store in an SQLite file (see `Store`).

    Parameters
    ----------
    path : path
        Of the file; made if there is none.
    """

    shared: ClassVar[bool] = False

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # one file, one name, one owner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stopwise-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._owner: IO[bytes] | None = None
        self._ends_at: int | None = None  # position of the last event, where that is certain

    async def open(self) -> None:
        """Open the file, and make the tables if there are none."""
        await self._run(self._open)

    async def close(self) -> None:
        """Close the file; may be called twice."""
        if self._connection is not None:
            await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def begin(self, after: int) -> list[Block]:
        """Take the right to append; this process keeps it until it ends."""
        if self._ends_at is not None:
            return []
        return await self._run(lambda: self._begin(after))

    async def commit(self, block: Block) -> None:
        """Append a block durably."""
        await self._run(lambda: self._append(block))

    async def release(self) -> None:
        """Do nothing: the right is held as long as the process lives."""

    async def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks beyond a position in order."""
        while True:
            page = await self._run(lambda at=after: self._blocks(at, PAGE))
            for block in page:
                yield block
            if len(page) < PAGE:
                return
            after = page[-1].end

    async def block_of(self, position: int) -> Block | None:
        """Return the block that holds an event, if it is there."""

        def find() -> Block | None:
            row = self._sql.execute(
                "SELECT base, count, time, digest, payload FROM block WHERE base <= ? "
                "ORDER BY base DESC LIMIT 1",
                (position,),
            ).fetchone()
            block = None if row is None else Block(*row)
            return block if block is not None and position <= block.end else None

        return await self._run(find)

    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the digest there."""
        return await self._run(self._end)

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        """Return the newest whole snapshot, or the newest not beyond a position."""

        def find() -> Snapshot | None:
            limit = (1 << 62) if at_most is None else at_most
            row = self._sql.execute(
                f"SELECT max(position) FROM ({_WHOLE}) WHERE position <= ?", (limit,)
            ).fetchone()
            if row[0] is None:
                return None
            parts = self._sql.execute(
                "SELECT digest, payload FROM snapshot WHERE position = ? ORDER BY part", (row[0],)
            ).fetchall()
            return Snapshot(int(row[0]), parts[0][0], b"".join(part[1] for part in parts))

        return await self._run(find)

    async def snapshots(self) -> list[int]:
        """Return the positions of the whole snapshots, in order."""
        return await self._run(
            lambda: [int(row[0]) for row in self._sql.execute(f"{_WHOLE} ORDER BY position")]
        )

    async def keep_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot part by part, then drop all but the newest."""
        payload = memoryview(snapshot.payload)
        starts = range(0, max(len(payload), 1), PART)
        for part, start in enumerate(starts):
            row = (
                snapshot.position,
                part,
                len(starts),
                snapshot.digest,
                payload[start : start + PART],
            )
            await self._run(lambda row=row: self._keep_part(row))
        old = (await self.snapshots())[:-keep]
        if old:
            await self._run(
                lambda: self._sql.execute("DELETE FROM snapshot WHERE position <= ?", (old[-1],))
            )

    async def drop_before(self, position: int) -> int:
        """Forget the blocks that end at or before a position."""

        def drop() -> int:
            where = "FROM block WHERE base <= :end AND base + count - 1 <= :end"
            row = self._sql.execute(f"SELECT sum(count) {where}", {"end": position}).fetchone()
            self._sql.execute(f"DELETE {where}", {"end": position})
            return int(row[0] or 0)

        def free() -> int:
            return int(self._sql.execute("PRAGMA freelist_count").fetchone()[0])

        def shrink() -> bool:
            before = free()
            # A script: of a statement that returns nothing, only the first page would be freed.
            self._sql.executescript(f"PRAGMA incremental_vacuum({PAGES})")
            return 0 < free() < before  # a file that was copied by other means may not shrink

        gone = await self._run(drop)
        while gone and await self._run(shrink):
            pass
        return gone

    async def fill(self, after: int, digest: bytes, blocks: AsyncIterable[list[Block]]) -> None:
        """Append blocks of a copy of a log, all of them or none."""
        del digest  # the first block has it in its own; without one, the snapshot tells the end
        self._ends_at = None
        try:
            await self._run(lambda: self._begin_copy(after))
            async for some in blocks:
                await self._run(lambda some=some: self._add_copied(some))
            await self._run(lambda: self._sql.execute("COMMIT"))
        except BaseException:
            await self._run(self._undo)
            raise

    # -- in the thread ------------------------------------------------------------------------

    @property
    def _sql(self) -> sqlite3.Connection:
        if self._connection is None:
            self._open()
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        if self._connection is not None:
            return
        # One thread uses it, but not always the one that closes it.
        sql = sqlite3.connect(
            self.path, timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        try:
            version = int(sql.execute("PRAGMA user_version").fetchone()[0])
            if version < FORMAT:  # it writes, so that whoever only reads must not ask for it
                self._check_ours(sql)
                sql.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before there is any table
            sql.execute("PRAGMA journal_mode = WAL")
            sql.execute("PRAGMA synchronous = FULL")
            if version > FORMAT:
                raise UnsupportedVersionError(
                    f"{self.path} is an event log of format {version}; this Stopwise reads format "
                    f"{FORMAT}. Update Stopwise"
                )
            if version < FORMAT:
                sql.executescript(_TABLES)
                sql.execute(f"PRAGMA user_version = {FORMAT}")
        except BaseException:
            sql.close()
            raise
        self._connection = sql

    def _check_ours(self, sql: sqlite3.Connection) -> None:
        """Refuse a database of somebody else, before anything in it is changed."""
        tables = {row[0] for row in sql.execute("SELECT name FROM sqlite_master")}
        others = {t for t in tables if t not in {"block", "snapshot"} and "sqlite_" not in t}
        if others:
            raise StoreError(
                f"{self.path} is an SQLite file with other tables ({', '.join(sorted(others))}): "
                "an event log needs a file of its own"
            )

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._owner is not None:
            self._owner.close()  # and with it the lock
            self._owner = None

    def _begin(self, after: int) -> list[Block]:
        self._own()
        blocks = self._blocks(after, -1)
        self._ends_at, _ = self._end()
        return blocks

    def _own(self) -> None:
        """Be the only process that appends to this file."""
        if self._owner is not None:
            return
        owner = self.path.with_name(f"{self.path.name}-owner").open("ab")
        try:
            import fcntl

            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: no lock, and the second server finds its base taken
            pass
        except OSError:
            owner.close()
            raise StoreError(
                f"another process serves {self.path}. Stop it first, or let both use one "
                "PostgreSQL database"
            ) from None
        self._owner = owner

    def _blocks(self, after: int, limit: int) -> list[Block]:
        rows = self._sql.execute(
            "SELECT base, count, time, digest, payload FROM block WHERE base > ? "
            "ORDER BY base LIMIT ?",
            (after, limit),
        )
        return [Block(*row) for row in rows]

    def _end(self) -> tuple[int, bytes]:
        row = self._sql.execute(
            "SELECT base + count - 1, digest FROM block ORDER BY base DESC LIMIT 1"
        ).fetchone()
        if row is None:  # compacted to nothing but a snapshot, or new
            row = self._sql.execute(
                f"SELECT position, digest FROM snapshot WHERE position IN ({_WHOLE}) "
                "ORDER BY position DESC LIMIT 1"
            ).fetchone()
        return (0, START) if row is None else (int(row[0]), bytes(row[1]))

    def _keep_part(self, row: tuple[int, int, int, bytes, memoryview]) -> None:
        position, part = row[:2]
        if part == 0:  # what is left of an attempt that was cut off may have had other parts
            self._sql.execute("DELETE FROM snapshot WHERE position = ?", (position,))
        self._sql.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?, ?)", row)

    def _append(self, block: Block) -> None:
        self._own()
        # Nobody else appends to this file, so that what is known of its end stays true.
        end = self._end()[0] if self._ends_at is None else self._ends_at
        if block.base != end + 1:
            raise StoreError(
                f"a block that begins at event {block.base:,} does not continue the log in "
                f"{self.path}, which ends with event {end:,}; nothing was written"
            )
        self._ends_at = None  # until the insertion has returned
        self._sql.execute(
            "INSERT INTO block VALUES (?, ?, ?, ?, ?)",
            (block.base, block.count, block.time, block.digest, block.payload),
        )
        self._ends_at = block.end

    def _begin_copy(self, after: int) -> None:
        self._own()
        self._sql.execute("BEGIN IMMEDIATE")
        end = self._sql.execute("SELECT max(base + count - 1) FROM block").fetchone()[0]
        if end not in (None, after):
            raise StoreError(
                f"a copy that goes on after event {after:,} does not continue {self.path}, "
                f"which ends with event {end:,}"
            )

    def _add_copied(self, blocks: list[Block]) -> None:
        rows = [(b.base, b.count, b.time, b.digest, b.payload) for b in blocks]
        self._sql.executemany("INSERT INTO block VALUES (?, ?, ?, ?, ?)", rows)

    def _undo(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    async def _run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            # The next use begins with a connection that remembers nothing of this failure.
            with suppress(sqlite3.Error):
                if self._connection is not None:
                    await loop.run_in_executor(self._thread, self._connection.close)
            self._connection = None
            self._ends_at = None
            raise StoreError(f"the event log {self.path} cannot be used: {error}") from error
        except OSError as error:
            raise StoreError(f"the event log {self.path} cannot be used: {error}") from error
