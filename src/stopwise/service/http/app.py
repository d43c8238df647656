"""The HTTP application: resolves the route, runs its handler and sends the response."""

import asyncio
import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from stopwise.service.counters import OTHER
from stopwise.service.domain import messages as m
from stopwise.service.domain.errors import InvalidRequest, RequestError, Unavailable
from stopwise.service.http.errors import CODES, HttpError, MethodNotAllowed, UnknownPath
from stopwise.service.http.keys import Keys
from stopwise.service.http.openapi import openapi_document
from stopwise.service.http.request import (
    JSON,
    Access,
    Request,
    Response,
    internal_error,
    read_json,
)
from stopwise.service.http.request_log import is_logged, log_request
from stopwise.service.http.routes import PUBLIC, ROUTES, Route
from stopwise.service.service import Service
from stopwise.service.settings import Settings

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

# Headers of every response that does not set them itself.
DEFAULT_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_JSON_HEADERS = [("content-type", JSON), *DEFAULT_HEADERS.items()]
_encode = msgspec.json.Encoder().encode


class PathHandlers(NamedTuple):
    """The parameters of a path, and for each method the handler and the handler's name."""

    params: list[str]
    methods: dict[str, tuple[Handler, str]]


class App:
    """The service as an HTTP application for an RSGI server.

    Applications with long streams set ``reader_pause``, the seconds for which a client may stop
    reading. The server then uses ASGI, which buffers no more than the client has read.
    ``statuses`` maps each error code to its HTTP status.
    """

    reader_pause: float | None = None
    statuses: ClassVar[Mapping[str, int]] = {code: entry.status for code, entry in CODES.items()}

    def __init__(self, service: Service, settings: Settings) -> None:
        keys = None if settings.keys is None else Keys(settings.keys)
        self.service = service
        self.access = Access(settings, keys)
        self.document = openapi_document(secured=keys is not None)
        self._max_body = settings.max_body
        self._counters = service.counters
        self._log_requests = settings.log_requests
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.traces = None
        if settings.traces is not None:
            from stopwise.service.http.tracing import Traces

            self.traces = Traces(settings)
        self._paths: dict[str, PathHandlers] = {}
        # One pattern for all paths: an empty group after each path tells which one matched.
        self._pattern = re.compile("")
        self._path_of_group: dict[str, PathHandlers] = {}
        for route in ROUTES:
            self.add(route.method, route.path, self._handler(route), route.id)

    def add(self, method: str, path: str, handler: Handler, name: str) -> None:
        """Add a handler for a method and path; metrics report it as ``name``."""
        params = re.findall(r"{(\w+)}", path)
        handlers = self._paths.setdefault(path, PathHandlers(params, {}))
        handlers.methods[method] = (handler, name)
        patterns: list[str] = []
        for k, template in enumerate(self._paths):
            pattern = re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(template))
            patterns.append(f"{pattern}(?P<path{k}>)")
        self._pattern = re.compile("|".join(patterns))
        self._path_of_group = {f"path{k}": path for k, path in enumerate(self._paths.values())}

    def _resolve(self, request: Request) -> tuple[Handler, str]:
        """Return the handler of a request and the handler's name."""
        match = self._pattern.fullmatch(request.path)
        if match is None or match.lastgroup is None:
            raise UnknownPath("unknown path; see /openapi.json")
        path = self._path_of_group[match.lastgroup]
        if path.params:
            # The groups of other paths have None, and the group that marks this path has "".
            values = filter(None, match.groups())
            request.params = dict(zip(path.params, values, strict=True))
        method = "GET" if request.method == "HEAD" else request.method
        if method not in path.methods:
            allowed = list(path.methods)
            if "GET" in allowed:
                allowed.append("HEAD")
            raise MethodNotAllowed("method not allowed; see the Allow header", ", ".join(allowed))
        return path.methods[method]

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Respond to one request."""
        task = asyncio.current_task()
        assert task is not None  # the server runs each request in one
        self._in_flight.add(task)
        try:
            await self._respond(scope, protocol)
        finally:
            self._in_flight.discard(task)

    async def _respond(self, scope: Any, protocol: Any) -> None:
        began = perf_counter()
        request = Request(scope, protocol, self._max_body)
        name = OTHER
        code = None
        try:
            if self._stopping:
                raise Unavailable("the service is stopping", retry_after=1)
            self.access.check_origin(request)
            handler, name = self._resolve(request)
            response = await handler(request)
        except RequestError as error:
            code = error.code
            response = self.error_response(request, error)
        except CancelledError:  # `abort` cancelled it: the stop timeout is over
            message = "the service is stopping; the request may or may not have been executed"
            stopping = Unavailable(message, retry_after=1)
            code = stopping.code
            response = self.error_response(request, stopping)
        except Exception as error:
            internal = internal_error(error, request)
            code = internal.code
            response = self.error_response(request, internal)
        headers = _JSON_HEADERS
        if response.headers or response.media_type != JSON:
            custom = {"content-type": response.media_type, **DEFAULT_HEADERS}
            headers = list((custom | dict(response.headers)).items())
        if not request.body_read and request.has_body and request.http_version == "1.1":
            headers = [*headers, ("connection", "close")]  # the server closes it: tell the client
        with suppress(RuntimeError):  # the client disconnected
            if isinstance(response.body, bytes):
                protocol.response_bytes(response.status, headers, response.body)
            else:
                async with aclosing(response.body) as parts:
                    transport = protocol.response_stream(response.status, headers)
                    async for part in parts:
                        await transport.send_bytes(part)
        seconds = perf_counter() - began
        self._counters.count_response(name, response.status, seconds)
        if is_logged(self._log_requests, response.status):
            log_request(
                request.method,
                request.path,
                response.status,
                seconds,
                code=code,
                request=request.id,
                key=None if request.key is None else request.key.id,
            )
        if self.traces is not None:
            self.traces.record(request, name, response, seconds)

    def error_response(self, request: Request, error: RequestError) -> Response:
        """Return the response to a rejected request."""
        field = msgspec.UNSET if error.field is None else error.field
        headers = error.headers if isinstance(error, HttpError) else ()
        if error.retry_after is not None:
            headers = (*headers, ("retry-after", str(error.retry_after)))
        body = _encode(m.ErrorAnswer(m.Fault(error.code, error.message, field)))
        return Response(self.statuses[error.code], body, headers=headers)

    async def started(self) -> None:
        """Hook that runs once the server accepts requests; an exception stops the service."""

    async def abort(self) -> None:
        """Cancel requests in flight and reject new ones; both get a 503 response."""
        self._stopping = True
        requests = list(self._in_flight)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def stopped(self) -> None:
        """Hook that runs once the server no longer accepts requests."""

    def _handler(self, route: Route) -> Handler:
        """Return the handler of a route in `ROUTES`."""
        decoder = None if route.body is None else msgspec.json.Decoder(route.body)

        async def handle(request: Request) -> Response:
            if route.scope != PUBLIC:
                self.access.check_key(request, route.scope)
            if route.method == "POST":
                request.check_media_type()
                body = await request.body()
                if route.idempotency_key:
                    request.read_idempotency_key()
                if decoder is not None:
                    request.content = read_json(decoder, body)
                elif body.strip() not in {b"", b"{}"}:
                    raise InvalidRequest("this route accepts no body; send none or {}")
            reply = await route.operation(self, request)
            if isinstance(reply, Response):
                return reply
            status, answer = reply
            return Response(status, _encode(answer))

        return handle
