"""A service as a process: how it starts, drains, stops, and fails."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from stopwise.errors import CorruptLogError
from stopwise.service.settings import Settings
from stopwise.service.store.sqlite import SqliteStore
from tests.service.harness import SPEC, Served, served

CONTEXT = {"context": [0.1, 0.2]}
LAST_BLOCK = "DELETE FROM block WHERE base = (SELECT max(base) FROM block)"


def ready(running: Served) -> bool:
    return running.get("/readyz").status_code == 200


def test_while_it_drains_requests_are_served_and_readyz_fails(tmp_path: Path) -> None:
    with served(tmp_path, drain=60) as running:
        assert running.post("/v1/cascades", json=SPEC).status_code == 201
        assert ready(running)
        assert "stopwise_ready 1.0" in running.get("/metrics").text
        running.ask_to_stop()
        while ready(running):
            pass
        assert running.post("/v1/cascades/triage/rounds", json=CONTEXT).status_code == 201
        assert running.get("/healthz").status_code == 200
        assert "stopwise_ready 0.0" in running.get("/metrics").text
    # `served` has asked again, which ends the wait; what was acknowledged is there
    with served(tmp_path) as running:
        assert running.get("/v1/cascades/triage").json()["rounds"] == 1


def test_it_ends_with_status_1_if_acknowledged_events_are_missing(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        running.post("/v1/cascades", json=SPEC)
        running.post("/v1/cascades/triage/rounds", json=CONTEXT)
    log = tmp_path / "log.db"
    with sqlite3.connect(log) as sql:
        sql.execute(LAST_BLOCK)
        sql.execute("DELETE FROM snapshot")
    start = "from stopwise.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, "serve", "--store", str(log), "--port", "0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"{log}-owner" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_it_ends_if_it_cannot_recover_by_itself(tmp_path: Path) -> None:
    """As when the log is damaged while it runs: requests get 503, and the process ends."""
    running = Served(Settings(store=str(tmp_path / "log.db"), port=0))
    running.wait_until_ready()
    running.post("/v1/cascades", json=SPEC)
    store = running.service._store
    assert isinstance(store, SqliteStore)
    running.run(store._rows(LAST_BLOCK))
    store._ends_at = None  # as after a failed write
    assert running.post("/v1/cascades/triage/rounds", json=CONTEXT).status_code == 503
    with pytest.raises(CorruptLogError):
        running.close()
