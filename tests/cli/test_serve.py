"""``stopwise serve`` as a process: signals, settings, keys and usage errors."""

import json
import re
import signal
import socket
import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from stopwise.service.settings import SETTINGS
from tests.cli.conftest import Run
from tests.research.campaigns import wait_until
from tests.service.harness import CONTEXT, ROUNDS, SPEC, process, received, served

TIMEOUT = 120.0  # seconds; the machine may be busy


def connected(url: str, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(
        base_url=url, headers=headers, timeout=TIMEOUT, trust_env=False, verify=False
    )


def test_a_restart_continues_from_the_stored_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stopwise.toml").write_text("max_batch = 2\n")
    monkeypatch.setenv("STOPWISE_MAX_BATCH", "3")
    monkeypatch.setenv("STOPWISE_LOG_LEVEL", "error")
    flags = ("--config", str(tmp_path / "stopwise.toml"), "--log-level", "info")
    with process(tmp_path, *flags) as first:
        first.wait_until_ready()
        with connected(first.url) as client:
            assert client.get("/healthz").status_code == 200
            assert client.post("/v1/cascades", json=SPEC).status_code == 201
            answer = client.post(ROUNDS, json=CONTEXT).json()
            for n, status in (
                (3, 201),
                (4, 413),
            ):  # the flag, not the variable or file
                batch = {"contexts": [[0.1, 0.2]] * n}
                assert client.post(f"{ROUNDS}:batch", json=batch).status_code == status
            before = client.get("/v1/state").json()
            # Stopping must not wait for this idle connection.
            assert first.end(signal.SIGTERM) == 0
    assert stat.S_IMODE((tmp_path / "log.db").stat().st_mode) == 0o600
    journal = [json.loads(line) for line in first.printed.splitlines()]
    assert {"listening", "ready"} <= {line["what"] for line in journal}
    assert journal[-1]["what"] == "stopped"
    assert [line["status"] for line in journal if line["what"] == "request"] == [413]

    with process(tmp_path) as second:
        assert second.wait_until_ready() == before
        with connected(second.url) as client:
            path = f"{ROUNDS}/{answer['id']}/outputs"
            outputs = [1, 0, 1][: answer["stop"] + 1]
            assert client.post(path, json={"outputs": outputs}).json()["status"] == "learned"
        assert second.end(signal.SIGINT) == 0


def test_a_stop_under_load_loses_no_acknowledged_round(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    last: list[int] = []

    def ask(url: str) -> None:
        with connected(url) as client, suppress(httpx.TransportError):  # it listens no more
            while (answer := client.post(ROUNDS, json=CONTEXT)).status_code == 201:
                acknowledged.append(answer.json()["id"])
            last.append(answer.status_code)

    with process(tmp_path) as running:
        running.wait_until_ready()
        with connected(running.url) as client:
            client.post("/v1/cascades", json=SPEC)
        threads = [threading.Thread(target=ask, args=(running.url,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acknowledged) >= 100 or bool(last))
        assert running.end(signal.SIGTERM) == 0
        for thread in threads:
            thread.join(TIMEOUT)
    assert set(last) <= {503}
    assert len(set(acknowledged)) == len(acknowledged)
    with served(tmp_path) as again:
        assert again.get("/v1/cascades/triage").json()["rounds"] >= len(acknowledged)
        for id_ in (acknowledged[0], acknowledged[-1]):
            assert again.get(f"{ROUNDS}/{id_}").status_code == 200


def test_a_request_that_does_not_end_gets_503(tmp_path: Path) -> None:
    with process(tmp_path, "--stop-timeout", "0.5") as running:
        running.wait_until_ready()
        place = httpx.URL(running.url)
        connection = socket.create_connection((place.host, place.port or 0), timeout=TIMEOUT)
        connection.sendall(
            b"POST /v1/cascades/triage/rounds HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 40\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        assert running.end(signal.SIGTERM) == 0
        answer = received(connection)
        connection.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'{"error":{"code":"unavailable"' in answer


def test_the_commands_of_the_service_page_work(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/service.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    script = "\n".join(block for kind, block in blocks if kind in ("", "sh") and "curl " in block)
    with served(tmp_path) as running:
        script = re.sub(r"(http://127\.0\.0\.1|localhost):8350", running.url, script)
        command = ["bash", "-e", "-c", script]
        done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=TIMEOUT)
    bodies = re.sub(r"}\s*{", "}\n\n{", done.stdout).split("\n\n")
    answers = [json.loads(body) for body in bodies]
    assert [answer["status"] for answer in answers] == ["active", "open", "learned"]
    assert all(json.loads(block) in answers for kind, block in blocks if kind == "json")


def test_a_service_with_keys_accepts_any_host(stopwise: Run, tmp_path: Path) -> None:
    key = stopwise("keys", "add", "--name", "me", "--scope", "admin").stdout.strip()
    _, id_, secret = key.split("_", 2)
    flags = ("--host", "0.0.0.0", "--keys", str(tmp_path / "keys.jsonl"), "--log-requests", "all")
    with process(tmp_path, *flags) as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        with connected(url) as anonymous, connected(url, key) as admin:
            wait_until(lambda: anonymous.get("/readyz").status_code == 200)
            assert anonymous.get("/v1/cascades").status_code == 401
            assert admin.post("/v1/cascades", json=SPEC).status_code == 201
            assert stopwise("keys", "revoke", id_).returncode == 0
            wait_until(lambda: admin.get("/v1/cascades").status_code == 401)
        assert running.end(signal.SIGTERM) == 0
    journal = [json.loads(line) for line in running.printed.splitlines()]
    assert id_ in {line.get("key") for line in journal if line["what"] == "request"}
    assert secret not in running.printed


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("keys", [(), ("--keys", "keys.jsonl"), ("--keys", "empty.jsonl")])
def test_a_public_host_requires_a_valid_key(
    stopwise: Run, tmp_path: Path, host: str, keys: tuple[str, ...]
) -> None:
    stopwise("keys", "add", "--name", "guest", "--expires", "1m")
    file = tmp_path / "keys.jsonl"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires": 1.0}) + "\n")
    (tmp_path / "empty.jsonl").touch()
    result = stopwise("serve", "--host", host, *keys)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert "stopwise keys add" in result.stderr
    assert not keys or f"{keys[1]} has no valid key" in result.stderr


def check_one_line(result: subprocess.CompletedProcess[str], code: int, message: str) -> None:
    assert (result.returncode, len(result.stderr.splitlines())) == (code, 1), result.stderr
    assert result.stderr.startswith("stopwise: ")
    assert message in result.stderr


def test_a_used_port_is_reported(stopwise: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        check_one_line(stopwise("serve", "--port", port), 1, f"port {port}")


def test_a_log_in_use_is_reported(stopwise: Run, tmp_path: Path) -> None:
    with served(tmp_path):
        result = stopwise("serve", "--port", "0", "--store", "log.db")
    check_one_line(result, 1, "another process is already serving")


def test_a_file_that_is_not_a_store_is_reported_and_unchanged(
    stopwise: Run, tmp_path: Path
) -> None:
    notes = "my notes, and not a database\n" * 20
    (tmp_path / "notes.db").write_text(notes)
    check_one_line(stopwise("serve", "--port", "0", "--store", "notes.db"), 1, "notes.db")
    assert (tmp_path / "notes.db").read_text() == notes


def test_an_unreachable_database_is_reported_without_its_password(stopwise: Run) -> None:
    address = "postgresql://me:hush@127.0.0.1:1/x"
    result = stopwise("serve", "--port", "0", "--store", address)
    check_one_line(result, 1, "127.0.0.1")
    assert "hush" not in result.stderr


@pytest.mark.parametrize(
    ("code", "options", "variables", "message"),
    [
        (1, ("--port", "0", "--store", "no/such/log.db"), {}, "no/such/log.db"),
        (2, ("--port", "many"), {}, "--port must be an integer, got 'many'"),
        (2, (), {"STOPWISE_MAX_BATHC": "5"}, "did you mean 'max_batch'?"),
        (2, (), {"STOPWISE_CONFIG": "nowhere.toml"}, "nowhere.toml"),
        (2, ("--keys", "nowhere.jsonl"), {}, "nowhere.jsonl"),
        (2, ("--host", "no such host"), {}, "cannot resolve host 'no such host'"),
    ],
)
def test_a_failed_start_prints_one_line(
    stopwise: Run, code: int, options: tuple[str, ...], variables: dict[str, str], message: str
) -> None:
    check_one_line(stopwise("serve", *options, **variables), code, message)


def test_help_lists_every_setting(stopwise: Run) -> None:
    done = stopwise("serve", "--help", COLUMNS="200")
    assert done.returncode == 0
    assert not [
        name for name in SETTINGS if not re.search(rf"--{name.replace('_', '-')}\s", done.stdout)
    ]
