"""A running server: its clients, TLS, work that takes long, how it stops, and how it fails."""

import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from stopwise.service import service as service_module
from stopwise.service.learner import Learner
from stopwise.service.settings import Settings
from tests.service.harness import CONTEXT, ROUNDS, SPEC, Served, process, served

CASCADES = "/v1/cascades"
LIMIT = 120  # seconds; generous, for a busy machine


def test_a_client_over_tls(tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    with served(tmp_path, tls_cert=cert, tls_key=key) as running:
        assert running.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=running.url, verify=trusted, trust_env=False) as client:
            assert client.post(CASCADES, json=SPEC).status_code == 201
            assert client.post(ROUNDS, json=CONTEXT).json()["status"] == "open"


# -- work that takes long --------------------------------------------------------------------------


class Held:
    """Decisions that run in a thread and wait there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.leave = Event(), Event()
        decide = Learner.open

        def open_late(learner: Learner, *arguments: Any, **more: Any) -> Any:
            self.entered.set()
            assert self.leave.wait(LIMIT)
            return decide(learner, *arguments, **more)

        monkeypatch.setattr(Learner, "open", open_late)
        monkeypatch.setattr(service_module, "ON_LOOP", -1.0)


def test_health_is_answered_while_a_decision_takes_long(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(running.post, ROUNDS, CONTEXT)
        assert held.entered.wait(LIMIT)
        assert running.get("/healthz").status_code == 200
        assert not slow.done()
        held.leave.set()
        assert slow.result().status_code == 201


# -- how it stops ----------------------------------------------------------------------------------


def wait_until_refused(running: Served) -> None:
    """Wait until nobody can connect."""
    with suppress(ConnectionRefusedError):
        while True:
            with suppress(ConnectionResetError):  # it was closing just then
                running.connect().close()


def alone(folder: Path, **settings: Any) -> Served:
    """A service that the test itself stops."""
    running = Served(Settings(store=str(folder / "log.db"), port=0, **settings))
    running.wait_until_ready()
    assert running.post(CASCADES, SPEC).status_code == 201
    return running


def test_while_it_drains_it_is_not_ready_and_serves(tmp_path: Path) -> None:
    running = alone(tmp_path, drain=3600)
    running.ask_to_stop()
    while running.get("/readyz").status_code == 200:
        pass
    assert running.post(ROUNDS, CONTEXT).status_code == 201
    assert "stopwise_ready 0.0" in running.get("/metrics").text
    running.ask_to_stop()  # once more ends the drain
    running.wait_until_stopped()
    wait_until_refused(running)
    running.close()
    with served(tmp_path) as again:
        assert again.get("/v1/cascades/triage").json()["rounds"] == 1


def test_a_drain_ends_by_itself(tmp_path: Path) -> None:
    running = alone(tmp_path, drain=0.1)
    running.ask_to_stop()
    running.wait_until_stopped()
    running.close()


def test_without_a_drain_it_stops_at_once_and_finishes_what_it_has_begun(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with ThreadPoolExecutor(1) as pool, running.connect() as idle:
        slow = pool.submit(running.post, ROUNDS, CONTEXT)
        assert held.entered.wait(LIMIT)
        running.ask_to_stop()
        wait_until_refused(running)
        held.leave.set()
        running.wait_until_stopped()
        assert slow.result().status_code == 201
        assert idle.recv(1) == b""  # a connection that sends nothing does not hold it up


# -- how it fails ----------------------------------------------------------------------------------


REPLACED_COMMIT = """
from stopwise.service.store.sqlite import SqliteStore
commits = SqliteStore.commit
async def commit(self, block):
    {}
SqliteStore.commit = commit
"""
BROKEN_COMMIT = """if block.base > 1:
        raise ValueError("not what a store may raise")
    await commits(self, block)"""
LOST_EVENTS = """await commits(self, block)
    await self._rows("DELETE FROM block")
    self._ends_at = None"""


@pytest.mark.parametrize("before", [BROKEN_COMMIT, LOST_EVENTS], ids=["error", "damaged log"])
def test_a_process_that_cannot_go_on_ends_with_an_error(tmp_path: Path, before: str) -> None:
    with process(tmp_path, before=REPLACED_COMMIT.format(before)) as server:
        url = server.url
        while httpx.get(f"{url}/readyz").status_code != 200:
            pass
        assert httpx.post(url + CASCADES, json=SPEC).status_code == 201
        assert httpx.post(url + ROUNDS, json=CONTEXT).status_code == 503
        assert server.process.wait(60) == 1
    assert "the service cannot go on" in server.printed
    with socket.socket() as line:
        assert line.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0
