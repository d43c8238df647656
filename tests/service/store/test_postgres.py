"""PostgreSQL: replicas that append in turn, servers that restart, secrets, formats."""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain as chain_of
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.events import START, Block, chained
from stopwise.service.store.base import Snapshot
from stopwise.service.store.postgres import PostgresStore
from tests.service.database import Database
from tests.service.store.test_contract import append, chain, made, opened, read

SECRET = "p@ss/w:rd%!?"


@pytest.fixture
def run(database: Database, postgres: str) -> Callable[..., list[tuple]]:
    """Run statements beside the store."""
    return partial(database.run, where=postgres)


@pytest.fixture
def settable(database: Database) -> Iterator[str]:
    """A database whose settings may be changed."""
    with database.whole() as where:
        yield where


async def waits(task: asyncio.Task[list[Block]]) -> bool:
    """Whether it is still at it after a good while."""
    await asyncio.wait([task], timeout=0.3)
    return not task.done()


# -------------------------------------------------------------------- turns


@pytest.mark.parametrize("ending", ["commit", "release"])
def test_who_waits_gets_the_right_when_it_is_given_up(postgres: str, ending: str) -> None:
    first, second = chain(1, 1)

    async def scenario() -> None:
        async with opened(postgres) as one, opened(postgres) as other:
            await append(one, first)
            await one.begin(1)
            task = asyncio.create_task(other.begin(0))
            assert await waits(task)
            if ending == "commit":
                await one.commit(second)
                assert await task == [first, second]  # with what came while it waited
            else:
                await one.release()
                assert await task == [first]
            await other.release()

    asyncio.run(scenario())


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_who_waited_sees_what_was_committed_meanwhile(
    database: Database, settable: str, isolation: str
) -> None:
    name = conninfo_to_dict(settable)["dbname"]
    database.run(f"ALTER DATABASE {name} SET default_transaction_isolation TO '{isolation}'")
    first, second = chain(1, 1)

    async def scenario() -> None:
        async with opened(settable) as one, opened(settable) as other:
            await one.begin(0)
            task = asyncio.create_task(other.begin(0))
            assert await waits(task)
            await one.commit(first)
            assert await task == [first]
            await other.commit(second)

    asyncio.run(scenario())


def test_many_who_append_at_once_make_one_log(postgres: str) -> None:
    async def work(number: int) -> list[Block]:
        mine: list[Block] = []
        last: Block | None = None
        async with opened(postgres) as store:
            for turn in range(8):
                foreign = await store.begin(0 if last is None else last.end)
                last = foreign[-1] if foreign else last
                last = made(last, b"%d/%d" % (number, turn), count=number)
                await store.commit(last)
                mine.append(last)
        return mine

    async def scenario() -> None:
        # opening an empty database at once is safe too
        written = await asyncio.gather(*(work(number) for number in range(1, 5)))
        async with opened(postgres) as store:
            blocks = await read(store)
        assert blocks == sorted(chain_of(*written), key=lambda block: block.base)
        digest, position = START, 0
        for block in blocks:
            digest = chained(digest, block.payload)
            assert (block.base, block.digest) == (position + 1, digest)
            position = block.end
        assert position == 8 * (1 + 2 + 3 + 4)

    asyncio.run(scenario())


def test_nothing_is_appended_without_the_right(postgres: str) -> None:
    first, second = chain(1, 1)

    async def scenario() -> None:
        async with opened(postgres) as store:
            with pytest.raises(StoreError):
                await store.commit(first)
            await store.release()  # nothing to give up, nothing wrong
            await append(store, first)
            with pytest.raises(StoreError):
                await store.commit(second)
            await store.begin(1)
            await store.release()
            with pytest.raises(StoreError):
                await store.commit(second)
            assert await read(store) == [first]

    asyncio.run(scenario())


def test_a_refused_block_gives_up_the_right(postgres: str) -> None:
    async def scenario() -> None:
        async with opened(postgres) as one, opened(postgres) as other:
            await one.begin(0)
            with pytest.raises(StoreError):
                await one.commit(made(made(None)))
            await append(other, made(None))

    asyncio.run(scenario())


def test_a_wait_for_the_right_may_be_called_off(postgres: str) -> None:
    first, second = chain(1, 1)

    async def scenario() -> None:
        async with opened(postgres) as one, opened(postgres) as other:
            await one.begin(0)
            task = asyncio.create_task(other.begin(0))
            assert await waits(task)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await one.commit(first)
            # who gave up waiting has not got the right by accident, and may ask again
            await append(one, second)
            assert await other.begin(0) == [first, second]
            await other.release()

    asyncio.run(scenario())


def test_waiting_for_the_right_ends_in_an_error(postgres: str) -> None:
    async def scenario() -> None:
        hasty = PostgresStore(postgres, patience=0.1)
        async with opened(postgres) as one:
            await one.begin(0)
            with pytest.raises(StoreError) as caught:
                await hasty.begin(0)
            assert isinstance(caught.value.__cause__, errors.LockNotAvailable)
            await one.release()
            assert await hasty.begin(0) == []
            await hasty.close()

    asyncio.run(scenario())


def test_who_is_silent_for_too_long_loses_the_right(postgres: str) -> None:
    first, second = chain(1, 1)

    async def scenario() -> None:
        silent = PostgresStore(postgres, patience=0.3)
        await silent.open()
        async with opened(postgres) as other:
            await silent.begin(0)
            assert await other.begin(0) == []  # waits until the silent one is given up
            await other.commit(first)
            with pytest.raises(StoreError):
                await silent.commit(first)
            assert await silent.begin(0) == [first]
            await silent.commit(second)
            assert await read(other) == [first, second]
        await silent.close()

    asyncio.run(scenario())


# -------------------------------------------------------------------- servers that go away


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_is_survived(database: Database, postgres: str, mode: str) -> None:
    first, second, third = chain(1, 1, 1)
    snapshot = Snapshot(1, first.digest, (b"state",))

    async def scenario() -> None:
        async with opened(postgres) as store:
            await append(store, first)
            await store.keep_snapshot(snapshot)
            database.stop(mode)
            database.start()
            assert await read(store) == [first]  # the restart went unnoticed
            assert await store.begin(1) == []
            database.stop(mode)
            with pytest.raises(StoreError):
                await store.commit(second)
            for attempt in (store.begin(1), store.end(), store.latest_snapshot(), read(store)):
                with pytest.raises(StoreError) as caught:
                    await attempt
                assert PostgresStore(postgres).place in str(caught.value)
            await store.release()
            database.start()
            assert await store.latest_snapshot() == snapshot
            assert await read(store) == [first]
            assert await store.begin(1) == []  # the commit failed and left nothing
            database.stop(mode)
            await store.release()  # nothing left to give up
            database.start()
            await append(store, second, third)
            assert await read(store) == [first, second, third]

    asyncio.run(scenario())


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = PostgresStore(f"postgresql://ann:{quote(SECRET, safe='')}@/log?host={tmp_path}")
        with pytest.raises(StoreError) as caught:
            await store.open()
        text = "".join(traceback.format_exception(caught.value))
        assert str(tmp_path) in str(caught.value)
        assert SECRET not in text
        assert quote(SECRET, safe="") not in text
        await store.close()

    asyncio.run(scenario())


def test_a_missing_database_is_named(database: Database) -> None:
    async def scenario() -> None:
        with pytest.raises(StoreError, match="nowhere"):
            await PostgresStore(database.uri("nowhere")).open()

    asyncio.run(scenario())


# -------------------------------------------------------------------- secrets and rights


@pytest.fixture
def clerk(database: Database, postgres: str, run: Callable[..., list[tuple]]) -> Iterator[str]:
    """Let in a user with a password who may use the tables of a log, and make none."""
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


def test_the_password_is_in_no_message(clerk: str) -> None:
    wrong = "wr0ng&p@ss/w:rd%"

    async def scenario() -> None:
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

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://ann:hush@hush/hush@db.example/log",  # what comes after the first @ …
        "postgresql://ann:hush/hush@db.example/log",  # … or / would pass for the server
        "postgresql://ann:hush%@db.example/log",
        "postgresql://ann:hush@db.example/log?no_such_option=1",
        "postgresql://ann:hush@db.example:hush:1/log",
        "mysql://ann:hush@db.example/log",
    ],
)
def test_an_address_that_cannot_be_understood_is_not_repeated(where: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        PostgresStore(where)
    assert "hush" not in "".join(traceback.format_exception(caught.value, chain=True))


def test_a_right_that_is_missing_is_named(clerk: str, run: Callable[..., list[tuple]]) -> None:
    run("REVOKE INSERT ON stopwise_block FROM clerk")

    async def scenario() -> None:
        async with opened(clerk.format(quote(SECRET, safe=""))) as store:
            await store.begin(0)
            with pytest.raises(StoreError, match="stopwise_block") as caught:
                await store.commit(made(None))
            assert isinstance(caught.value.__cause__, errors.InsufficientPrivilege)

    asyncio.run(scenario())


# -------------------------------------------------------------------- what is in the database


def test_commits_are_durable_whatever_the_default_is(database: Database, settable: str) -> None:
    name = conninfo_to_dict(settable)["dbname"]

    async def settings(store: PostgresStore) -> set[str]:
        values: set[str] = set()
        for link in (store._appending, store._asking):
            cursor = await link._connection.execute("SHOW synchronous_commit")  # pyright: ignore[reportOptionalMemberAccess] (it is connected)
            values.add((await cursor.fetchone())[0])  # pyright: ignore[reportOptionalSubscript] (it has a row)
        return values

    async def scenario() -> None:
        for default, wanted in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
            database.run(f"ALTER DATABASE {name} SET synchronous_commit TO {default}")
            store = PostgresStore(settable)
            await store.open()
            await store.begin(0)
            await store.release()
            assert await settings(store) == {wanted}
            await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("found", [1, 3])
def test_another_format_is_refused(
    postgres: str, run: Callable[..., list[tuple]], found: int
) -> None:
    async def scenario() -> None:
        async with opened(postgres) as store:
            await append(store, made(None))
        run(f"UPDATE stopwise_log SET format = {found}")
        with pytest.raises(UnsupportedVersionError):
            await PostgresStore(postgres).open()

    asyncio.run(scenario())


@pytest.mark.parametrize("part", [0, 1, 4])
def test_a_snapshot_that_lacks_a_part_is_ignored(
    postgres: str, run: Callable[..., list[tuple]], part: int
) -> None:
    older, newer = Snapshot(1, START, (b"older",)), Snapshot(2, START, (b"part",) * 5)

    async def scenario() -> None:
        async with opened(postgres) as store:
            await store.keep_snapshot(older)
            await store.keep_snapshot(newer)
            assert run("SELECT count(*) FROM stopwise_snapshot WHERE position = 2") == [(5,)]
            run(f"DELETE FROM stopwise_snapshot WHERE position = 2 AND part = {part}")
            assert await store.snapshots() == [1]
            assert await store.latest_snapshot() == older
            # what is left of it goes when a newer one is whole
            await store.keep_snapshot(Snapshot(3, START, (b"newest",)), keep=1)
            assert run("SELECT position FROM stopwise_snapshot") == [(3,)]

    asyncio.run(scenario())


def test_two_replicas_may_write_a_snapshot_of_the_same_position(postgres: str) -> None:
    """As two versions of Stopwise might: the snapshot is one or the other, not a mixture."""
    one, other = (Snapshot(5, START, (bytes([kind]) * (4 << 20),) * 4) for kind in (1, 2))

    async def scenario() -> None:
        async with opened(postgres) as first, opened(postgres) as second:
            await asyncio.gather(first.keep_snapshot(one), second.keep_snapshot(other))
            assert await first.snapshots() == [5]
            assert await first.latest_snapshot() in (one, other)

    asyncio.run(scenario())
