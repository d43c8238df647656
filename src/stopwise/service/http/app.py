"""The application: routes, guard and refusals put together, for any server that speaks ASGI."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter
from typing import Any, TypeAlias, cast

import msgspec
from litestar import Litestar, Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler

from stopwise.service.dashboard.pages import dashboard
from stopwise.service.http import faults
from stopwise.service.http.fast import FastLane
from stopwise.service.http.guard import SAFE, Guard, Headers, idempotency_key, request_id
from stopwise.service.http.routes import JSON, ROUTES, Call, Digests, Route, Text
from stopwise.service.http.schema import document
from stopwise.service.journal import Journal
from stopwise.service.keys import Keys
from stopwise.service.metrics import Metrics
from stopwise.service.numbers import OTHER, Numbers
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service
from stopwise.service.settings import Settings

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Asked: TypeAlias = Request[Any, Any, Any]

# Where a scope has the id of the key it came with, and the code of the error it was answered with.
_KEY, _CODE = "stopwise_key", "stopwise_code"
_encode = msgspec.json.Encoder().encode


def make_app(service: Service, settings: Settings) -> ASGIApp:
    """Put a service behind HTTP; to start and stop the application is to start and stop it.

    From the outside: the hot lane, which answers the busiest routes itself; the gate, through
    which all the rest comes; the routes, and the dashboard.
    """
    keys = None if settings.keys is None else Keys(settings.keys)
    guard = Guard(settings, keys)
    metrics, paper = Metrics(service), document(secured=keys is not None)
    digests = Digests(service)
    # OPTIONS first, lest Litestar make one of its own for the first method of a path
    handlers: list[Any] = [_options(path) for path in dict.fromkeys(r.path for r in ROUTES)]
    handlers += [_handler(route, guard, service, metrics, paper, digests) for route in ROUTES]
    litestar = Litestar(
        handlers + dashboard(service, settings, keys),
        on_startup=[service.start],
        on_shutdown=[service.stop],
        exception_handlers={Exception: _refused},
        openapi_config=None,  # ours is made from the same table as the routes
        logging_config=None,
        request_max_body_size=None,  # the guard sees to it, as the hot lane needs it too
    )
    journal = service.journal
    gate = Gate(cast(ASGIApp, litestar), guard, service.numbers, journal)
    # Where decisions are logged with their contexts, they take the way that logs them.
    return gate if journal.decisions else FastLane(gate, service, guard, journal)


class Gate:
    """What every request passes that the hot lane does not answer, and every answer to it.

    Refuses what came through somebody else's site, puts the headers on that every answer has,
    answers HEAD like GET without the body, counts, and tells the journal.

    Parameters
    ----------
    app : ASGI application
        What is behind it.
    guard : Guard
        Who stands there.
    numbers : Numbers
        Where answers are counted.
    journal : Journal
        Is told of them.
    """

    def __init__(self, app: ASGIApp, guard: Guard, numbers: Numbers, journal: Journal) -> None:
        self._app = app
        self._guard = guard
        self._numbers = numbers
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        headers: Headers = dict(scope["headers"])
        method, path, status = scope["method"], scope["path"], 500
        inner = {**scope, "method": "GET"} if method == "HEAD" else scope
        begun = False

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = _complete(list(message["headers"]))
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        try:
            self._guard.origin(headers, method)
            await self._app(inner, receive, sent)
        except Refusal as refusal:
            inner[_CODE] = refusal.code
            await respond(sent, *faults.answer(refusal))
        except CancelledError:  # the time that a server gives requests when it stops is over
            if begun:
                raise
            refusal = faults.stopping()
            inner[_CODE] = refusal.code
            await respond(sent, *faults.answer(refusal))
        seconds = perf_counter() - began
        route = getattr(inner.get("route_handler"), "name", None) or OTHER
        self._numbers.answered(route, status, seconds)
        if self._journal.requests != "none":
            key_id = inner.get(_KEY) or self._guard.known(headers)
            number, code = request_id(headers), inner.get(_CODE)
            self._journal.request(method, path, status, seconds, number, key_id, code)


def _complete(headers: faults.RawHeaders) -> faults.RawHeaders:
    there = {name for name, _ in headers}
    headers += [header for header in SAFE if header[0] not in there]
    if b"allow" in there:  # HEAD is the gate's own; nobody behind it knows
        return [
            (name, value + b", HEAD" if name == b"allow" and b"GET" in value else value)
            for name, value in headers
        ]
    return headers


async def respond(send: Send, status: int, headers: faults.RawHeaders, body: bytes) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _handler(
    route: Route,
    guard: Guard,
    service: Service,
    metrics: Metrics,
    paper: bytes,
    digests: Digests,
) -> HTTPRouteHandler:
    decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)

    async def handle(request: Asked) -> Response[bytes]:
        headers: Headers = dict(request.scope["headers"])
        if route.needs != "nothing":
            key = guard.key(headers, route.needs)
            cast(Scope, request.scope)[_KEY] = None if key is None else key.id
            trusted = True
        else:
            trusted = guard.keys is None or guard.known(headers) is not None
        if route.path.startswith("/v1"):
            service.check_ready()
        repeat: str | None = None
        body: object = None
        if route.writes:
            guard.media_type(headers)
            raw = await guard.body(headers, request.receive)
            repeat = idempotency_key(headers) if route.repeatable else None
            if decoder is not None:
                body = faults.decoded(decoder, raw)
            elif raw.strip() not in {b"", b"{}"}:
                raise Refusal(422, "invalid", "this takes no body, or {}")
        call = Call(service, metrics, paper, digests, request.path_params, repeat, body, trusted)
        status, reply = await route.run(call)
        if isinstance(reply, Text):
            return Response(reply.content, status_code=status, media_type=reply.media_type)
        return Response(_encode(reply), status_code=status, media_type=JSON)

    return HTTPRouteHandler(_typed(route.path), http_method=route.method, name=route.id)(handle)


def _options(path: str) -> HTTPRouteHandler:
    """Tell which methods a path takes; Litestar's own answer knows one of several."""
    methods = [route.method for route in ROUTES if route.path == path]
    allow = {"allow": ", ".join([*methods, "OPTIONS"])}

    async def options() -> Response[None]:
        return Response(None, status_code=204, headers=allow)

    return HTTPRouteHandler(_typed(path), http_method="OPTIONS")(options)


def _typed(path: str) -> str:
    return path.replace("{name}", "{name:str}").replace("{id}", "{id:str}")


def _refused(request: Asked, error: Exception) -> Response[bytes]:
    """Turn whatever was raised into the one shape of an error."""
    code = "internal"
    if isinstance(error, HTTPException) and error.status_code < 500:
        refusal = _from_litestar(error)
        code = refusal.code
        status, headers, body = faults.answer(refusal)
        if isinstance(error, MethodNotAllowedException):
            headers.append((b"allow", (error.headers or {}).get("allow", "").encode()))
    elif isinstance(error, Refusal):
        code = error.code
        status, headers, body = faults.answer(error)
    else:
        number = request_id(dict(request.scope["headers"]))
        status, headers, body = faults.unexpected(
            error, request.method, request.scope["path"], number
        )
    cast(Scope, request.scope)[_CODE] = code
    told = {
        name.decode(): value.decode()
        for name, value in headers
        if name not in {b"content-type", b"content-length"}
    }
    return Response(body, status_code=status, media_type=JSON, headers=told)


def _from_litestar(error: HTTPException) -> Refusal:
    if isinstance(error, NotFoundException):
        return Refusal(404, "unknown_path", "there is nothing at this path; see /openapi.json")
    if isinstance(error, MethodNotAllowedException):
        return Refusal(405, "method_not_allowed", "this path does not take this method")
    return Refusal(400, "bad_request", "the request is not HTTP as it should be")
