"""The service with two empty routes: `python -m benchmarks.service_app`.

``/empty`` reads a body and returns a constant. ``/empty-json`` does what every route does: checks,
counting, JSON decoding and encoding.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import uvloop

from stopwise.service.http.app import App
from stopwise.service.http.request import Request
from stopwise.service.http.routes import Reply, Route
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.serve import run_service
from stopwise.service.service import Service
from stopwise.service.settings import Settings


class EmptyRequest(msgspec.Struct):
    context: list[float] = []


class Ok(msgspec.Struct):
    ok: bool = True


async def empty(_app: App, _request: Request) -> Reply:
    return 200, Ok()


class BenchmarkApp(App):
    """The service's application with the empty routes."""

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        if scope.path == "/empty":
            await protocol()
            protocol.response_bytes(200, [("content-type", "application/json")], b'{"ok":true}')
        else:
            await super().__rsgi__(scope, protocol)


async def main(store: str, port: int) -> None:
    settings = Settings(store=store, port=port)
    service = Service(open_store(store), settings)
    app = BenchmarkApp(service, settings)
    route = Route("POST", "/empty-json", empty, "decide", {200: (Ok, "Done.")}, body=EmptyRequest)
    app.add(route.method, route.path, app._handler(route), route.id)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    await run_service(service, ("127.0.0.1", port), stop, listening=lambda _: None, app=app)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
