"""SIGHUP reloads the API keys of a real process; an invalid file keeps the old ones."""

import json
import signal
from pathlib import Path
from typing import Any

import httpx

from stopwise.service.http.keys import add_key, revoke_key
from tests.research.campaigns import wait_until
from tests.service.harness import ServerProcess, process

# Without periodic reloads, only the signal can cause one.
NEVER = "import stopwise.service.http.keys as keys; keys.RELOAD_EVERY = 1e9"


def lines(running: ServerProcess, what: str) -> list[dict[str, Any]]:
    written = running.printed.rpartition("\n")[0].splitlines()
    return [line for line in map(json.loads, written) if line["what"].startswith(what)]


def test_sighup_reloads_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    first, old = add_key(file, "first", ["admin"])
    with process(tmp_path, "--keys", str(file), before=NEVER) as running:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=60) as client:

            def status(key: str) -> int:
                headers = {"Authorization": f"Bearer {key}"}
                return client.get("/openapi.json", headers=headers).status_code

            _, new = add_key(file, "second", ["read"])
            add_key(file, "third", ["read"])
            revoke_key(file, first.id)
            assert (status(old), status(new)) == (200, 401)
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(lines(running, "keys reloaded")) == 1)
            assert lines(running, "keys reloaded")[0]["keys"] == 2
            assert (status(old), status(new)) == (401, 200)

            good = file.read_bytes()
            file.write_bytes(b"rubbish\n")
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(lines(running, "cannot reload the API keys")) == 1)
            (problem,) = lines(running, "cannot reload the API keys")
            assert problem["level"] == "error"
            assert "line 1" in problem["reason"]
            assert "rubbish" not in problem["reason"]
            assert status(new) == 200

            file.write_bytes(good)
            running.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(lines(running, "keys reloaded")) == 2)
            assert status(new) == 200
        assert running.end(signal.SIGTERM) == 0
