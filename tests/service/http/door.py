"""A service behind its HTTP application, without a network: real app, real store, real loop."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from stopwise.service.http.app import make_app
from stopwise.service.keys import add_key
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.store.opening import open_store

ADDRESS = "http://127.0.0.1:8350"

SPEC = {
    "name": "triage",
    "arms": [
        {"name": "history", "cost": 0.01},
        {"name": "glucose", "cost": 0.24},
        {"name": "insulin", "cost": 0.25},
    ],
    "context": ["age", "bmi"],
}
REVEALING = {
    "name": "stages",
    "arms": [
        {"name": "rule", "cost": 0.01},
        {"name": "model", "cost": 0.2},
        {"name": "person", "cost": 0.5},
    ],
    "context": 3,
    "features": {
        "kind": "per_stage",
        "maps": [{"kind": "polynomial", "degree": 1}] * 2,
        "sees": [2, 3],  # one number from the start, and one from each of the first two arms
    },
}


class Door:
    """An application, started in a thread of its own; requests go straight into it."""

    def __init__(self, settings: Settings, wrap: Callable[[Any], Any] = lambda app: app) -> None:
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self._said: dict[str, Future[str]] = {"startup": Future(), "shutdown": Future()}
        self._stop = asyncio.Event()
        self._life = asyncio.run_coroutine_threadsafe(self._live(wrap), self._loop)
        assert self._said["startup"].result(30) == "complete"

    async def _live(self, wrap: Callable[[Any], Any]) -> None:
        self.service = Service(open_store(self.settings.store), self.settings)
        self.app = wrap(make_app(self.service, self.settings))
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url=ADDRESS)
        told = iter([{"type": "lifespan.startup"}])

        async def receive() -> dict[str, str]:
            for message in told:
                return message
            await self._stop.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: dict[str, str]) -> None:
            _, phase, outcome = message["type"].split(".")
            self._said[phase].set_result(outcome)

        await self.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    def run(self, work: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
        """Do something on the service's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def wait_until_ready(self) -> None:
        async def ready() -> None:
            while not self.service.ready:
                await asyncio.sleep(0.005)

        self.run(ready())

    def ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        """Send a request; ``key`` is an API key, ``repeat`` an Idempotency-Key."""
        headers = dict(how.pop("headers", {}))
        if (key := how.pop("key", None)) is not None:
            headers["Authorization"] = f"Bearer {key}"
        if (repeat := how.pop("repeat", None)) is not None:
            headers["Idempotency-Key"] = repeat
        return self.run(self._client.request(method, path, headers=headers, **how))

    async def raw(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        parts: Sequence[bytes] = (b"",),
        *,
        whole: bool = True,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as a server hands it on, its body in parts; on the service's own loop.

        If the parts are not the ``whole`` body, the connection is lost after them.
        """
        given = {"host": "127.0.0.1:8350", **(headers or {})}
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        messages[-1]["more_body"] = not whole
        waiting = iter(messages)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return next(waiting, {"type": "http.disconnect"})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8350),
            "state": {},
        }
        await self.app(scope, receive, send)
        self.left_unread = len(list(waiting))
        start, *rest = sent
        told = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return start["status"], told, b"".join(message.get("body", b"") for message in rest)

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self.ask("GET", path, **how)

    def post(self, path: str, json: Any = None, **how: Any) -> httpx.Response:
        if json is not None:
            how["json"] = json
        return self.ask("POST", path, **how)

    def close(self) -> None:
        """Stop the application, as a server would."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._life.result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self._said["shutdown"].result(0) == "complete"


@contextmanager
def opened(
    folder: Path, wrap: Callable[[Any], Any] = lambda app: app, **settings: Any
) -> Iterator[Door]:
    """Open a door to a log in a folder; the same folder again gives the same log."""
    door = Door(Settings(**{"store": str(folder / "log.db"), **settings}), wrap)
    try:
        door.wait_until_ready()
        yield door
    finally:
        door.close()


def keys_in(folder: Path) -> tuple[str, dict[str, str]]:
    """Make a file of keys, one for each scope; return its path and the keys."""
    file = folder / "keys.jsonl"
    return str(file), {
        scope: add_key(file, scope, [scope])[1] for scope in ("decide", "observe", "admin")
    }


def fault(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of a refusal, having checked that it has the one shape of them all."""
    assert answer.headers["content-type"] == "application/json", answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert set(body) == {"error"}, body
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "field"}, body
    assert body["error"]["message"], body
    return answer.status_code, body["error"]["code"]
