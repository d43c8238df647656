"""A full disk, and a database that goes away: nothing is lost, and no restart is needed."""

import asyncio
import resource
from pathlib import Path

import pytest

from tests.service.database import Database
from tests.service.durability.checking import (
    check_promises,
    check_state,
    events_of,
    ready,
    replayed,
    state_of,
)
from tests.service.durability.servers import nursery
from tests.service.durability.storm import Line, Storm


async def check_all(where: str, storm: Storm, port: int) -> None:
    served = await state_of(port)
    found = replayed(await events_of(where))
    check_promises(found, storm.book)
    assert await check_state(where, found) == served["hash"]


async def check_unavailable(port: int) -> None:
    """Check that who asks now is told so, in the one shape, and that the service knows it."""
    line = Line()
    try:
        body = {"context": [0.1, 0.2]}
        status, answer = await line.ask(port, "POST", "/v1/cascades/chance/decisions", body)
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert (await line.ask(port, "GET", "/readyz"))[0] == 503
        assert (await line.ask(port, "GET", "/healthz"))[0] == 200  # no restart would help
        assert (await line.ask(port, "GET", "/v1/cascades"))[0] == 200
    finally:
        line.close()


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")

    async def scenario() -> None:
        storm = Storm(5)
        async with nursery(where, snapshot_every=200) as server:
            await server.start()
            storm.serve(server.port)
            pid = server.pid
            async with storm.raging():
                for room in (0, 50_000, 0):
                    await storm.progress(100)
                    # no file may grow beyond what there is, or a little more
                    largest = max(file.stat().st_size for file in tmp_path.iterdir())
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    limit = largest + room if room else 4096
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
                    await storm.refusals(30)
                    if not room:
                        await check_unavailable(server.port)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
                await storm.progress(100)
            assert server.pid == pid
            await check_all(where, storm, server.port)
            served = await state_of(server.port)
            await server.kill()
            await server.start()
            assert await ready(server.port) == served

    asyncio.run(scenario())


def test_a_database_that_is_restarted_is_survived(database: Database, postgres: str) -> None:
    async def scenario() -> None:
        storm = Storm(6)
        async with nursery(postgres, snapshot_every=200) as server:
            await server.start()
            storm.serve(server.port)
            pid = server.pid
            async with storm.raging():
                for mode in ("fast", "immediate", "fast"):
                    await storm.progress(80)
                    await asyncio.to_thread(database.stop, mode)
                    await storm.refusals(20)
                    await check_unavailable(server.port)
                    await asyncio.to_thread(database.start)
                # so quickly that hardly anybody notices
                await storm.progress(80)
                await asyncio.to_thread(database.stop)
                await asyncio.to_thread(database.start)
                await storm.progress(80)
            assert server.pid == pid
            await check_all(postgres, storm, server.port)

    asyncio.run(scenario())


@pytest.mark.full
def test_a_database_that_is_down_at_the_start_is_named(database: Database, postgres: str) -> None:
    """Who cannot reach his log does not start; the message says why, and keeps the password."""

    async def scenario() -> None:
        secret = "hush-hush"
        where = postgres.replace("postgres:@", f"postgres:{secret}@")
        async with nursery(where) as server:
            database.stop()
            try:
                with pytest.raises(AssertionError) as caught:
                    await server.start()
            finally:
                database.start()
            server.pid = 0
            said = str(caught.value)
            assert "PostgreSQL at" in said
            assert secret not in said

    asyncio.run(scenario())
