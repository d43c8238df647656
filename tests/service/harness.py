"""Run a service behind its HTTP server on loopback, in a thread or as a process."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from stopwise.service.http.keys import add_key
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.serve import free_address, run_service
from stopwise.service.service import Service
from stopwise.service.settings import Settings

SPEC = {
    "name": "triage",
    "arms": [
        {"name": "history", "cost": 0.01},
        {"name": "glucose", "cost": 0.24},
        {"name": "insulin", "cost": 0.25},
    ],
    "context": ["age", "bmi"],
    "features": {"kind": "polynomial", "degree": 1},
    "policy": {"kind": "uss-pd"},
}
ROUNDS, STAGED = "/v1/cascades/triage/rounds", "/v1/cascades/stages/rounds"
CONTEXT = {"context": [0.2, 0.7]}
JSON = {"Content-Type": "application/json"}
REVEALING = {
    "name": "stages",
    "arms": [
        {"name": "rule", "cost": 0.01},
        {"name": "model", "cost": 0.2},
        {"name": "person", "cost": 0.5},
    ],
    "context": 1,
    "features": {"kind": "polynomial", "degree": 1},
    "policy": {"kind": "uss-laplace", "reveals": 1},
}


class Served:
    """A service that listens on loopback at ``url``; ``service`` is the `Service` object."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._url: Future[str] = Future()
        self._stop_requested = asyncio.Event()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), self._loop)
        self._life.add_done_callback(self._failed)
        self.url = self._url.result(60)
        self.port = int(self.url.rpartition(":")[2])
        # Without verify=False, loading the system certificates takes longer than most tests.
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False, verify=False)

    def _failed(self, life: "Future[None]") -> None:
        if not self._url.done():
            self._url.set_exception(life.exception() or RuntimeError("the service did not listen"))

    async def _live(self) -> None:
        self.service = Service(open_store(self.settings.store), self.settings)
        address = free_address(self.settings)
        await run_service(
            self.service, address, self._stop_requested, listening=self._url.set_result
        )

    def run(self, work: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
        """Run a coroutine on the event loop of the service."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def wait_until_ready(self) -> None:
        async def ready() -> None:
            while not self.service.ready:
                await asyncio.sleep(0.005)

        self.run(ready())

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; ``key`` is an API key, ``repeat`` an Idempotency-Key."""
        headers = dict(options.pop("headers", {}))
        if (key := options.pop("key", None)) is not None:
            headers["Authorization"] = f"Bearer {key}"
        if (repeat := options.pop("repeat", None)) is not None:
            headers["Idempotency-Key"] = repeat
        return self.client.request(method, path, headers=headers, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if json is not None:
            options["json"] = json
        return self.ask("POST", path, **options)

    def connect(self) -> socket.socket:
        """Open a raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask_to_stop(self) -> None:
        """Stop as SIGTERM would."""
        self._loop.call_soon_threadsafe(self._stop_requested.set)

    def wait_until_stopped(self) -> None:
        """Wait until the service has stopped; raise its error, if any."""
        self._life.result(60)

    def close(self) -> None:
        """Stop the service; raise its error, if any."""
        self.ask_to_stop()
        self.client.close()
        try:
            self.wait_until_stopped()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Served]:
    """Serve the log in a folder; serving the folder again continues with the same log."""
    running = Served(Settings(**{"store": str(folder / "log.db"), "port": 0, **settings}))
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.close()


class ServerProcess:
    """``stopwise serve`` as a process that can be killed and restarted.

    ``store`` is the address of the log (None: a file in the folder); ``before`` is Python code to
    run first.
    """

    def __init__(
        self, folder: Path, *flags: str, store: str | None = None, before: str = ""
    ) -> None:
        code = f"{before}\nfrom stopwise.cli.main import main\nmain()"
        self._command = [sys.executable, "-c", code, "serve", "--port", "0"]
        self._command += ["--store", store or str(folder / "log.db"), *flags]
        self._stderr = folder / "stderr.txt"
        self.url = ""

    def start(self) -> str:
        """Start the server; return its URL once it listens (it may still be reading the log)."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "://" in line:
                self.url = next(word for word in line.split() if "://" in word)
                return self.url
        raise AssertionError(f"the server exited without listening: {self.printed}")

    @property
    def printed(self) -> str:
        """The content of stderr since the start."""
        return self._stderr.read_text()

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until the server has read the log; return its state."""
        with httpx.Client(base_url=self.url, trust_env=False, verify=False) as client:
            while (answer := client.get("/v1/state")).status_code != 200:
                assert self.process.poll() is None, self.printed
        return answer.json()

    def end(self, signal_: int = signal.SIGKILL) -> int:
        """Send a signal and wait; return the exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal_)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def process(folder: Path, *flags: str, **options: Any) -> Iterator[ServerProcess]:
    """Run ``stopwise serve`` as a process (see `ServerProcess`)."""
    running = ServerProcess(folder, *flags, **options)
    running.start()
    try:
        yield running
    finally:
        running.end()


def received(line: socket.socket) -> bytes:
    """Receive until the connection is closed; return all bytes."""
    content = b""
    try:
        while part := line.recv(65536):
            content += part
    except ConnectionResetError:  # closed before the server read everything that was sent
        pass
    return content


def keys_in(folder: Path) -> tuple[str, dict[str, str]]:
    """Create a file with a key for each scope; return its path and the keys."""
    file = folder / "keys.jsonl"
    return str(file), {
        scope: add_key(file, scope, [scope])[1] for scope in ("decide", "observe", "admin")
    }


def agrees(received: str, shown: str) -> bool:
    """Compare a response with documentation, ignoring spaces; … in it matches anything."""
    received, shown = (re.sub(r"\s", "", text) for text in (received, shown))
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    return re.fullmatch(pattern, received) is not None


def fault(answer: httpx.Response) -> tuple[int, str]:
    """Check the headers and the form of an error response; return its status and code."""
    assert answer.headers["content-type"] == "application/json", answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert set(body) == {"error"}, body
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "field"}, body
    assert body["error"]["message"], body
    return answer.status_code, body["error"]["code"]
