"""HTTP requests and responses, access checks and JSON bodies."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from secrets import token_hex
from typing import Any, cast

import msgspec

from stopwise.service.domain.errors import InvalidRequest, RequestTooLarge
from stopwise.service.domain.messages import CascadeSpec
from stopwise.service.domain.outputs import MAX_DEPTH
from stopwise.service.http.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    UnsupportedMediaType,
)
from stopwise.service.http.keys import Key, Keys, Scope
from stopwise.service.http.request_log import MAX_PATH
from stopwise.service.server_log import LOG
from stopwise.service.settings import Settings
from stopwise.service.validation import explain
from stopwise.text import shorten

JSON = "application/json"
OK = 200
BODY_TIMEOUT = 30.0  # seconds in which a body must arrive

_VISIBLE = re.compile(r"[!-~]{1,200}")
_STRING = re.compile(rb'("[^"]*")\s*(:?)')  # in JSON without escapes; field names have a colon
_PORT = re.compile(r":\d*\Z")


class Response(msgspec.Struct, frozen=True):
    """An HTTP response.

    The parts of a streamed body are sent as they arrive. The stream is closed if the client
    disconnects.
    """

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Request:
    """An HTTP request."""

    def __init__(self, scope: Any, protocol: Any, max_body: int) -> None:
        self.method: str = scope.method
        self.path: str = scope.path
        self.http_version: str = scope.http_version
        self.query: str = scope.query_string  # without "?"
        self.headers: Any = scope.headers  # lower-case names; `get` returns ASCII values only
        self.params: Mapping[str, str] = {}  # path parameters: name, id
        self.key: Key | None = None  # the valid API key; None if none is required
        self.idempotency_key: str | None = None  # set for routes that accept one
        self.content: Any = None  # the decoded body, of the route's type
        self.body_read = False
        self._protocol = protocol
        self._max_body = max_body

    @property
    def has_body(self) -> bool:
        """Whether the headers announce a body."""
        headers = self.headers
        return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers

    @property
    def id(self) -> str | None:
        """The X-Request-Id header, usually added by a proxy; None if it is missing or invalid."""
        request_id: str = self.headers.get("x-request-id", "")
        return request_id if _VISIBLE.fullmatch(request_id) else None

    async def disconnected(self) -> None:
        """Wait until the client has disconnected."""
        await self._protocol.client_disconnect()

    async def body(self) -> bytes:
        """Return the body; reject it as soon as it exceeds the limit."""
        limit = self._max_body
        length: str | None = self.headers.get("content-length")
        if length is not None and (len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                if length is not None:
                    body: bytes = await self._protocol()
                    self.body_read = True
                    return body
                parts: list[bytes] = []
                size = 0
                async for part in self._protocol:
                    size += len(part)
                    if size > limit:
                        raise _too_large(limit)
                    parts.append(part)
        except TimeoutError:
            message = f"the body did not arrive within {BODY_TIMEOUT:g} seconds"
            raise BadRequest(message) from None
        except RuntimeError as error:  # the server raises it when the connection is closed
            raise _incomplete_body() from error
        # The server ends with an empty part. An earlier empty part means either trailers or an
        # error, which look the same, so trailers must be announced. A body with announced trailers
        # is complete if it is a complete JSON object, which all handlers check.
        content = parts[:-1]
        if "trailer" in self.headers and len(content) > 1 and content[-1] == b"":
            content.pop()
        if b"" in content:
            raise _incomplete_body()
        self.body_read = True
        return b"".join(parts)

    def check_media_type(self) -> None:
        """Reject a body that is compressed or not declared as JSON; accept a missing body."""
        content_type: str = self.headers.get("content-type", "")
        if self.has_body and content_type.partition(";")[0].strip().lower() != JSON:
            message = "the body must be JSON in UTF-8; send Content-Type: application/json"
            raise UnsupportedMediaType(message)
        if self.headers.get("content-encoding", "identity") != "identity":
            raise UnsupportedMediaType("compressed bodies are not supported")

    def read_idempotency_key(self) -> None:
        """Set ``idempotency_key`` from the optional Idempotency-Key header."""
        if "idempotency-key" not in self.headers:
            return
        key: str = self.headers.get("idempotency-key") or ""  # None if it is not ASCII
        if len(self.headers.get_all("idempotency-key")) > 1:
            raise InvalidRequest("duplicate Idempotency-Key header", field="Idempotency-Key")
        if not _VISIBLE.fullmatch(key):
            message = "Idempotency-Key must be 1 to 200 visible ASCII characters"
            raise InvalidRequest(message, field="Idempotency-Key")
        self.idempotency_key = key


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body exceeds the limit of {limit:,} bytes")


def _incomplete_body() -> BadRequest:
    return BadRequest(
        "the body is incomplete, its chunks are invalid, or it has trailers without a Trailer "
        "header"
    )


class Access:
    """Access control: API keys, or local requests only.

    If ``keys`` is None, the service listens on loopback only, and rejects requests that another
    website made a browser send. Such requests have a foreign Host or Origin header.
    """

    def __init__(self, settings: Settings, keys: Keys | None) -> None:
        self.keys = keys
        self._host = settings.host.lower()

    def check_origin(self, request: Request) -> None:
        """Reject requests with several Host headers and, without keys, those of other websites.

        A foreign Host means that another name resolves to this machine (DNS rebinding). A foreign
        Origin means that a form or script of another website sent the request.
        """
        hosts = request.headers.get_all("host")
        if len(hosts) > 1:
            raise BadRequest("the request has more than one Host header")
        # Not `if self.keys`: with an empty key file, every request still requires a key.
        if self.keys is not None:
            return
        host = hosts[0] if hosts else ""
        if not _is_local(host, self._host):
            message = "without API keys, the service accepts only requests to localhost"
            raise Forbidden(message)
        if request.method not in {"GET", "HEAD"}:
            origin: str | None = request.headers.get("origin")
            if origin is not None and origin.partition("://")[2] != host:
                message = "without API keys, requests from other websites are not allowed"
                raise Forbidden(message)

    def check_key(self, request: Request, scope: Scope | None) -> None:
        """Require a valid key that has ``scope`` and may use the request's cascade."""
        if self.keys is not None:
            request.key = self.keys.identify(request.headers.get("authorization"))
            self.keys.check(request.key, scope, request.params.get("name"))


@lru_cache(100)
def _is_local(host: str, service_host: str) -> bool:
    name = _PORT.sub("", host).lower()
    if name in (service_host, "localhost") or name.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    return False


# -- errors --------------------------------------------------------------------------------------


def internal_error(error: BaseException, request: Request) -> InternalError:
    """Log an unexpected error; return the error to send, which quotes the logged request id."""
    id_ = request.id or token_hex(8)
    fields = {"request": id_, "method": request.method, "path": shorten(request.path, MAX_PATH)}
    LOG.error("a request failed", extra=fields, exc_info=error)
    name = request.params.get("name")
    cascade = "" if name is None else f" in cascade {shorten(name)!r}"
    return InternalError(f"internal error{cascade} (request id {id_}, see the server log)", id_)


# -- bodies --------------------------------------------------------------------------------------


def read_json(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """Decode a JSON body; errors name the invalid field and the expected value."""
    if not body:
        raise BadRequest("the body is empty; send JSON")
    try:
        try:
            value = decoder.decode(body)
        except msgspec.ValidationError as error:
            content = msgspec.UNSET
            # A syntax error later in the body takes precedence: it raises DecodeError here.
            with suppress(msgspec.ValidationError):
                content = msgspec.json.decode(body)
            path, problem = explain(error, content)
            field = shorten(path) or None
            raise InvalidRequest(f"{field or 'the body'} {problem}", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = shorten(str(error).removeprefix("JSON is malformed: "))
        raise BadRequest(f"the body is not JSON: {reason}") from None
    except RecursionError:
        raise _too_deep() from None
    names = [string for string, colon in _STRING.findall(body) if colon]
    if b"\\" in body or len(set(names)) < len(names):  # possibly within one object
        _check_duplicate_fields(body)
    if isinstance(value, CascadeSpec):
        _check_depth(value.features, "features")
        _check_depth(value.policy, "policy")
    return value


def _check_duplicate_fields(body: bytes) -> None:
    def check(pairs: list[tuple[str, object]]) -> None:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                duplicate = shorten(name)
                raise InvalidRequest(f"duplicate field {duplicate!r}", field=duplicate)
            names.add(name)

    try:
        json.loads(body, object_pairs_hook=check)
    except RecursionError:
        raise _too_deep() from None


def _check_depth(value: object, field: str, depth: int = MAX_DEPTH) -> None:
    if not isinstance(value, list | dict):
        return
    if depth == 0:
        raise _too_deep(field)
    for item in cast(Any, value.values() if isinstance(value, dict) else value):
        _check_depth(item, field, depth - 1)


def _too_deep(field: str | None = None) -> InvalidRequest:
    message = f"{field or 'the body'} is nested deeper than {MAX_DEPTH} levels"
    return InvalidRequest(message, field=field)
