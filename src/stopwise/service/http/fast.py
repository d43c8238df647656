"""The hot lane: decisions and outputs, answered before any framework wakes up.

The same guard, bodies, commands and answers as the routes behind it have (a test compares them);
what is saved is the way there. Whatever is not exactly a hot route is passed on.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.service.commands import Decide, Tell
from stopwise.service.http import faults
from stopwise.service.http.guard import SAFE, Guard, Headers, idempotency_key, request_id
from stopwise.service.journal import Journal
from stopwise.service.keys import Scope as KeyScope
from stopwise.service.messages import (
    BatchAnswer,
    BatchRequest,
    DecisionAnswer,
    DecisionRequest,
    OutputsRequest,
)
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Reply: TypeAlias = tuple[int, bytes]
Told: TypeAlias = tuple[str | list[DecisionAnswer], bool]

BEGINNING = "/v1/cascades/"
CREATED, OK = 201, 200

_encode = msgspec.json.Encoder().encode
_decision = msgspec.json.Decoder(DecisionRequest)
_batch = msgspec.json.Decoder(BatchRequest)
_outputs = msgspec.json.Decoder(OutputsRequest)


class FastLane:
    """Answers the hot routes itself, and passes everything else on.

    Parameters
    ----------
    app : ASGI application
        For everything else.
    service : Service
        Who carries it out.
    guard : Guard
        Who stands at the door.
    journal : Journal
        Is told of every answer.
    """

    def __init__(self, app: ASGIApp, service: Service, guard: Guard, journal: Journal) -> None:
        self._app = app
        self._service = service
        self._guard = guard
        self._journal = journal
        self._quiet = journal.requests == "none"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            path: str = scope["path"]
            if path.startswith(BEGINNING):
                parts = path.split("/")  # "", "v1", "cascades", name, …
                if len(parts) == 5:
                    if parts[4] == "decisions":
                        await self.answer(scope, receive, send, "decide", parts, _one)
                        return
                    if parts[4] == "decisions:batch":
                        await self.answer(scope, receive, send, "decide_batch", parts, _many)
                        return
                elif len(parts) == 7 and parts[6] == "outputs" and parts[4] == "decisions":
                    await self.answer(scope, receive, send, "outputs", parts, _told)
                    return
        await self._app(scope, receive, send)

    async def answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        route: str,
        parts: list[str],
        run: "Callable[[Service, list[str], Headers, bytes], Awaitable[Reply]]",
    ) -> None:
        """Let a request pass the guard, run it, send and count the answer."""
        began = perf_counter()
        guard = self._guard
        headers: Headers = dict(scope["headers"])
        key_id: str | None = None
        code: str | None = None
        try:
            guard.origin(headers, "POST")
            needs: KeyScope = "observe" if run is _told else "decide"
            key = guard.key(headers, needs)
            if key is not None:
                key_id = key.id
            self._service.check_ready()
            guard.media_type(headers)
            body = await guard.body(headers, receive)
            status, content = await run(self._service, parts, headers, body)
            sent = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(content)),
                *SAFE,
            ]
        except Refusal as refusal:
            status, sent, content = faults.answer(refusal)
            code = refusal.code
            sent += SAFE
        except CancelledError:  # the time that a server gives requests when it stops is over
            refusal = faults.stopping()
            status, sent, content = faults.answer(refusal)
            code = refusal.code
            sent += SAFE
        except Exception as error:
            status, sent, content = faults.unexpected(
                error, "POST", scope["path"], request_id(headers)
            )
            code = "internal"
            sent += SAFE
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": content})
        seconds = perf_counter() - began
        self._service.numbers.answered(route, status, seconds)
        if not self._quiet and (status >= 400 or self._journal.requests == "all"):
            if key_id is None:  # it was refused for its scope, perhaps
                key_id = guard.known(headers)
            self._journal.request(
                "POST", scope["path"], status, seconds, request_id(headers), key_id, code
            )


async def _one(service: Service, parts: list[str], headers: Headers, body: bytes) -> Reply:
    key = idempotency_key(headers)
    request = faults.decoded(_decision, body)
    command = Decide(parts[3], [request.context], key, request.evidence, quick=True)
    told, new = cast(Told, await service.submit(command))
    content = told.encode() if type(told) is str else _encode(told[0])
    return CREATED if new else OK, content


async def _many(service: Service, parts: list[str], headers: Headers, body: bytes) -> Reply:
    key = idempotency_key(headers)
    request = faults.decoded(_batch, body)
    service.check_batch(len(request.contexts))
    command = Decide(parts[3], list(request.contexts), key, request.evidence, quick=True)
    told, new = cast(Told, await service.submit(command))
    if isinstance(told, str):
        content = f'{{"decisions":[{told}]}}'.encode()
    else:
        content = _encode(BatchAnswer(told))
    return CREATED if new else OK, content


async def _told(service: Service, parts: list[str], headers: Headers, body: bytes) -> Reply:
    del headers
    request = faults.decoded(_outputs, body)
    future = service.submit(Tell(parts[3], parts[5], request.outputs, request.final))
    return OK, _encode(await future)
