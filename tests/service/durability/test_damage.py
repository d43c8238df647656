"""A log that is not what was written: the server says so and ends, and does not go on with it."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from stopwise.errors import StopwiseError
from stopwise.service import service as service_module
from stopwise.service.events import Retired, encode
from stopwise.service.service import Service
from stopwise.service.state import State
from stopwise.service.writer import Applied
from tests.service.database import Database
from tests.service.durability.cascades import CHANCE
from tests.service.durability.checking import ready
from tests.service.durability.clients import Connection
from tests.service.durability.servers import Ended, Server, server
from tests.service.harness import served

FRAME = 24 + 4096  # bytes of a frame in SQLite's write-ahead log: its head, and one page


async def filled(one: Server) -> int:
    """Open some rounds, one commit each; return how many events the log has."""
    connection = Connection()
    await ready(one.port)
    assert (await connection.ask(one.port, "POST", "/v1/cascades", CHANCE))[0] == 201
    for _ in range(20):
        body = {"context": [0.1, 0.2]}
        status, _ = await connection.ask(one.port, "POST", "/v1/cascades/chance/rounds", body)
        assert status == 201
    connection.close()
    return 21


def check_sentence(end: Ended) -> None:
    """Check that a server has ended with status 1 and a sentence, not with a traceback alone."""
    assert end.code == 1
    assert any(line.startswith("stopwise: ") for line in end.printed.splitlines()), end.printed


def test_acknowledged_events_that_are_missing_at_the_end_are_noticed(tmp_path: Path) -> None:
    def flipped(wal: bytes) -> bytes:
        return wal[:-2000] + bytes([wal[-2000] ^ 1]) + wal[-1999:]

    damages = {
        "last frame": lambda wal: wal[:-FRAME],
        "part of a frame": lambda wal: wal[:-100],
        "several frames": lambda wal: wal[: -20 * FRAME],
        "everything": lambda wal: b"",
        "one bit": flipped,
    }

    async def scenario() -> None:
        original = tmp_path / "original"
        original.mkdir()
        async with server(str(original / "log.db")) as one:
            await one.start()
            events = await filled(one)
            await one.kill()
            for name, damage in damages.items():
                copy = Path(shutil.copytree(original, tmp_path / name))
                wal = copy / "log.db-wal"
                assert (wal.stat().st_size - 32) % FRAME == 0
                wal.write_bytes(damage(wal.read_bytes()))
                with pytest.raises(Ended) as caught:
                    await one.start(str(copy / "log.db"))
                check_sentence(caught.value)
            await one.start()  # without the damage
            assert (await ready(one.port))["position"] == events

    asyncio.run(scenario())


def test_a_server_whose_log_is_damaged_while_it_runs_ends(
    database: Database, postgres: str
) -> None:
    async def scenario() -> None:
        async with server(postgres) as one:
            await one.start()
            events = await filled(one)
            forged = encode([Retired(0, 1.0)]).hex()
            database.run(
                f"INSERT INTO stopwise_block VALUES ({events + 1}, 1, 1.0, '\\x00', '\\x{forged}')",
                where=postgres,
            )
            async with asyncio.timeout(30):
                check_sentence(await one.ended())

    asyncio.run(scenario())


def test_a_server_with_a_defect_that_reading_the_log_does_not_cure_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(state: State, time: float, /) -> Applied:
        raise ZeroDivisionError("a defect")

    async def no_recovery(*_: object, **__: object) -> State:
        raise ZeroDivisionError("another one")

    async def meet(service: Service) -> None:
        with pytest.raises(ZeroDivisionError):
            await service.submit(defect)

    def serve_with_it() -> None:
        with served(tmp_path) as running:
            monkeypatch.setattr(service_module, "recovered", no_recovery)
            running.run(meet(running.service))
            with suppress(httpx.TransportError):  # soon nobody listens any more
                for _ in range(10_000):
                    assert running.get("/readyz").status_code == 503
                pytest.fail("it is still there")

    with pytest.raises(StopwiseError, match="another one"):
        serve_with_it()
