"""The server process: TLS, stopping and fatal errors."""

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
from stopwise.service.domain.cascade import ServedCascade
from tests.service.harness import CONTEXT, ROUNDS, SPEC, Served, process, served

CASCADES = "/v1/cascades"
TIMEOUT = 120  # seconds; the machine may be busy


def test_requests_are_served_over_tls(tmp_path: Path) -> None:
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


# -- stopping --------------------------------------------------------------------------------------


def wait_until_refused(running: Served) -> None:
    """Wait until connections are refused."""
    with suppress(ConnectionRefusedError):
        while True:
            with suppress(ConnectionResetError):  # it is closing
                running.connect().close()


def test_a_draining_service_is_not_ready_but_serves_requests(tmp_path: Path) -> None:
    with served(tmp_path, drain=3600) as running:
        assert running.post(CASCADES, SPEC).status_code == 201
        running.ask_to_stop()
        while running.get("/readyz").status_code == 200:
            pass
        assert running.post(ROUNDS, CONTEXT).status_code == 201
        assert "stopwise_ready 0.0" in running.get("/metrics").text
        running.ask_to_stop()  # the second request ends the drain
        running.wait_until_stopped()
        wait_until_refused(running)
    with served(tmp_path, drain=0.1) as again:
        assert again.get("/v1/cascades/triage").json()["rounds"] == 1
        again.ask_to_stop()
        again.wait_until_stopped()  # the drain times out


def test_without_a_drain_requests_in_flight_are_finished(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave, decide = Event(), Event(), ServedCascade.open

    def open_late(cascade: ServedCascade, *arguments: Any, **more: Any) -> Any:
        entered.set()
        assert leave.wait(TIMEOUT)
        return decide(cascade, *arguments, **more)

    monkeypatch.setattr(ServedCascade, "open", open_late)
    monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1.0)  # decide in a thread
    with ThreadPoolExecutor(1) as pool, running.connect() as idle:
        slow = pool.submit(running.post, ROUNDS, CONTEXT)
        assert entered.wait(TIMEOUT)
        assert running.get("/healthz").status_code == 200
        assert not slow.done()
        running.ask_to_stop()
        wait_until_refused(running)
        leave.set()
        running.wait_until_stopped()
        assert slow.result().status_code == 201
        assert idle.recv(1) == b""  # idle connections are closed


# -- fatal errors ----------------------------------------------------------------------------------


BROKEN_COMMIT = """
from stopwise.service.persistence.stores.sqlite import SqliteStore
commits = SqliteStore.commit
async def commit(self, block):
    if block.base > 1:
        raise ValueError("not what a store may raise")
    await commits(self, block)
SqliteStore.commit = commit
"""


def test_a_fatal_error_ends_the_process_with_status_1(tmp_path: Path) -> None:
    with process(tmp_path, before=BROKEN_COMMIT) as server:
        url = server.url
        server.wait_until_ready()
        assert httpx.post(url + CASCADES, json=SPEC, verify=False).status_code == 201
        assert httpx.post(url + ROUNDS, json=CONTEXT, verify=False).status_code == 503
        assert server.process.wait(60) == 1
    assert "fatal error, shutting down" in server.printed
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0
