"""A service as a process: how it starts, drains, stops, and fails."""

import asyncio
import sqlite3
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from stopwise.errors import CorruptLogError
from stopwise.service import serve
from stopwise.service.settings import Settings
from stopwise.service.store.sqlite import SqliteStore
from tests.service.harness import SPEC, Served, served

CONTEXT = {"context": [0.1, 0.2]}
LAST_BLOCK = "DELETE FROM block WHERE base = (SELECT max(base) FROM block)"
# Of a certificate for localhost, made for this test and used for nothing else.
TLS = Path(__file__).with_name("tls")


def ready(running: Served) -> bool:
    return running.get("/readyz").status_code == 200


def test_a_start_that_takes_long_is_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(serve, "SOON", 0.002)
    events: list[tuple[str, Any]] = []
    monkeypatch.setattr(serve, "event", lambda what, **more: events.append((what, more)))
    said: list[str] = []

    class Starting(SimpleNamespace):
        looks = 0

        @property
        def ready(self) -> bool:
            self.looks += 1
            return self.looks > 20

    service = Starting(recovering="recovering: 1 of 2 events")
    asyncio.run(serve._announce_ready(cast(Any, service), said.append))
    assert len(said) == 2  # that it starts, and that it is ready
    assert service.recovering in said[0]
    assert events == [("starting", {"reason": service.recovering})]


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


def test_it_speaks_tls(tmp_path: Path) -> None:
    files = {"tls_cert": str(TLS / "cert.pem"), "tls_key": str(TLS / "key.pem")}
    with served(tmp_path, **files) as running:
        assert running.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=files["tls_cert"])
        with httpx.Client(verify=trusted, trust_env=False) as client:
            assert client.get(f"{running.url}/healthz").status_code == 200
        with httpx.Client(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):  # signed by nobody that is known
                client.get(f"{running.url}/healthz")
            with pytest.raises(httpx.TransportError):
                client.get(f"http://127.0.0.1:{running.port}/healthz")


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
