"""The event log in PostgreSQL, for replicas that share one log.

The append lock is an advisory lock, held by a transaction from `begin` to `commit`. When the
process that holds it dies, the database ends the transaction, which releases the lock.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias, TypeVar
from uuid import uuid4

import psycopg
from msgspec.structs import astuple
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.persistence.blocks import START, Block
from stopwise.service.persistence.stores.base import COLUMNS, FORMAT, EventStore, Snapshot
from stopwise.service.settings import redacted_store

T = TypeVar("T")
Work: TypeAlias = Callable[[AsyncConnection], Awaitable[T]]

# The row of stopwise_log has the format, and the last deleted event if old blocks were deleted.
# EXTERNAL storage does not compress: snapshots consist of numbers, which hardly compress.
_TABLES = f"""
CREATE TABLE IF NOT EXISTS stopwise_log (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    format integer NOT NULL, dropped bigint NOT NULL, digest bytea NOT NULL);
CREATE TABLE IF NOT EXISTS stopwise_block (
    base bigint PRIMARY KEY, count bigint NOT NULL CHECK (count > 0),
    time double precision NOT NULL, digest bytea NOT NULL, payload bytea NOT NULL);
CREATE TABLE IF NOT EXISTS stopwise_snapshot (
    position bigint, writing uuid, part integer, parts integer NOT NULL,
    digest bytea NOT NULL, payload bytea NOT NULL, PRIMARY KEY (position, writing, part));
ALTER TABLE stopwise_snapshot ALTER COLUMN payload SET STORAGE EXTERNAL;
INSERT INTO stopwise_log VALUES (true, {FORMAT}, 0, '\\x{START.hex()}') ON CONFLICT DO NOTHING
""".encode()
_LOCK = b"SELECT pg_advisory_xact_lock(x'73746F7077697365'::bigint)"  # "stopwise" in ASCII
_CLEANING_LOCK = b"SELECT pg_advisory_xact_lock(x'73746F7077697366'::bigint)"
_CLAIM = "SELECT pg_try_advisory_lock(x'73746F7077697367'::bigint)"
_AFTER = f"SELECT {COLUMNS} FROM stopwise_block WHERE base > %s ORDER BY base".encode()
# Deleted blocks are older than existing ones, so the last block, if any, is the end of the log.
_END = """
SELECT base + count - 1 AS position, digest FROM (
    SELECT base, count, digest FROM stopwise_block ORDER BY base DESC LIMIT 1
) AS last
UNION ALL SELECT dropped, digest FROM stopwise_log
ORDER BY position DESC LIMIT 1
"""
_APPEND = (
    "INSERT INTO stopwise_block SELECT %s, %s, %s, %s, %s"
    f" WHERE %s = (SELECT position FROM ({_END}) AS log)"
)
_DROP = """
WITH gone AS (
    DELETE FROM stopwise_block WHERE base <= ? AND base + count - 1 <= ?
    RETURNING base + count - 1 AS position, digest
)
UPDATE stopwise_log SET dropped = last.position, digest = last.digest
FROM (SELECT position, digest FROM gone ORDER BY position DESC LIMIT 1) AS last
WHERE last.position > dropped
"""
# Two replicas may write snapshots at the same position, each under a different UUID.
_COMPLETE = """
SELECT DISTINCT ON (position) position, writing, digest, parts FROM stopwise_snapshot
GROUP BY position, writing, digest, parts HAVING count(*) = parts
ORDER BY position DESC, writing
"""
# Repeated if the connection was lost, possibly after the part was stored.
_ADD_PART = "INSERT INTO stopwise_snapshot VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_GET_PART = "SELECT payload FROM stopwise_snapshot WHERE (position, writing, part) = (?, ?, ?)"
# Parts after the newest complete snapshot stay, because another replica may be writing them. Only
# one replica cleans up at a time: two that wrote the same position could otherwise delete each
# other's snapshot.
_CLEAN = (
    f"WITH newest AS ({_COMPLETE} LIMIT %s) DELETE FROM stopwise_snapshot"
    " WHERE position <= (SELECT max(position) FROM newest)"
    " AND writing NOT IN (SELECT writing FROM newest)"
)
# remote_apply is stricter than on, so it is kept.
_SETTINGS = """
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('lock_timeout', %s, false),
       set_config('statement_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false)
"""
# Advice that is added to messages of PostgreSQL, by SQLSTATE.
_ADVICE = {
    "25P03": " (this replica held the append lock and was idle for too long; it retries)",
    "25006": " (connect to the primary)",
    "42P01": " (restore the database, or restart with an empty one)",
    "55P03": " (another replica holds the append lock; check whether a replica hangs)",
}


class PostgresStore(EventStore):
    """The event log in a PostgreSQL database.

    ``where`` is ``postgresql://user:password@host:port/database``; missing parts come from the
    defaults of libpq (``PGPASSWORD``, ``.pgpass``). Messages never contain the password.

    A replica that is idle for ``patience`` seconds while it holds the append lock loses the lock.
    Waiting for the lock, or for any response, fails with `StoreError` within four times
    ``patience``.
    """

    shared: ClassVar[bool] = True
    _table: ClassVar[str] = "stopwise_block"

    def __init__(self, where: str, *, patience: float = 10.0) -> None:
        parameters = _parse_address(where)
        self.place = redacted_store(where)  # for messages
        self._secret = str(parameters.get("password") or "")
        self._patience = patience
        # With these settings, TCP detects a lost server after about `patience` seconds.
        idle = max(1, round(patience / 2))
        defaults = (
            "connect_timeout=5 fallback_application_name=stopwise target_session_attrs=read-write"
            f" keepalives_count=2 keepalives_idle={idle} keepalives_interval={max(1, idle // 2)}"
            f" tcp_user_timeout={round(patience * 1000)}"
        )
        self._conninfo = make_conninfo(defaults, **parameters)
        self._append_link = _Link()
        self._query_link = _Link()

    async def open(self) -> None:
        async def create(connection: AsyncConnection) -> int | None:
            # Checked first, for users who may use the tables but not create them.
            cursor = await connection.execute("SELECT to_regclass('stopwise_log')")
            if await cursor.fetchone() == (None,):
                async with connection.transaction():
                    await connection.execute(_LOCK)
                    await connection.execute(_TABLES)
            cursor = await connection.execute("SELECT format FROM stopwise_log")
            return next((row[0] for row in await cursor.fetchall()), None)

        format_ = await self._with(self._query_link, create)
        if format_ != FORMAT:
            await self.close()
            raise UnsupportedVersionError(
                f"the event log in {self.place} has format {format_}, but this version of Stopwise"
                f" reads format {FORMAT}. Use the version that wrote the log, or a newer version"
            )

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        await self._append_link.drop()
        await self._query_link.drop()

    async def begin(self, after: int) -> list[Block]:
        async def lock(connection: AsyncConnection) -> list[Block]:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                await connection.execute("ROLLBACK")
            await connection.execute(b"BEGIN; " + _LOCK)
            # A separate statement, which sees the commits made while this one waited for the lock.
            cursor = connection.cursor(binary=True)
            await cursor.execute(_AFTER, (after,))
            return [Block(*row) for row in await cursor.fetchall()]

        return await self._with(self._append_link, lock)

    async def commit(self, block: Block) -> None:
        async def append(connection: AsyncConnection) -> bool:
            cursor = await connection.execute(_APPEND, (*astuple(block), block.base - 1))
            await connection.execute("COMMIT")
            return cursor.rowcount == 1

        if self._append_link.status != TransactionStatus.INTRANS:
            raise StoreError(f"the append lock of {self.place} was lost; nothing was written")
        if not await self._with(self._append_link, append, retry=False):
            raise StoreError(
                f"cannot append a block at event {block.base:,}: the log in {self.place} does not"
                f" end at event {block.base - 1:,}; nothing was written"
            )

    async def release(self) -> None:
        async def rollback(connection: AsyncConnection) -> None:
            await connection.execute("ROLLBACK")

        if self._append_link.status == TransactionStatus.INTRANS:
            with suppress(StoreError):  # losing the connection releases the lock, too
                await self._with(self._append_link, rollback, retry=False)

    async def end(self) -> tuple[int, bytes]:
        position, digest = (await self._rows(_END))[0]
        return position, digest

    async def drop_before(self, position: int) -> None:
        await self._rows(_DROP, position, position)

    async def snapshots(self) -> list[int]:
        return [row[0] for row in reversed(await self._rows(_COMPLETE))]

    async def snapshot(self, position: int) -> Snapshot | None:
        for saved_position, writing, digest, count in await self._rows(_COMPLETE):
            if saved_position == position:
                keys = [(position, writing, part) for part in range(count)]
                parts = [row[0] for key in keys for row in await self._rows(_GET_PART, *key)]
                return Snapshot(position, digest, tuple(parts)) if len(parts) == count else None
        return None

    async def claim_snapshot(self) -> bool:
        return (await self._rows(_CLAIM))[0][0]

    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        position, digest, count = snapshot.position, snapshot.digest, len(snapshot.parts)
        writing = uuid4()
        for k, part in enumerate(snapshot.parts):
            await self._rows(_ADD_PART, position, writing, k, count, digest, part)

        async def clean(connection: AsyncConnection) -> None:
            async with connection.transaction():
                await connection.execute(_CLEANING_LOCK)
                await connection.execute(_CLEAN.encode(), (keep,))

        await self._with(self._query_link, clean)

    # -- connections ----------------------------------------------------------------------------

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        async def execute(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            await cursor.execute(query.replace("?", "%s").encode(), values)
            return [] if cursor.description is None else await cursor.fetchall()

        return await self._with(self._query_link, execute)

    async def _with(self, link: "_Link", work: Work[T], *, retry: bool = True) -> T:
        """Run ``work`` on a connection; if it fails, close the connection and raise `StoreError`.

        If ``retry`` is true and the open connection was lost, repeat the work once on a new one.
        """
        async with link.lock:
            task = asyncio.current_task()
            assert task is not None  # every coroutine runs in a task
            cancelled = task.cancelling()
            retry = retry and link.status is not None  # the database may have restarted
            try:
                # Every statement has its own timeout; this one limits their total.
                async with asyncio.timeout(2.5 * self._patience):
                    try:
                        return await work(await link.get(self._connect))
                    except Exception as error:
                        # psycopg may raise its own error if the task is cancelled.
                        if task.cancelling() > cancelled:
                            raise asyncio.CancelledError from error
                        lost = isinstance(error, psycopg.OperationalError) and link.status is None
                        if not retry or not lost:
                            raise
                    return await work(await link.get(self._connect))
            except BaseException as error:  # a cancelled task may leave a statement unfinished
                await link.drop()
                if isinstance(error, psycopg.Error):
                    raise StoreError(self._message(error)) from error
                if isinstance(error, TimeoutError):
                    raise StoreError(f"no response from {self.place}") from error
                raise

    async def _connect(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        try:
            idle = self._patience * 1000
            timeouts = (1.5 * idle, 2 * idle, idle)
            await connection.execute(_SETTINGS, [f"{time:.0f}ms" for time in timeouts])
        except BaseException:
            await connection.close()
            raise
        return connection

    def _message(self, error: psycopg.Error) -> str:
        reason = " ".join((error.diag.message_primary or str(error)).split())
        advice = _ADVICE.get(error.sqlstate or "", "")
        text = f"cannot use the event log {self.place}: {reason}{advice}"
        return text.replace(self._secret, "***") if self._secret else text


class _Link:
    """A connection that is opened on first use, and again after it was dropped."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None

    @property
    def status(self) -> TransactionStatus | None:
        """The transaction status of the connection; None if it is not open."""
        if self._connection is None or self._connection.closed:
            return None
        return self._connection.info.transaction_status

    async def get(self, connect: Callable[[], Awaitable[AsyncConnection]]) -> AsyncConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect()
        return self._connection

    async def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _parse_address(where: str) -> dict[str, Any]:
    """Parse a connection string without repeating any part of it in messages."""
    # If / or @ in a password is not escaped, libpq takes the rest for the host and shows it.
    scheme, _, address = where.partition("://")
    credentials, _, _ = address.rpartition("@")
    if scheme in {"postgresql", "postgres"} and not set(credentials) & set("/?#@[]"):
        with suppress(psycopg.Error):
            parameters = dict(conninfo_to_dict(where))
            if all(port.isdecimal() for port in str(parameters.get("port") or 0).split(",")):
                return parameters
    raise InvalidParameterError(
        "invalid address of the PostgreSQL store: it must be"
        " postgresql://user:password@host:port/database?option=value with valid PostgreSQL options,"
        " and user and password must be percent-encoded (@ as %40, / as %2F, % as %25)"
    )
