"""``stopwise serve`` and ``stopwise keys``: real processes, a real port, real signals."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Run

PATIENCE = 120.0  # seconds: the machine may be busy
CASCADE = {
    "name": "triage",
    "arms": [{"name": "history", "cost": 0.01}, {"name": "glucose", "cost": 0.24}],
    "context": ["age", "bmi"],
}


class Process:
    """``stopwise serve`` on a free port."""

    def __init__(self, folder: Path, *words: str, **more: str) -> None:
        self._lines: list[str] = []
        environment = {**os.environ, **more}
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        self.errors = folder / "stderr.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stopwise", "serve", "--port", "0", *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment,
            )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://\S+", self.said)
        assert found, self.said + self.errors.read_text()
        self.url = found[0]

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def ready(self) -> "Process":
        ends = time.monotonic() + PATIENCE
        with self.client() as client:
            while client.get("/readyz").status_code != 200:
                assert time.monotonic() < ends, client.get("/readyz").text
                time.sleep(0.05)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.errors.read_text().splitlines()]


Serve = Callable[..., Process]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Process] = []

    def start(*words: str, **more: str) -> Process:
        started.append(Process(tmp_path, *words, **more))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


def test_it_starts_answers_stops_and_goes_on(serve: Serve, tmp_path: Path) -> None:
    first = serve().ready()
    assert "no keys are asked for" in first.said
    with first.client() as client:
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/cascades", json=CASCADE).status_code == 201
        answer = client.post("/v1/cascades/triage/rounds", json={"context": [0.2, 0.7]})
        assert answer.status_code == 201
        metrics = client.get("/metrics").text
        assert 'stopwise_requests_total{route="open_round",status="201"} 1.0' in metrics
        before = client.get("/v1/state").json()
        # the connection is kept open: stopping must not wait for it
        assert first.stop(signal.SIGTERM) == 0
    assert stat.S_IMODE((tmp_path / "stopwise.db").stat().st_mode) == 0o600
    told = [line["what"] for line in first.journal()]
    assert {"listens", "ready"} <= set(told)
    assert told[-1] == "stopped"
    assert not any(line["what"] == "request" and line["status"] < 400 for line in first.journal())

    second = serve().ready()
    with second.client() as client:
        assert client.get("/v1/state").json() == before
        path = f"/v1/cascades/triage/rounds/{answer.json()['id']}/outputs"
        outputs: list[int] = [1, 0][: answer.json()["stop"] + 1]
        assert client.post(path, json={"outputs": outputs}).json()["status"] == "learned"
    assert second.stop(signal.SIGINT) == 0


def test_a_stop_under_load_answers_what_it_has_taken(serve: Serve) -> None:
    """Whoever got an answer finds it in the log, and nobody got half of one."""
    running = serve().ready()
    acknowledged: list[str] = []
    odd: list[object] = []
    with running.client() as client:
        client.post("/v1/cascades", json=CASCADE)

    def ask() -> None:
        with running.client() as client:
            while True:
                try:
                    answer = client.post("/v1/cascades/triage/rounds", json={"context": [0.2, 0.7]})
                except httpx.TransportError:  # the door is closed
                    return
                if answer.status_code == 503:
                    return
                if answer.status_code != 201:
                    odd.append(answer.text)
                acknowledged.append(answer.json()["id"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert running.stop() == 0
    for thread in threads:
        thread.join(PATIENCE)
    assert not odd
    assert acknowledged
    with serve().ready().client() as client:
        assert client.get("/v1/cascades/triage").json()["rounds"] >= len(acknowledged)
        assert len(set(acknowledged)) == len(acknowledged)
        for id_ in (acknowledged[0], acknowledged[-1]):
            assert client.get(f"/v1/cascades/triage/rounds/{id_}").status_code == 200


def test_it_says_when_it_is_ready(serve: Serve) -> None:
    running = serve().ready()
    assert running.process.stdout is not None
    lines = iter(running.process.stdout.readline, "")
    assert "Ready.\n" in lines
    assert running.stop() == 0


def test_a_request_that_does_not_end_is_told_that_the_service_stops(serve: Serve) -> None:
    running = serve("--stop-timeout", "0.5").ready()
    place = httpx.URL(running.url)
    with socket.create_connection((place.host, place.port or 0), timeout=PATIENCE) as line:
        line.sendall(
            b"POST /v1/cascades/triage/rounds HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 40\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert line.recv(65536).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        assert running.stop() == 0
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'{"error":{"code":"unavailable"' in answer


@pytest.mark.parametrize("page", ["docs/service.md", "README.md"])
def test_the_first_round_of_the_docs(serve: Serve, page: str) -> None:
    """The commands of a page, as they are there, but for the address."""
    text = (Path(__file__).parents[2] / page).read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    running = serve().ready()
    script = "\n".join(block for kind, block in blocks if kind in ("", "sh") and "curl " in block)
    script = re.sub(r"(http://127\.0\.0\.1|localhost):8350", running.url, script)
    done = subprocess.run(
        ["bash", "-e", "-c", script], capture_output=True, check=True, text=True, timeout=PATIENCE
    )
    answers: list[Any] = []
    rest = done.stdout.strip()
    while rest:
        answer, end = json.JSONDecoder().raw_decode(rest)
        answers.append(answer)
        rest = rest[end:].strip()
    assert [answer["status"] for answer in answers] == ["active", "open", "learned"]
    assert all(json.loads(block) in answers for kind, block in blocks if kind == "json")


def test_keys_from_nothing_to_revoked(serve: Serve, stopwise: Run) -> None:
    made = stopwise("keys", "add", "--name", "triage", "--scope", "admin", "--expires", "1d")
    key = made.stdout.strip()
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}", key)
    assert key not in made.stderr
    other = stopwise("keys", "add", "--name", "dash[board]", "--scope", "decide").stdout.strip()
    listed = stopwise("keys", "list").stdout
    assert "triage" in listed
    assert "dash[board]" in listed
    assert key.split("_", 2)[2] not in listed
    running = serve("--host", "0.0.0.0", "--keys", "keys.jsonl", "--log-requests", "all")
    running.url = running.url.replace("0.0.0.0", "127.0.0.1")
    assert "; Ctrl-C stops it" in running.said
    assert "no keys" not in running.said
    running.ready()
    with running.client() as nobody:
        assert nobody.get("/v1/cascades").status_code == 401
        assert nobody.get("/healthz").status_code == 200
    with running.client(key) as admin, running.client(other) as decider:
        assert admin.post("/v1/cascades", json=CASCADE).status_code == 201
        assert decider.post("/v1/cascades", json=CASCADE).status_code == 403
        asked = {"context": [0.2, 0.7]}
        assert decider.post("/v1/cascades/triage/rounds", json=asked).status_code == 201
        revoked = stopwise("keys", "revoke", other.split("_")[1])
        assert revoked.returncode == 0
        ends = time.monotonic() + PATIENCE
        while decider.get("/v1/cascades").status_code != 401:
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert admin.get("/v1/cascades").status_code == 200
    assert running.stop() == 0
    told = running.errors.read_text()
    assert key.split("_", 2)[2] not in told
    assert other.split("_", 2)[2] not in told
    keys_used = {line.get("key") for line in running.journal() if line["what"] == "request"}
    assert {key.split("_")[1], other.split("_")[1]} <= keys_used


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_it_does_not_listen_to_everybody_without_keys(stopwise: Run, host: str) -> None:
    done = stopwise("serve", "--host", host)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "stopwise keys add" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", ["", None])
def test_a_file_without_a_valid_key_is_not_enough(
    stopwise: Run, tmp_path: Path, content: str | None
) -> None:
    """An empty file, and one whose only key is over."""
    file = tmp_path / "keys.jsonl"
    if content is None:
        stopwise("keys", "add", "--name", "guest", "--scope", "decide", "--expires", "1m")
        key = json.loads(file.read_text())
        file.write_text(json.dumps(key | {"expires": 1.0}) + "\n")
    else:
        file.write_text(content)
        file.chmod(0o600)
    done = stopwise("serve", "--host", "0.0.0.0", "--keys", "keys.jsonl")
    assert done.returncode == 2
    assert "no key that is valid" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_in_use_is_a_sentence(stopwise: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = stopwise("serve", "--port", port)
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--store", "no/such/folder/log.db"), "no/such/folder/log.db"),
        (("--store", "postgresql://me:hush@127.0.0.1:1/stopwise"), "127.0.0.1"),
    ],
)
def test_a_store_that_cannot_be_opened_is_a_sentence(
    stopwise: Run, words: tuple[str, ...], named: str
) -> None:
    done = stopwise("serve", "--port", "0", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("stopwise: ")
    assert named in done.stderr
    assert "hush" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_no_log_is_left_alone(stopwise: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("my notes, and not a database\n" * 20)
    done = stopwise("serve", "--port", "0", "--store", "notes.db")
    assert done.returncode == 1
    assert "notes.db" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "notes.db").read_text() == "my notes, and not a database\n" * 20


def test_a_log_that_is_served_already_is_a_sentence(serve: Serve, stopwise: Run) -> None:
    serve().ready()
    done = stopwise("serve", "--port", "0")
    assert done.returncode == 1
    assert re.search(r"another process serves \S*stopwise\.db", done.stderr)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "more", "named"),
    [
        (("--port", "many"), {}, "--port is 'many'"),
        (("--log-format", "xml"), {}, "--log-format is 'xml'"),
        ((), {"STOPWISE_MAX_BATCH": "0"}, "STOPWISE_MAX_BATCH is '0'"),
        ((), {"STOPWISE_MAX_BATHC": "5"}, "did you mean STOPWISE_MAX_BATCH?"),
        (("--config", "nowhere.toml"), {}, "nowhere.toml"),
        ((), {"STOPWISE_CONFIG": "nowhere.toml"}, "nowhere.toml"),
        (("--keys", "nowhere.jsonl"), {}, "nowhere.jsonl"),
        (("--host", "no such host"), {}, "no such host"),
    ],
)
def test_bad_settings_are_a_sentence(
    stopwise: Run, words: tuple[str, ...], more: dict[str, str], named: str
) -> None:
    done = stopwise("serve", *words, **more)
    assert done.returncode == 2
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_settings_come_from_all_sources(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "stopwise.toml").write_text('store = "from-file.db"\nmax_batch = 2\n')
    more = {"STOPWISE_MAX_BATCH": "3", "STOPWISE_LOG_FORMAT": "json"}
    running = serve("--config", "stopwise.toml", "--log-format", "text", **more).ready()
    with running.client() as client:
        client.post("/v1/cascades", json=CASCADE)
        path = "/v1/cascades/triage/rounds:batch"
        assert client.post(path, json={"contexts": [[0.1, 0.2]] * 3}).status_code == 201
        assert client.post(path, json={"contexts": [[0.1, 0.2]] * 4}).status_code == 413
    assert (tmp_path / "from-file.db").exists()
    assert running.stop() == 0
    assert "INFO    listens url=http://" in running.errors.read_text()


def test_help_teaches_and_lists_every_setting(stopwise: Run) -> None:
    from stopwise.service.settings import SETTINGS

    done = stopwise("serve", "--help", COLUMNS="200")
    assert done.returncode == 0
    assert "stopwise keys add" in done.stdout
    for row in SETTINGS.values():
        if row.flag:
            assert re.search(rf"{row.flag}\s", done.stdout), row.flag


def test_a_key_that_cannot_be_made_is_a_sentence(stopwise: Run, tmp_path: Path) -> None:
    for words in (
        ("--name", "x", "--scope", "root"),
        ("--name", "x", "--scope", "decide", "--expires", "soon"),
        ("--name", "", "--scope", "decide"),
    ):
        done = stopwise("keys", "add", *words)
        assert done.returncode == 2
        assert done.stderr.startswith("stopwise: ")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "keys.jsonl").exists()
