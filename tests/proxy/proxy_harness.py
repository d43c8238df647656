"""A proxy in front of upstreams on loopback, in a thread of the test or as a process."""

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


class FaultyUpstream(Upstream):
    """An upstream that fails; the requested model selects how."""

    def __init__(self) -> None:
        super().__init__(lambda text: ("account", -0.1))
        self.RequestHandlerClass = FaultyHandler
        self.released = threading.Event()

    def close(self) -> None:
        self.released.set()
        super().close()


class FaultyHandler(Handler):
    server: FaultyUpstream

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
            self.close_connection = True  # without a response
        else:
            super().answer(request)


class ScriptedUpstream(Upstream):
    """An upstream with fixed replies; the requested model selects one."""

    def __init__(self) -> None:
        super().__init__(lambda text: ("account", -0.1))
        self.RequestHandlerClass = ScriptedHandler
        self.replies: dict[str, tuple[int, bytes, str]] = {}

    def add(self, name: str, body: bytes, *, status: int = 200, stream: bool = False) -> None:
        """Add the reply for a model."""
        kind = "text/event-stream" if stream else "application/json"
        self.replies[name] = status, body, kind


class ScriptedHandler(Handler):
    server: ScriptedUpstream

    def answer(self, request: dict[str, Any]) -> None:
        self.reply(*self.server.replies[request["model"]])


class RunningProxy(Served):
    """A proxy on loopback, at ``url``, in a thread of the test."""

    def __init__(self, file: Path) -> None:
        self.config = load_config(file, {})
        super().__init__(self.config.settings)

    async def _live(self) -> None:
        self.service = Service(open_store(self.settings.store), self.settings)
        self.app = ProxyApp(self.service, self.settings, self.config)
        address = free_address(self.settings)
        listening = self._url.set_result
        await run_service(self.service, address, self._stop_requested, listening, self.app)

    def wait_until_ready(self) -> None:
        async def ready() -> None:
            expected = self.app.cascades.keys()
            while not self.service.ready or self.service.state.cascades.keys() < expected:
                await asyncio.sleep(0.005)

        self.run(ready())

    def event_count(self, event: str) -> int:
        counts = self.service.counters.proxy.items()
        return sum(count for (_, name), count in counts if name == event)

    def wait_for(self, event: str, count: int) -> None:
        """Wait until an event was counted this often."""

        async def reached() -> None:
            while self.event_count(event) < count:
                await asyncio.sleep(0.005)

        self.run(reached())

    def chat(self, body: dict[str, Any] | None = None, **more: Any) -> httpx.Response:
        request = {"model": "tickets", "messages": MESSAGES, **(body or {})}
        return self.post("/v1/chat/completions", request, **more)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)


def write_config(
    folder: Path, stages: list[dict[str, Any]] | dict[str, list[dict[str, Any]]], **cascade: Any
) -> Path:
    """Write the configuration of the cascade "tickets", or of several cascades by name.

    Keys with the prefix "service_" go to [service], those with "limits_" to [limits].
    """
    tables: dict[str, dict[str, Any]] = {
        "service": {"port": 0, "store": str(folder / "proxy.db"), "log_level": "error"},
        "limits": {},
        "cascade": {},
    }
    for key, value in cascade.items():
        table, _, name = key.partition("_")
        if table in tables:
            tables[table][name] = value
        else:
            tables["cascade"][key] = value
    fields = tables.pop("cascade")
    lines: list[str] = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{name} = {toml(value)}" for name, value in values.items())]
    for name, stages_ in (stages if isinstance(stages, dict) else {"tickets": stages}).items():
        lines += ["[[cascade]]", f'name = "{name}"']
        lines += [f"{key} = {toml(value)}" for key, value in fields.items()]
        for stage in stages_:
            lines.append("[[cascade.stage]]")
            lines += [f"{key} = {toml(value)}" for key, value in stage.items()]
    file = folder / "proxy.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def stages(models: list[Upstream], *costs: float) -> list[dict[str, Any]]:
    """Return the three stages with real models."""
    names = ("keywords", "words", "phrases")
    costs = costs or (0.005, 0.08, 0.25)
    return [
        stage(name, model, cost) for name, model, cost in zip(names, models, costs, strict=True)
    ]


def stage(name: str, upstream: Upstream, cost: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": upstream.url, "model": name, "cost": cost, **more}


@contextmanager
def running_proxy(folder: Path, stages: Any, **cascade: Any) -> Iterator[RunningProxy]:
    running = RunningProxy(write_config(folder, stages, **cascade))
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
