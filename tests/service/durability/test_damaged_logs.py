"""A server with a damaged log exits with a message."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from stopwise.service.domain.events import Retired
from stopwise.service.persistence.blocks import encode_event, join_events
from tests.service.database import Database
from tests.service.harness import CONTEXT, ROUNDS, SPEC, process


def test_server_exits_if_its_log_is_damaged_and_does_not_restart(
    tmp_path: Path, database: Database, postgres: str
) -> None:
    with process(tmp_path, store=postgres) as server:
        server.wait_until_ready()
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:
            assert client.post("/v1/cascades", json=SPEC).status_code == 201
            assert client.post(ROUNDS, json=CONTEXT).status_code == 201
        forged = join_events([encode_event(Retired(0, 1.0))]).hex()
        insert = f"INSERT INTO stopwise_block VALUES (3, 1, 1.0, '\\x00', '\\x{forged}')"
        database.run(insert, where=postgres)
        for again in (True, False):
            assert server.process.wait(60) == 1
            assert "\nstopwise: " in f"\n{server.printed}"  # a message, not only a traceback
            server.end()
            if again:
                server.start()


def start_fails(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``stopwise serve`` until it exits by itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "from stopwise.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "--port", "0", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )


@pytest.mark.parametrize("damaged", ["one", "most", "root"])
def test_file_with_damaged_pages_is_not_served(tmp_path: Path, damaged: str) -> None:
    with process(tmp_path) as server:
        server.wait_until_ready()
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:
            assert client.post("/v1/cascades", json=SPEC).status_code == 201
            batch = {"contexts": [[k / 1000, 0.5] for k in range(1000)]}
            for _ in range(10):
                assert client.post(f"{ROUNDS}:batch", json=batch).status_code == 201
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as sql:
        # Move all pages from the write-ahead log to the file.
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(root,)] = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = 'block'")
        [(size,)] = sql.execute("PRAGMA page_size")
    content = bytearray(path.read_bytes())
    pages = len(content) // size
    spoiled = {"one": [pages // 2], "most": range(root + 1, pages + 1), "root": [root]}[damaged]
    for page in spoiled:
        content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)
    ended = start_fails("--store", str(path))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("stopwise: ")
    assert "damaged" in last
    assert str(path) in last
    assert len(ended.stderr.splitlines()) < 10  # it has not retried


def test_directory_is_rejected_as_store(tmp_path: Path) -> None:
    ended = start_fails("--store", str(tmp_path))
    assert ended.returncode == 1
    assert f"{tmp_path} is a directory" in ended.stderr
    assert "hard link" not in ended.stderr
