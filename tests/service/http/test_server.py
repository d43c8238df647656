"""A running server: its clients, TLS, work that takes long, how it stops, and how it fails."""

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from stopwise.errors import StopwiseError
from stopwise.service.settings import Settings
from stopwise.service.store.sqlite import SqliteStore
from tests.service.harness import SPEC, Served, process, served

CASCADES = "/v1/cascades"
ROUNDS = "/v1/cascades/triage/rounds"
CONTEXT = {"context": [0.1, 0.2]}
Post = Callable[[str, dict[str, Any]], dict[str, Any]]


def play(post: Post) -> None:
    """Create a cascade; open, report and label a round."""
    assert post(CASCADES, SPEC)["status"] == "active"
    opened = post(ROUNDS, CONTEXT)
    assert (opened["status"], opened["stop"], opened["next"]) == ("open", 2, 0)
    here = f"{ROUNDS}/{opened['id']}"
    assert post(f"{here}/outputs", {"outputs": ["a"]})["next"] == 1
    learned = post(f"{here}/outputs", {"outputs": {"glucose": "a", "insulin": "b"}})
    assert learned["status"] == "learned"
    assert post(f"{here}/label", {"label": "b"})["audited"] == 1


# -- clients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_httpx(tmp_path: Path, chunked: bool) -> None:
    kind = {"Content-Type": "application/json"}

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(body).encode()
        content = iter([text[:5], text[5:]]) if chunked else text
        return running.post(path, content=content, headers=kind).json()

    with served(tmp_path) as running:
        play(post)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, which this machine lacks")
@pytest.mark.parametrize("flags", [[], ["--http2"]], ids=["plain", "http2"])
def test_curl(tmp_path: Path, flags: list[str]) -> None:
    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        command = ["curl", "--silent", "--fail", "--json", json.dumps(body), *flags]
        done = subprocess.run(
            [*command, "--noproxy", "*", running.url + path], check=True, capture_output=True
        )
        return json.loads(done.stdout)

    with served(tmp_path) as running:
        play(post)


def test_a_client_over_tls(tmp_path: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    with served(tmp_path, tls_cert=cert, tls_key=key) as running:
        assert running.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=running.url, verify=trusted, trust_env=False) as client:
            play(lambda path, body: client.post(path, json=body).json())


def test_many_clients_at_once_lose_nothing(running: Served) -> None:
    def one_round(_: int) -> str:
        opened = running.post(ROUNDS, CONTEXT).json()
        outputs = {"outputs": [1] * (opened["stop"] + 1)}
        learned = running.post(f"{ROUNDS}/{opened['id']}/outputs", outputs)
        assert learned.json()["status"] == "learned"
        return opened["id"]

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(one_round, range(200)))
    assert len(ids) == 200
    view = running.get("/v1/cascades/triage").json()
    assert (view["rounds"], view["learned"]) == (200, 200)


# -- work that takes long --------------------------------------------------------------------------


WIDE = "/v1/cascades/wide/rounds"
BATCH = {"contexts": [[((3 * k + i) % 19) / 10 - 0.9 for i in range(30)] for k in range(1000)]}


@pytest.fixture
def wide(running: Served) -> Served:
    """A service that has a cascade with 496 features, whose decisions take long."""
    spec = {
        "name": "wide",
        "arms": [{"name": f"arm {k}", "cost": 0.01} for k in range(3)],
        "context": 30,
        "features": {"kind": "polynomial", "degree": 2},
        "policy": {"kind": "uss-pd", "forced_rounds": 0},
    }
    assert running.post(CASCADES, spec).json()["n_features"] == 496
    rounds = running.post(f"{WIDE}:batch", {"contexts": BATCH["contexts"][:50]}).json()["rounds"]
    for k, one in enumerate(rounds):
        outputs = [(k + arm) % 3 == 0 for arm in range(one["stop"] + 1)]
        answer = running.post(f"{WIDE}/{one['id']}/outputs", {"outputs": outputs})
        assert answer.json()["status"] == "learned"
    return running


def wait_until_busy(running: Served) -> None:
    """Wait until a request is being carried out in a thread."""
    writer = running.service._writer
    assert writer is not None
    while writer.idle.is_set():
        pass


def test_health_is_answered_before_a_decision_that_began_earlier(wide: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            slow = pool.submit(wide.post, f"{WIDE}:batch", BATCH)
            wait_until_busy(wide)
            assert wide.get("/healthz").status_code == 200
            assert not slow.done()
            assert slow.result().status_code == 201


def test_rounds_of_other_cascades_are_answered_while_decisions_take_long(wide: Served) -> None:
    enough = Event()

    def decide_and_learn() -> int:
        learned = 0
        while not enough.is_set():
            rounds = wide.post(f"{WIDE}:batch", BATCH).json()["rounds"]
            outputs = {"outputs": [True] * (rounds[0]["stop"] + 1)}
            answer = wide.post(f"{WIDE}/{rounds[0]['id']}/outputs", outputs)
            learned += answer.json()["status"] == "learned"
        return learned

    with ThreadPoolExecutor(2) as pool:  # so that one of them always waits
        try:
            slow = [pool.submit(decide_and_learn) for _ in range(2)]
            for _ in range(3):
                wait_until_busy(wide)
                assert wide.post(ROUNDS, CONTEXT).status_code == 201
        finally:
            enough.set()
        assert all(one.result() > 0 for one in slow)


# -- how it stops ----------------------------------------------------------------------------------


def wait_until_refused(running: Served) -> None:
    """Wait until nobody can connect."""
    while True:
        try:
            running.connect().close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it was closing just then
            continue


def wait_until_not_ready(running: Served) -> None:
    while running.get("/readyz").status_code == 200:
        pass


def alone(folder: Path, **settings: Any) -> Served:
    """A service that the test itself stops."""
    running = Served(Settings(store=str(folder / "log.db"), port=0, **settings))
    running.wait_until_ready()
    assert running.post(CASCADES, SPEC).status_code == 201
    return running


def test_while_it_drains_it_is_not_ready_and_serves(tmp_path: Path) -> None:
    running = alone(tmp_path, drain=1)
    running.ask_to_stop()
    wait_until_not_ready(running)
    assert running.post(ROUNDS, CONTEXT).status_code == 201
    assert "stopwise_ready 0.0" in running.get("/metrics").text
    wait_until_refused(running)  # by itself, when the second is over
    running.wait_until_stopped()
    running.close()
    with served(tmp_path) as again:
        assert again.get("/v1/cascades/triage").json()["rounds"] == 1


def test_a_second_request_to_stop_ends_the_drain(tmp_path: Path) -> None:
    running = alone(tmp_path, drain=3600)
    running.ask_to_stop()
    wait_until_not_ready(running)
    running.ask_to_stop()
    running.wait_until_stopped()
    wait_until_refused(running)
    running.close()


def test_without_a_drain_it_stops_at_once_and_finishes_what_it_has_begun(wide: Served) -> None:
    with ThreadPoolExecutor(1) as pool, wide.connect() as idle:
        slow = pool.submit(wide.post, f"{WIDE}:batch", BATCH)
        wait_until_busy(wide)
        wide.ask_to_stop()
        wide.wait_until_stopped()
        wait_until_refused(wide)
        assert slow.result().status_code == 201
        assert idle.recv(1) == b""  # a connection that sends nothing does not hold it up


# -- how it fails ----------------------------------------------------------------------------------


def test_once_it_cannot_go_on_readyz_and_the_metric_agree_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = alone(tmp_path)

    async def new_future() -> None:  # so that the failure does not end the server yet
        running.service.failed = running._loop.create_future()

    async def broken(*_: object) -> None:
        raise ValueError("not what a store may raise")

    running.run(new_future())
    monkeypatch.setattr(SqliteStore, "commit", broken)
    assert running.post(ROUNDS, CONTEXT).status_code == 503
    assert running.get("/healthz").status_code == 200
    assert running.get("/readyz").status_code == 503
    assert "stopwise_ready 0.0" in running.get("/metrics").text
    assert running.post(ROUNDS, CONTEXT).status_code == 503
    with pytest.raises(StopwiseError):
        running.close()


BROKEN_COMMIT = """
from stopwise.service.store.sqlite import SqliteStore
commits = SqliteStore.commit
async def commit(self, block):
    if block.base > 1:
        raise ValueError("not what a store may raise")
    await commits(self, block)
SqliteStore.commit = commit
"""
LOST_EVENTS = """
from stopwise.service.store.sqlite import SqliteStore
commits = SqliteStore.commit
async def commit(self, block):
    await commits(self, block)
    await self._rows("DELETE FROM block")
    self._ends_at = None
SqliteStore.commit = commit
"""


@pytest.mark.parametrize("before", [BROKEN_COMMIT, LOST_EVENTS], ids=["error", "damaged log"])
def test_a_process_that_cannot_go_on_ends_with_an_error(tmp_path: Path, before: str) -> None:
    with process(tmp_path, before=before) as server:
        url = server.url
        while httpx.get(f"{url}/readyz").status_code != 200:
            pass
        assert httpx.post(url + CASCADES, json=SPEC).status_code == 201
        assert httpx.post(url + ROUNDS, json=CONTEXT).status_code == 503
        assert server.process.wait(60) == 1
    said = (tmp_path / "stderr.txt").read_text()
    assert "the service cannot go on" in said
    with socket.socket() as line:
        assert line.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0
