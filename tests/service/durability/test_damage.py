"""A log that is not what was written: the server says so and ends, and does not go on with it."""

from pathlib import Path

import httpx
import pytest

from stopwise.service.events import Retired, encode
from tests.service.database import Database
from tests.service.harness import CONTEXT, ROUNDS, SPEC, EndedError, process

FRAME = 24 + 4096  # bytes of a frame in SQLite's write-ahead log: its head, and one page


def fill(url: str) -> None:
    """Open some rounds, one commit each."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        assert client.post("/v1/cascades", json=SPEC).status_code == 201
        for _ in range(9):
            assert client.post(ROUNDS, json=CONTEXT).status_code == 201


def test_acknowledged_events_that_are_missing_at_the_end_are_noticed(tmp_path: Path) -> None:
    with process(tmp_path) as server:
        server.wait_until_ready()
        fill(server.url)
    wal = tmp_path / "log.db-wal"
    complete = wal.read_bytes()
    wal.write_bytes(complete[:-FRAME])
    with pytest.raises(EndedError) as caught, process(tmp_path):
        pass
    assert caught.value.code == 1
    assert "\nstopwise: " in f"\n{caught.value.printed}"  # a sentence, not only a traceback
    wal.write_bytes(complete)
    with process(tmp_path) as server:  # without the damage
        assert server.wait_until_ready()["position"] == 10


def test_a_server_whose_log_is_damaged_while_it_runs_ends(
    tmp_path: Path, database: Database, postgres: str
) -> None:
    with process(tmp_path, store=postgres) as server:
        server.wait_until_ready()
        fill(server.url)
        forged = encode([Retired(0, 1.0)]).hex()
        insert = f"INSERT INTO stopwise_block VALUES (11, 1, 1.0, '\\x00', '\\x{forged}')"
        database.run(insert, where=postgres)
        assert server.process.wait(60) == 1
        assert "\nstopwise: " in f"\n{server.printed}"
