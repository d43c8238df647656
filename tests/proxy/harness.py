"""A proxy in front of real upstreams on loopback, in a thread of the test or as a process."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from examples.proxy_upstreams import Handler, Upstream
from stopwise.proxy.app import ProxyApp
from stopwise.proxy.config import load_config
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.serve import free_address, run_service
from stopwise.service.service import Service
from tests.service.harness import Served, ServerProcess

TICKET = "hello the invoice is wrong thanks"
MESSAGES: list[Any] = [{"role": "user", "content": TICKET}]
TOOL: Any = {"type": "function", "function": {"name": "sort", "parameters": {"type": "object"}}}


class Misbehaving(Upstream):
    """An upstream that does not answer as it should; the model that is asked for says how."""

    def __init__(self) -> None:
        super().__init__(lambda text: ("account", -0.1))
        self.RequestHandlerClass = MisbehavingHandler
        self.released = threading.Event()

    def close(self) -> None:
        self.released.set()
        super().close()


class MisbehavingHandler(Handler):
    server: Misbehaving

    def answer(self, request: dict[str, Any]) -> None:
        how = request["model"]
        error = {"error": {"message": f"it is {how}", "type": "x", "param": None, "code": None}}
        if how == "hang":
            self.server.released.wait()
        elif how in {"500", "429", "400", "401"}:
            self.reply(int(how), json.dumps(error).encode())
        elif how == "rubbish":
            self.reply(200, b"<html>oops</html>", "text/html")
        elif how == "empty":
            self.reply(200, b'{"choices": []}')
        elif how == "half" and request.get("stream"):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", "1000000")
            self.end_headers()
            chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "acc"}}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.close_connection = True
        elif how in {"half", "gone"}:
            self.close_connection = True  # without a word
        else:
            super().answer(request)


class Scripted(Upstream):
    """An upstream that sends given bytes; the model that is asked for names the reply."""

    def __init__(self) -> None:
        super().__init__(lambda text: ("account", -0.1))
        self.RequestHandlerClass = ScriptedHandler
        self.replies: dict[str, tuple[int, bytes, str]] = {}

    def add(self, name: str, body: bytes, *, status: int = 200, stream: bool = False) -> None:
        """Add a reply under a name."""
        kind = "text/event-stream" if stream else "application/json"
        self.replies[name] = status, body, kind


class ScriptedHandler(Handler):
    server: Scripted

    def answer(self, request: dict[str, Any]) -> None:
        self.reply(*self.server.replies[request["model"]])


class Proxied(Served):
    """A proxy that listens on loopback, at ``url``."""

    def __init__(self, file: Path) -> None:
        self.config = load_config(file, {})
        super().__init__(self.config.settings)

    async def _live(self) -> None:
        self.service = Service(open_store(self.settings.store), self.settings)
        self.app = ProxyApp(self.service, self.settings, self.config)
        address = free_address(self.settings)
        listening = self._url.set_result
        await run_service(self.service, address, self._asked, listening, self.app)

    def wait_until_ready(self) -> None:
        async def ready() -> None:
            made = self.app.cascades.keys()
            while not self.service.ready or self.service.state.cascades.keys() < made:
                await asyncio.sleep(0.005)

        self.run(ready())

    def counted(self, what: str) -> int:
        return sum(n for (_, one), n in self.service.counters.proxy.items() if one == what)

    def wait_for(self, what: str, count: int) -> None:
        """Wait until something was counted that often."""

        async def reached() -> None:
            while self.counted(what) < count:
                await asyncio.sleep(0.005)

        self.run(reached())

    def ask_for(self, body: dict[str, Any] | None = None, **more: Any) -> httpx.Response:
        request = {"model": "tickets", "messages": MESSAGES, **(body or {})}
        return self.post("/v1/chat/completions", request, **more)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def write_config(
    folder: Path, stages: list[dict[str, Any]] | dict[str, list[dict[str, Any]]], **cascade: Any
) -> Path:
    """Write a configuration of "tickets", or of several cascades with their names.

    Keys with "service_" are settings, and those with "limits_" are limits.
    """
    tables: dict[str, dict[str, Any]] = {
        "service": {"port": 0, "store": str(folder / "proxy.db"), "log_level": "error"},
        "limits": {},
        "cascade": {},
    }
    for key, value in cascade.items():
        table, _, name = key.partition("_")
        known = table in tables
        tables[table if known else "cascade"][name if known else key] = value
    fields = tables.pop("cascade")
    lines: list[str] = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{name} = {toml(value)}" for name, value in values.items())]
    for name, some in (stages if isinstance(stages, dict) else {"tickets": stages}).items():
        lines += ["[[cascade]]", f'name = "{name}"']
        lines += [f"{key} = {toml(value)}" for key, value in fields.items()]
        for stage in some:
            lines += ["[[cascade.stage]]", *(f"{key} = {toml(one)}" for key, one in stage.items())]
    file = folder / "proxy.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def stages(models: list[Upstream], *costs: float) -> list[dict[str, Any]]:
    """Return the three stages with real models behind them."""
    names = ("keywords", "words", "phrases")
    return [stage(*one) for one in zip(names, models, costs or (0.005, 0.08, 0.25), strict=True)]


def stage(name: str, upstream: Upstream, cost: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": upstream.url, "model": name, "cost": cost, **more}


@contextmanager
def proxied(folder: Path, stages: Any, **cascade: Any) -> Iterator[Proxied]:
    running = Proxied(write_config(folder, stages, **cascade))
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.close()


class ProxyProcess(ServerProcess):
    """``stopwise proxy`` as a process."""

    def __init__(self, file: Path) -> None:
        super().__init__(file.parent)
        self._command = [*self._command[:3], "proxy", str(file)]
