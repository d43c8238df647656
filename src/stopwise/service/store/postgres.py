"""The event log in PostgreSQL, for several replicas that share one log.

The right to append is a lock of the database, held by a transaction from `begin` to `commit`. When
the process that holds it dies, the database ends its transaction, and the next in line goes on.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.store.base import START, Block, Snapshot

T = TypeVar("T")
FORMAT = 1  # of the tables; a newer one is refused
PART = 4 << 20  # bytes of a snapshot that are written together
PAGE = 4 << 20  # bytes of blocks that are read together, or one block if that is larger
PAGE_BLOCKS = 2_000
DROPPED_TOGETHER = 5_000  # blocks

# Locks of a database are known by numbers: these are ours ("stopwise" in ASCII, and one more).
_APPEND = 0x73746F7077697365
_MAKE = _APPEND + 1

_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock({_APPEND})".encode()

# One row of stopwise_log says in which format the log is, and where it begins since older blocks
# were dropped. External storage: snapshots are numbers, which do not compress.
_TABLES = b"""
CREATE TABLE IF NOT EXISTS stopwise_log (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    format integer NOT NULL,
    dropped bigint NOT NULL,
    digest bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS stopwise_block (
    base bigint PRIMARY KEY,
    count bigint NOT NULL CHECK (count > 0),
    time double precision NOT NULL,
    digest bytea NOT NULL,
    payload bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS stopwise_snapshot (
    position bigint,
    writing uuid,
    part integer,
    parts integer NOT NULL,
    digest bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (position, writing, part)
);
ALTER TABLE stopwise_snapshot ALTER COLUMN payload SET STORAGE EXTERNAL
"""

_FIRST_ROW = """
INSERT INTO stopwise_log (format, dropped, digest) VALUES (%s, 0, %s) ON CONFLICT DO NOTHING
"""

_BLOCKS = "SELECT base, count, time, digest, payload FROM stopwise_block"

_AFTER = _BLOCKS + " WHERE base > %s ORDER BY base"

_PAGE = """
SELECT base, count, time, digest, payload FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY base) - octet_length(payload) AS ahead
    FROM (SELECT * FROM stopwise_block WHERE base > %s ORDER BY base LIMIT %s) AS next
) AS page
WHERE ahead < %s ORDER BY base
"""

_HOLDING = _BLOCKS + " WHERE base <= %s ORDER BY base DESC LIMIT 1"

# What is dropped is older than what is there, so that the last block decides where there is one.
_END = """
SELECT base + count - 1 AS position, digest FROM (
    SELECT base, count, digest FROM stopwise_block ORDER BY base DESC LIMIT 1
) AS last
UNION ALL SELECT dropped, digest FROM stopwise_log
ORDER BY position DESC LIMIT 1
"""

_APPENDED = (
    """
INSERT INTO stopwise_block (base, count, time, digest, payload)
SELECT new.* FROM (VALUES (%s::bigint, %s::bigint, %s::float8, %s::bytea, %s::bytea))
    AS new (base, count, time, digest, payload)
WHERE new.base - 1 = (SELECT position FROM ("""
    + _END
    + """) AS log)
"""
)

_BEGIN_AT = "UPDATE stopwise_log SET dropped = %s, digest = %s"

_ADD_BLOCK = """
INSERT INTO stopwise_block (base, count, time, digest, payload) VALUES (%s, %s, %s, %s, %s)
"""

_DROP = """
WITH gone AS (
    DELETE FROM stopwise_block WHERE base IN (
        SELECT base FROM stopwise_block
        WHERE base <= %(position)s AND base + count - 1 <= %(position)s ORDER BY base LIMIT %(many)s
    )
    RETURNING base + count - 1 AS position, count, digest
), marked AS (
    UPDATE stopwise_log SET dropped = last.position, digest = last.digest
    FROM (SELECT position, digest FROM gone ORDER BY position DESC LIMIT 1) AS last
    WHERE last.position > dropped
)
SELECT coalesce(sum(count), 0)::bigint FROM gone
"""

# Two replicas may write a snapshot of the same position: each knows its parts by a number of its
# own, and one of them is read.
_WHOLE = """
SELECT DISTINCT ON (position) position, writing, digest, parts FROM stopwise_snapshot
GROUP BY position, writing, digest, parts HAVING count(*) = parts
ORDER BY position DESC, writing
"""

_NEWEST = (
    "SELECT position, writing, digest, parts FROM (" + _WHOLE + ") AS whole"
    " WHERE position <= %s ORDER BY position DESC LIMIT 1"
)

_POSITIONS = "SELECT position FROM (" + _WHOLE + ") AS whole ORDER BY position"

_ADD_PART = """
INSERT INTO stopwise_snapshot (position, writing, part, parts, digest, payload)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""

_GET_PART = """
SELECT payload FROM stopwise_snapshot WHERE position = %s AND writing = %s AND part = %s
"""

# Parts beyond the newest whole snapshot stay: somebody may be writing them now.
_CLEAN = (
    "WITH kept AS (" + _WHOLE + " LIMIT %s) DELETE FROM stopwise_snapshot"
    " WHERE position <= (SELECT max(position) FROM kept)"
    " AND writing NOT IN (SELECT writing FROM kept)"
)

# remote_apply waits for more than on does, so that whoever chose it keeps it.
_SETTINGS = """
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('lock_timeout', %s, false),
       set_config('statement_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false)
"""

# What to do about errors that do not say it themselves, by SQLSTATE.
_ADVICE = {
    "25P03": "this replica held the right to append and was silent for too long; what it had to"
    " write is tried again",
    "25006": "it is read-only; connect to the primary",
    "42501": "the user lacks a right; grant it the tables stopwise_log, stopwise_block and"
    " stopwise_snapshot, or the right to create them",
    "42P01": "a table of the log is missing; restore the database, or restart with an empty one",
    "53100": "its disk is full; make room",
    "55P03": "another replica holds the right to append and does not give it up; see whether one"
    " hangs",
    "57014": "it took too long to answer",
}


class PostgresStore:
    """The event log in a PostgreSQL database.

    Parameters
    ----------
    where : str
        ``postgresql://user:password@host:port/database``; what it leaves out comes from the usual
        places of PostgreSQL (``PGPASSWORD``, ``.pgpass``).
    patience : float
        Seconds after which whoever holds the right to append, and is silent, loses it. Waiting
        for the right, or for any answer, ends in a `StoreError` within four times that.

    Raises
    ------
    InvalidParameterError
        If ``where`` cannot be understood. No message ever holds the password.

    Examples
    --------
    >>> PostgresStore("postgresql://ann:secret@db.example:5432/triage").place
    'PostgreSQL at db.example:5432, database triage'
    """

    shared: ClassVar[bool] = True

    def __init__(self, where: str, *, patience: float = 10.0) -> None:
        if not patience > 0:
            raise InvalidParameterError(f"patience must be above 0 seconds; got {patience}")
        given = _understood(where)
        self.place: str = _place(given)
        """For messages: the server and the database, without the password."""
        self._secret = str(given.get("password") or "")
        self._patience = patience
        # A partner who vanished without a word is noticed by TCP within about the patience.
        idle = max(1, round(patience / 2))
        usual: dict[str, Any] = {
            "connect_timeout": 5,
            "fallback_application_name": "stopwise",
            "keepalives_count": 2,
            "keepalives_idle": idle,
            "keepalives_interval": max(1, idle // 2),
            "target_session_attrs": "read-write",
            "tcp_user_timeout": round(patience * 1000),
        }
        self._conninfo = make_conninfo("", **(usual | given))
        self._appending = _Link()
        self._asking = _Link()

    # ---------------------------------------------------------------- open and close

    async def open(self) -> None:
        """Connect, and make the tables if there are none.

        Raises
        ------
        UnsupportedVersionError
            If a newer version of Stopwise made them.
        """

        async def make(connection: AsyncConnection) -> tuple[int] | None:
            # Asked first: who may not create tables may use those that are there.
            cursor = await connection.execute("SELECT to_regclass('stopwise_log')")
            if await cursor.fetchone() == (None,):
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKE,))
                    await connection.execute(_TABLES)
                    await connection.execute(_FIRST_ROW, (FORMAT, START))
            cursor = await connection.execute("SELECT format FROM stopwise_log")
            return await cursor.fetchone()

        row = await self._with(self._asking, "open the event log", make)
        found = None if row is None else row[0]
        if found != FORMAT:
            await self.close()
            raise UnsupportedVersionError(
                f"the event log in {self.place} has format {found}, and this version of Stopwise"
                f" reads and writes format {FORMAT}; use the version that wrote it, or a newer one"
            )

    async def close(self) -> None:
        """Disconnect; may be called twice. The next use connects again."""
        await self._appending.drop()
        await self._asking.drop()

    # ---------------------------------------------------------------- append

    async def begin(self, after: int) -> list[Block]:
        """Take the right to append; return the blocks beyond position ``after``."""

        async def take(connection: AsyncConnection) -> list[Block]:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                await connection.execute("ROLLBACK")
            await connection.execute(_BEGIN)
            # A statement of its own: it sees what was committed while we waited for the lock.
            cursor = connection.cursor(binary=True)
            await cursor.execute(_AFTER, (after,))
            return [Block(*row) for row in await cursor.fetchall()]

        return await self._with(self._appending, "take the right to append", take)

    async def commit(self, block: Block) -> None:
        """Append a block durably and give up the right; it must begin where the log ends."""

        async def append(connection: AsyncConnection) -> bool:
            values = (block.base, block.count, block.time, block.digest, block.payload)
            cursor = await connection.execute(_APPENDED, values)
            await connection.execute("COMMIT")
            return cursor.rowcount == 1

        if not self._appending.holds:
            raise StoreError(
                f"there is no right to append to {self.place}: it was not taken, or was lost with"
                " the connection; nothing was written"
            )
        if not await self._with(self._appending, "append", append, again=False):
            raise StoreError(
                f"a block that begins at event {block.base:,} does not continue the log in"
                f" {self.place}; nothing was written"
            )

    async def release(self) -> None:
        """Give up the right without appending."""

        async def give_up(connection: AsyncConnection) -> None:
            await connection.execute("ROLLBACK")

        # Where it was lost, or is lost now, there is nothing to give up.
        if self._appending.holds:
            with suppress(StoreError):
                await self._with(self._appending, "give up the right", give_up, again=False)

    # ---------------------------------------------------------------- read

    async def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks beyond position ``after`` in order, without holding anything up."""
        while True:
            rows = await self._rows("read the event log", _PAGE, (after, PAGE_BLOCKS, PAGE))
            if not rows:
                return
            for row in rows:
                block = Block(*row)
                after = block.end
                yield block

    async def block_of(self, position: int) -> Block | None:
        """Return the block that holds an event; None if it was compacted away or is to come."""
        for row in await self._rows("read the event log", _HOLDING, (position,)):
            block = Block(*row)
            if position <= block.end:
                return block
        return None

    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the digest there; (0, START) if none."""
        position, digest = (await self._rows("read the end of the event log", _END))[0]
        return position, digest

    async def drop_before(self, position: int) -> int:
        """Forget the blocks that end at or before a position; return how many events went."""
        which = {"position": position, "many": DROPPED_TOGETHER}
        total = 0
        while True:
            gone: int = (await self._rows("drop old blocks", _DROP, which))[0][0]
            if gone == 0:
                return total
            total += gone

    async def fill(self, after: int, digest: bytes, blocks: AsyncIterable[list[Block]]) -> None:
        """Append blocks of a copy of a log, all of them or none."""

        async def start(connection: AsyncConnection) -> int:
            await connection.execute(_BEGIN)
            cursor = connection.cursor(binary=True)
            row = await (await cursor.execute(_END.encode())).fetchone()
            end: int = 0 if row is None else row[0]
            if end == 0:
                await connection.execute(_BEGIN_AT, (after, digest))
            return end or after

        async def add(connection: AsyncConnection, some: list[Block]) -> None:
            self._check_copying(connection)
            values = [(b.base, b.count, b.time, b.digest, b.payload) for b in some]
            await connection.cursor(binary=True).executemany(_ADD_BLOCK, values)

        async def finish(connection: AsyncConnection) -> None:
            self._check_copying(connection)
            await connection.execute("COMMIT")

        async def do(work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
            return await self._with(self._appending, "append a copy", work, again=False)

        await self.release()
        try:
            end = await do(start)
            if end != after:
                raise StoreError(
                    f"a copy that goes on after event {after:,} does not continue the log in"
                    f" {self.place}, which ends with event {end:,}"
                )
            async for some in blocks:
                await do(lambda connection, some=some: add(connection, some))
            await do(finish)
        finally:
            await self.release()  # of what was not finished, nothing stays

    def _check_copying(self, connection: AsyncConnection) -> None:
        """Make sure that a connection is still that with the beginning of the copy."""
        if connection.info.transaction_status != TransactionStatus.INTRANS:
            raise StoreError(
                f"the connection to {self.place} was lost while a copy was written; nothing of it"
                " is there"
            )

    # ---------------------------------------------------------------- snapshots

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        """Return the newest whole snapshot, or the newest not beyond a position."""
        doing = "read a snapshot"
        limit = 2**63 - 1 if at_most is None else at_most
        while rows := await self._rows(doing, _NEWEST, (limit,)):
            position, writing, digest, parts = rows[0]
            payload = bytearray()
            for part in range(parts):
                found = await self._rows(doing, _GET_PART, (position, writing, part))
                if not found:
                    break  # another replica dropped it under our hands: there is a newer one
                payload += found[0][0]
            else:
                return Snapshot(position, digest, bytes(payload))
        return None

    async def snapshots(self) -> list[int]:
        """Return the positions of the whole snapshots, in order."""
        return [row[0] for row in await self._rows("list the snapshots", _POSITIONS)]

    async def keep_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot in parts, then drop all but the newest ``keep``."""
        if keep < 1:
            raise InvalidParameterError(f"at least one snapshot must be kept; got keep={keep}")
        writing = uuid4()
        parts = max(1, -(-len(snapshot.payload) // PART))
        payload = memoryview(snapshot.payload)
        for part in range(parts):
            piece = payload[part * PART : (part + 1) * PART]
            values = (snapshot.position, writing, part, parts, snapshot.digest, piece)
            await self._rows("write a snapshot", _ADD_PART, values)
        await self._rows("drop old snapshots", _CLEAN, (keep,))

    # ---------------------------------------------------------------- the connections

    async def _rows(
        self,
        doing: str,
        query: str,
        values: tuple[Any, ...] | dict[str, Any] = (),
    ) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction of its own; return what it gives."""

        async def ask(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            await cursor.execute(query.encode(), values)
            return [] if cursor.description is None else await cursor.fetchall()

        return await self._with(self._asking, doing, ask)

    async def _with(
        self,
        link: "_Link",
        doing: str,
        work: Callable[[AsyncConnection], Awaitable[T]],
        *,
        again: bool = True,
    ) -> T:
        """Do something with a connection; close it after a failure, so that the next is clean.

        What may be done ``again`` is, if a connection from before turns out to be lost: the
        database was restarted, and nobody need hear of it.
        """
        async with link.turn:
            task = asyncio.current_task()
            assert task is not None  # every coroutine runs in one
            calls_off = task.cancelling()
            again = again and link.connected
            try:
                # The database has timeouts of its own. This one is for a database that hangs.
                async with asyncio.timeout(2.5 * self._patience):
                    try:
                        return await work(await link.connection(self._connect))
                    except Exception as error:
                        # psycopg may answer a cancellation with an error of its own.
                        if task.cancelling() > calls_off:
                            raise asyncio.CancelledError from error
                        lost = isinstance(error, psycopg.OperationalError) and not link.connected
                        if not (again and lost):
                            raise
                    return await work(await link.connection(self._connect))
            except psycopg.Error as error:
                await link.drop()
                raise StoreError(self._told(doing, error)) from error
            except TimeoutError as error:
                await link.drop()
                raise StoreError(f"cannot {doing}: no answer from {self.place}") from error
            except BaseException:  # cancelled half-way: nobody knows what the connection awaits
                await link.drop()
                raise

    async def _connect(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            silence = self._patience * 1000
            timeouts = (1.5 * silence, 2 * silence, silence)
            await connection.execute(_SETTINGS, [f"{time:.0f}ms" for time in timeouts])
        except BaseException:
            await connection.close()
            raise
        return connection

    def _told(self, doing: str, error: psycopg.Error) -> str:
        """Word an error for an operator."""
        reason = " ".join((error.diag.message_primary or str(error)).split())
        advice = _ADVICE.get(error.sqlstate or "")
        text = f"cannot {doing} in {self.place}: {reason}" + (f" ({advice})" if advice else "")
        return text.replace(self._secret, "***") if self._secret else text


class _Link:
    """One connection, made when first needed and again after it was dropped."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._connection: AsyncConnection | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    @property
    def holds(self) -> bool:
        """Whether a transaction is under way."""
        status = TransactionStatus.UNKNOWN
        if self._connection is not None and not self._connection.closed:
            status = self._connection.info.transaction_status
        return status == TransactionStatus.INTRANS

    async def connection(
        self, connect: Callable[[], Awaitable[AsyncConnection]]
    ) -> AsyncConnection:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = await connect()
        return connection

    async def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _understood(where: str) -> dict[str, Any]:
    """Parse a connection string; complain without repeating any of it."""
    # libpq would take what follows a / or @ in a password for the server, and tell everybody.
    scheme, found, rest = where.partition("://")
    credentials, _, _ = rest.rpartition("@")
    if not found or scheme not in {"postgresql", "postgres"} or set(credentials) & set("/?#@[]"):
        raise InvalidParameterError(
            "a PostgreSQL store is postgresql://user:password@host:port/database, in which the"
            " user and the password are percent-encoded (@ as %40, / as %2F, % as %25)"
        )
    try:
        given = dict(conninfo_to_dict(where))
        if all(port.isdecimal() for port in str(given.get("port") or 0).split(",")):
            return given
    except psycopg.Error:
        pass
    # Without the cause: its message repeats the string.
    raise InvalidParameterError(
        "the address of the PostgreSQL store cannot be understood; it must be"
        " postgresql://user:password@host:port/database?option=value with options that"
        " PostgreSQL knows, percent-encoded (% as %25)"
    )


def _place(given: dict[str, Any]) -> str:
    host = given.get("host") or given.get("hostaddr")
    port = f":{given['port']}" if given.get("port") else ""
    server = f" at {host}{port}" if host else ""
    return f"PostgreSQL{server}" + (f", database {given['dbname']}" if given.get("dbname") else "")
