"""The application: one way for every request, from the server to the handler and back."""

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
from stopwise.service.http.request import (
    JSON,
    Access,
    Request,
    Response,
    internal_error,
    read_json,
)
from stopwise.service.http.request_log import is_logged, log_request
from stopwise.service.http.routes import ROUTES, Route
from stopwise.service.http.schema import document
from stopwise.service.service import Service
from stopwise.service.settings import Settings

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

# Headers of every answer that does not set them itself.
DEFAULTS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_USUAL = [("content-type", JSON), *DEFAULTS.items()]
_encode = msgspec.json.Encoder().encode


class Path(NamedTuple):
    """One path: the names of what varies in it, and its handlers by method with their names."""

    params: list[str]
    methods: dict[str, tuple[Handler, str]]


class App:
    """The service behind HTTP, for a server that speaks RSGI.

    ``reader_pause`` is set by applications with long streams: a client may pause for that many
    seconds, and the server, which then speaks ASGI, holds no more than it has taken. ``statuses``
    has the HTTP status of each error code.
    """

    reader_pause: float | None = None
    statuses: ClassVar[Mapping[str, int]] = {code: row.status for code, row in CODES.items()}

    def __init__(self, service: Service, settings: Settings) -> None:
        keys = None if settings.keys is None else Keys(settings.keys)
        self.service = service
        self.access = Access(settings, keys)
        self.document = document(secured=keys is not None)
        self._max_body = settings.max_body
        self._counters = service.counters
        self._log_requests = settings.log_requests
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.traces = None
        if settings.traces is not None:
            from stopwise.service.http.tracing import Traces

            self.traces = Traces(settings)
        self._paths: dict[str, Path] = {}
        self._pattern = re.compile("")  # of all paths, each with a mark at its end
        for route in ROUTES:
            self.add(route.method, route.path, self._handler(route), route.id)

    def add(self, method: str, path: str, handler: Handler, name: str) -> None:
        """Serve a path; ``name`` is what metrics call it."""
        entry = self._paths.setdefault(path, Path(re.findall(r"{(\w+)}", path), {}))
        entry.methods[method] = (handler, name)
        patterns = (re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(one)) for one in self._paths)
        marked = (f"{one}(?P<path{k}>)" for k, one in enumerate(patterns))
        self._pattern = re.compile("|".join(marked))
        self._by_mark = {f"path{k}": one for k, one in enumerate(self._paths.values())}

    def _found(self, request: Request) -> tuple[Handler, str]:
        """Return the handler of a request and its name, or refuse."""
        found = self._pattern.fullmatch(request.path)
        if found is None or found.lastgroup is None:
            raise UnknownPath("there is nothing at this path; see /openapi.json")
        path = self._by_mark[found.lastgroup]
        if path.params:
            values = filter(None, found.groups())  # a mark matches nothing, "", and others None
            request.params = dict(zip(path.params, values, strict=True))
        found_method = path.methods.get("GET" if request.method == "HEAD" else request.method)
        if found_method is None:
            allow = ", ".join([*path.methods, *(["HEAD"] if "GET" in path.methods else [])])
            words = "this path does not take this method"
            raise MethodNotAllowed(words, allow)
        return found_method

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        task = asyncio.current_task()
        assert task is not None  # the server runs each request in one
        self._in_flight.add(task)
        try:
            await self._answer(scope, protocol)
        finally:
            self._in_flight.discard(task)

    async def _answer(self, scope: Any, protocol: Any) -> None:
        began = perf_counter()
        request = Request(scope, protocol, self._max_body)
        name, code = OTHER, None
        try:
            if self._stopping:
                raise Unavailable("the service is stopping", retry_after=1)
            self.access.check_origin(request)
            handler, name = self._found(request)
            response = await handler(request)
        except RequestError as error:
            code = error.code
            response = self.error_response(request, error)
        except CancelledError:  # the time that requests are given when the service stops is over
            words = "the service is stopping; whether this was carried out is not known"
            stopping = Unavailable(words, retry_after=1)
            code = stopping.code
            response = self.error_response(request, stopping)
        except Exception as error:
            internal = internal_error(error, request)
            code = internal.code
            response = self.error_response(request, internal)
        headers = _USUAL
        if response.headers or response.media_type != JSON:
            given = {"content-type": response.media_type, **DEFAULTS, **dict(response.headers)}
            headers = list(given.items())
        if not request.body_read and request.has_body and request.http_version == "1.1":
            headers = [*headers, ("connection", "close")]  # the server closes it: tell the client
        with suppress(RuntimeError):  # the client went away
            if isinstance(response.body, bytes):
                protocol.response_bytes(response.status, headers, response.body)
            else:
                async with aclosing(response.body) as parts:
                    transport = protocol.response_stream(response.status, headers)
                    async for part in parts:
                        await transport.send_bytes(part)
        seconds = perf_counter() - began
        self._counters.answered(name, response.status, seconds)
        if is_logged(self._log_requests, response.status):
            key = None if request.key is None else request.key.id
            more = {"code": code, "request": request.id, "key": key}
            log_request(request.method, request.path, response.status, seconds, **more)
        if self.traces is not None:
            self.traces.answered(request, name, response, seconds)

    def error_response(self, request: Request, error: RequestError) -> Response:
        """Return the answer to a request that is not carried out."""
        field = msgspec.UNSET if error.field is None else error.field
        headers = error.headers if isinstance(error, HttpError) else ()
        if error.retry_after is not None:
            headers = (*headers, ("retry-after", str(error.retry_after)))
        body = _encode(m.ErrorAnswer(m.Fault(error.code, error.message, field)))
        return Response(self.statuses[error.code], body, headers=headers)

    async def started(self) -> None:
        """Do what must follow once requests are accepted; an error ends the service."""

    async def abort(self) -> None:
        """Answer requests that are still in flight with 503, and those that may follow."""
        self._stopping = True
        requests = list(self._in_flight)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def stopped(self) -> None:
        """Do what must follow once no requests are accepted."""

    def _handler(self, route: Route) -> Handler:
        """Return the handler of a route of the API."""
        decoder = None if route.takes is None else msgspec.json.Decoder(route.takes)

        async def handle(request: Request) -> Response:
            if route.needs != "nothing":
                self.access.check_key(request, route.needs)
            if route.method == "POST":
                request.check_media_type()
                raw = await request.body()
                if route.repeatable:
                    request.read_idempotency_key()
                if decoder is not None:
                    request.content = read_json(decoder, raw)
                elif raw.strip() not in {b"", b"{}"}:
                    raise InvalidRequest("this takes no body, or {}")
            reply = await route.run(self, request)
            return reply if isinstance(reply, Response) else Response(reply[0], _encode(reply[1]))

        return handle
