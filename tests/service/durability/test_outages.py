"""A full disk, and a database that goes away: nothing is lost, and no restart is needed."""

import asyncio
import resource
from pathlib import Path

import pytest

from tests.service.database import Database
from tests.service.durability.checking import check_all, ready
from tests.service.durability.clients import Connection, Load
from tests.service.durability.servers import Ended, server


async def check_unavailable(port: int) -> None:
    """Check that requests are refused in the one shape, and that the service knows it."""
    connection = Connection()
    try:
        path, body = "/v1/cascades/chance/rounds", {"context": [0.1, 0.2]}
        status, answer = await connection.ask(port, "POST", path, body)
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert (await connection.ask(port, "GET", "/readyz"))[0] == 503
        assert (await connection.ask(port, "GET", "/healthz"))[0] == 200  # no restart would help
        assert (await connection.ask(port, "GET", "/v1/cascades"))[0] == 200
    finally:
        connection.close()


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")

    async def scenario() -> None:
        load = Load(5)
        async with server(where, snapshot_every=200) as one:
            await one.start()
            load.use(one.port)
            pid = one.pid
            async with load.running():
                for room in (0, 50_000, 0):
                    await load.progress(100)
                    # No file may grow beyond its size, or a little more.
                    largest = max(file.stat().st_size for file in tmp_path.iterdir())
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    limit = largest + room if room else 4096
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
                    await load.refusals(30)
                    if not room:
                        await check_unavailable(one.port)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
                await load.progress(100)
            assert one.pid == pid
            state = await check_all(where, load, one.port)
            await one.kill()
            await one.start()
            assert await ready(one.port) == state

    asyncio.run(scenario())


def test_a_database_that_is_restarted_is_survived(database: Database, postgres: str) -> None:
    async def scenario() -> None:
        load = Load(6)
        async with server(postgres, snapshot_every=200) as one:
            await one.start()
            load.use(one.port)
            pid = one.pid
            async with load.running():
                for mode in ("fast", "immediate", "fast"):
                    await load.progress(80)
                    await asyncio.to_thread(database.stop, mode)
                    await load.refusals(20)
                    await check_unavailable(one.port)
                    await asyncio.to_thread(database.start)
                # So quickly that hardly anybody notices.
                await load.progress(80)
                await asyncio.to_thread(database.stop)
                await asyncio.to_thread(database.start)
                await load.progress(80)
            assert one.pid == pid
            await check_all(postgres, load, one.port)

    asyncio.run(scenario())


@pytest.mark.full
def test_a_database_that_is_down_at_the_start_is_named(database: Database, postgres: str) -> None:
    """A server that cannot reach its log does not start; it says why, without the password."""

    async def scenario() -> None:
        secret = "hush-hush"
        async with server(postgres.replace("postgres:@", f"postgres:{secret}@")) as one:
            database.stop()
            try:
                with pytest.raises(Ended) as caught:
                    await one.start()
            finally:
                database.start()
            assert caught.value.code == 1
            assert "postgresql" in caught.value.printed.lower()
            assert secret not in caught.value.printed

    asyncio.run(scenario())
