"""The service with three empty routes beside it: `python -m benchmarks.service_app`.

``/empty`` reads a body and answers a constant, in raw ASGI. ``/empty-json`` takes the lane that
decisions take, with its checks, counts, and JSON read and written, and does nothing in between.
``/empty-typed`` goes through Litestar and msgspec, as an ordinary route would. Same server, same
loop.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, post

from stopwise.service.http import faults
from stopwise.service.http.app import make_app
from stopwise.service.http.fast import FastLane, Reply
from stopwise.service.http.guard import Guard, Headers
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.store.opening import open_store

BODY = b'{"ok":true}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
]


class Anything(msgspec.Struct):
    context: list[float] = []


class Ok(msgspec.Struct):
    ok: bool = True


_decode = msgspec.json.Decoder(Anything)
_encode = msgspec.json.Encoder().encode


async def empty(service: Service, parts: list[str], headers: Headers, body: bytes) -> Reply:
    del service, parts, headers
    faults.decoded(_decode, body)
    return 200, _encode(Ok())


@post("/empty-typed", status_code=200)
async def typed(data: Anything) -> Ok:
    del data
    return Ok()


class Beside:
    """The service's own application, and the empty routes."""

    def __init__(self, settings: Settings) -> None:
        service = Service(open_store(settings.store), settings)
        self._service = make_app(service, settings)
        self._lane = FastLane(self._service, service, Guard(settings, None), service.journal)
        self._typed: Any = Litestar([typed], openapi_config=None, logging_config=None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path")
        if path == "/empty":
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": BODY})
        elif path == "/empty-json":
            await self._lane.answer(scope, receive, send, "empty", [], empty)
        elif path == "/empty-typed":
            await self._typed(scope, receive, send)
        else:
            await self._service(scope, receive, send)


if __name__ == "__main__":
    store, port = sys.argv[1], int(sys.argv[2])
    uvicorn.run(
        Beside(Settings(store=store, port=port)),
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="auto",
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
    )
