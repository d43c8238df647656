"""A log that is not what was written: the server says so and ends, and does not go on with it."""

from pathlib import Path

import httpx

from stopwise.service.events import Retired, encode
from tests.service.database import Database
from tests.service.harness import CONTEXT, ROUNDS, SPEC, process


def test_a_server_whose_log_is_damaged_ends_and_does_not_start_again(
    tmp_path: Path, database: Database, postgres: str
) -> None:
    with process(tmp_path, store=postgres) as server:
        server.wait_until_ready()
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:
            assert client.post("/v1/cascades", json=SPEC).status_code == 201
            assert client.post(ROUNDS, json=CONTEXT).status_code == 201
        forged = encode([Retired(0, 1.0)]).hex()
        insert = f"INSERT INTO stopwise_block VALUES (3, 1, 1.0, '\\x00', '\\x{forged}')"
        database.run(insert, where=postgres)
        for again in (True, False):
            assert server.process.wait(60) == 1
            assert "\nstopwise: " in f"\n{server.printed}"  # a sentence, not only a traceback
            server.end()
            if again:
                server.start()
