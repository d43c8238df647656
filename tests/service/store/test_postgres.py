"""PostgreSQL store: the append lock, server restarts, secrets, durability and snapshots."""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from urllib.parse import quote
from uuid import UUID

import pytest
from psycopg import AsyncConnection, errors

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.persistence.blocks import START
from stopwise.service.persistence.stores.base import Snapshot
from stopwise.service.persistence.stores.postgres import PostgresStore
from tests.service.core.services import until
from tests.service.database import Database
from tests.service.store.test_contract import append, block_after, chain, opened, read

SECRET = "p@ss/w:rd%!?"


@pytest.fixture
def run(database: Database, postgres: str) -> Callable[..., list[tuple]]:
    """Run statements in the database of the store."""
    return partial(database.run, where=postgres)


@pytest.fixture
def settable(database: Database) -> Iterator[str]:
    """A database whose settings the test may change."""
    database.run("CREATE DATABASE settable")
    yield database.uri("settable")
    database.run("DROP DATABASE settable WITH (FORCE)")


# -------------------------------------------------------------------- the append lock


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_begin_returns_blocks_committed_while_it_waited(
    database: Database, settable: str, isolation: str
) -> None:
    database.run(f"ALTER DATABASE settable SET default_transaction_isolation TO '{isolation}'")
    first, second = chain(1, 1)

    async with opened(settable) as holder, opened(settable) as other:
        await holder.begin(0)
        task = asyncio.create_task(other.begin(0))
        await until(lambda: database.waiting() == 1)
        await holder.commit(first)
        assert await task == [first]
        await other.commit(second)


async def test_commit_requires_the_lock(postgres: str) -> None:
    first, second = chain(1, 1)

    async with opened(postgres) as store:
        with pytest.raises(StoreError):
            await store.commit(first)
        await store.release()  # has no effect without the lock
        await append(store, first)
        with pytest.raises(StoreError):
            await store.commit(second)
        await store.begin(1)
        await store.release()
        with pytest.raises(StoreError):
            await store.commit(second)
        assert await read(store) == [first]


async def test_wait_for_the_lock_can_be_cancelled_and_times_out(
    database: Database, postgres: str
) -> None:
    first, second = chain(1, 1)
    other = PostgresStore(postgres, patience=2.0)
    async with opened(postgres) as holder:
        await other.begin(0)  # connects
        await other.release()
        await holder.begin(0)
        task = asyncio.create_task(other.begin(0))
        await until(lambda: database.waiting() == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(StoreError) as caught:
            await other.begin(0)
        assert isinstance(caught.value.__cause__, errors.LockNotAvailable)
        await holder.commit(first)
        # The store whose wait timed out does not hold the lock, and can wait for it again.
        await append(holder, second)
        assert await other.begin(0) == [first, second]
    await other.close()


async def test_idle_holder_loses_the_lock(postgres: str) -> None:
    [first] = chain(1)
    idle = PostgresStore(postgres, patience=1.0)
    await idle.open()
    async with opened(postgres) as other:
        await idle.begin(0)
        assert await other.begin(0) == []  # waits until the idle transaction times out
        await other.commit(first)
        with pytest.raises(StoreError):
            await idle.commit(first)
        assert await idle.begin(0) == [first]  # it can acquire the lock again
        assert await read(other) == [first]
    await idle.close()


# -------------------------------------------------------------------- server restarts


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_store_reconnects_after_a_restart_of_the_server(
    database: Database, postgres: str, mode: str
) -> None:
    first, second, third = chain(1, 1, 1)
    snapshot = Snapshot(1, first.digest, (b"state",))

    async with opened(postgres) as store:
        await append(store, first)
        await store.save_snapshot(snapshot)
        database.stop(mode)
        database.start()
        assert await read(store) == [first]  # reconnects without an error
        assert await store.begin(1) == []
        database.stop(mode)
        with pytest.raises(StoreError):
            await store.commit(second)
        for attempt in (store.begin(1), store.end(), store.snapshot(1), read(store)):
            with pytest.raises(StoreError) as caught:
                await attempt
            assert PostgresStore(postgres).place in str(caught.value)
        await store.release()
        database.start()
        assert await store.snapshot(snapshot.position) == snapshot
        assert await read(store) == [first]
        assert await store.begin(1) == []  # the failed commit stored nothing
        database.stop(mode)
        await store.release()  # has no effect: the lock is lost
        database.start()
        await append(store, second, third)
        assert await read(store) == [first, second, third]


# -------------------------------------------------------------------- secrets and privileges


@pytest.fixture
def clerk(database: Database, postgres: str, run: Callable[..., list[tuple]]) -> Iterator[str]:
    """The address for a user with a password who may use the tables but not create them."""
    asyncio.run(_open_and_close(postgres))
    schema = run("SELECT current_schema()")[0][0]
    run(
        f"CREATE ROLE clerk LOGIN PASSWORD '{SECRET}'",
        f"GRANT USAGE ON SCHEMA {schema} TO clerk",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO clerk",
    )
    rules = database.data / "pg_hba.conf"
    if "clerk" not in rules.read_text():
        rules.write_text("local all clerk scram-sha-256\n" + rules.read_text())
        run("SELECT pg_reload_conf()")
    yield postgres.replace("postgres:@", "clerk:{}@")
    run("DROP OWNED BY clerk", "DROP ROLE clerk")


async def _open_and_close(where: str) -> None:
    async with opened(where):
        pass


async def test_messages_do_not_contain_the_password(clerk: str) -> None:
    wrong = "wr0ng&p@ss/w:rd%"

    # Works without the privilege to create tables.
    async with opened(clerk.format(quote(SECRET, safe=""))) as store:
        await append(store, *chain(1, 2))
    store = PostgresStore(clerk.format(quote(wrong, safe="")))
    for attempt in (store.open, store.end, lambda: store.begin(0)):
        with pytest.raises(StoreError) as caught:
            await attempt()
        text = "".join(traceback.format_exception(caught.value)) + repr(store) + store.place
        assert wrong not in text
        assert quote(wrong, safe="") not in text
    await store.close()


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://ann:hush@hush/hush@db.example/log",  # the text after the first @ …
        "postgresql://ann:hush/hush@db.example/log",  # … or / would be taken for the host
        "postgresql://ann:hush@db.example/log?no_such_option=1",
        "mysql://ann:hush@db.example/log",
    ],
)
def test_message_does_not_repeat_an_invalid_address(where: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        PostgresStore(where)
    assert "hush" not in "".join(traceback.format_exception(caught.value, chain=True))


# -------------------------------------------------------------------- durability and snapshots


@pytest.mark.parametrize(
    ("default", "expected"),
    [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")],
)
async def test_commits_are_durable_for_every_server_default(
    database: Database, settable: str, default: str, expected: str
) -> None:
    async def settings(store: PostgresStore) -> set[str]:
        values: set[str] = set()
        for link in (store._append_link, store._query_link):
            cursor = await link._connection.execute("SHOW synchronous_commit")  # pyright: ignore[reportOptionalMemberAccess] (it is connected)
            values.add((await cursor.fetchone())[0])  # pyright: ignore[reportOptionalSubscript] (it has a row)
        return values

    database.run(f"ALTER DATABASE settable SET synchronous_commit TO {default}")
    store = PostgresStore(settable)
    await store.open()
    await store.begin(0)
    await store.release()
    assert await settings(store) == {expected}
    await store.close()


@pytest.mark.parametrize("format_", [1, 3])
async def test_other_formats_are_rejected(
    postgres: str, run: Callable[..., list[tuple]], format_: int
) -> None:
    async with opened(postgres) as store:
        await append(store, block_after(None))
    run(f"UPDATE stopwise_log SET format = {format_}")
    with pytest.raises(UnsupportedVersionError):
        await PostgresStore(postgres).open()


async def hold_last_part(connection: AsyncConnection, position: int) -> None:
    """Make a replica wait before the second part of a snapshot in two parts, until a rollback."""
    insert = "INSERT INTO stopwise_snapshot VALUES (%s, %s, 1, 2, '', '')"
    await connection.execute(insert, (position, UUID(int=1)))


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas write snapshots with the UUIDs 1, 2, …, in this order."""
    numbers = count(1)
    name = "stopwise.service.persistence.stores.postgres.uuid4"
    monkeypatch.setattr(name, lambda: UUID(int=next(numbers)))


@pytest.mark.usefixtures("ids")
async def test_cleaning_keeps_parts_of_a_newer_unfinished_snapshot(
    database: Database, postgres: str
) -> None:
    newer = Snapshot(9, START, (b"first part", b"last part"))
    async with (
        opened(postgres) as store,
        opened(postgres) as other,
        await AsyncConnection.connect(postgres) as holding,
    ):
        await hold_last_part(holding, newer.position)
        writing = asyncio.create_task(store.save_snapshot(newer))
        await until(lambda: database.waiting() == 1)  # the first part is stored
        # The other store deletes old snapshots after saving this one.
        await other.save_snapshot(Snapshot(5, START, (b"older",)), keep=1)
        await holding.rollback()
        await writing
        assert await other.snapshots() == [5, newer.position]
        assert await other.snapshot(newer.position) == newer


@pytest.mark.usefixtures("ids")
async def test_replicas_that_save_the_same_position_keep_one_of_both_snapshots(
    database: Database, postgres: str
) -> None:
    """In the worst case, one replica cleans up while the other writes its last part.

    The snapshots may differ between versions of Stopwise, so one must remain, not a mixture.
    """
    written = [Snapshot(5, START, (b"first %d" % k, b"last %d" % k)) for k in range(2)]
    async with (
        opened(postgres) as store,
        opened(postgres) as other,
        await AsyncConnection.connect(postgres) as last_part,
        await AsyncConnection.connect(postgres) as first_part,
    ):
        # The first replica cannot write its last part yet …
        await hold_last_part(last_part, 5)
        first = asyncio.create_task(store.save_snapshot(written[0]))
        await until(lambda: database.waiting() == 1)
        # … and the second cannot delete the first part of the first replica yet.
        await first_part.execute("SELECT FROM stopwise_snapshot WHERE part = 0 FOR UPDATE")
        second = asyncio.create_task(other.save_snapshot(written[1]))
        await until(lambda: database.waiting() == 2)
        await last_part.rollback()
        await until(lambda: first.done() or database.waiting() == 2)
        await first_part.rollback()
        await asyncio.gather(first, second)
        assert await store.snapshot(5) in written
