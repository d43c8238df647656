"""A request as handlers see it, the checks that it passes first, and the answer to it."""

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
BODY_SECONDS = 30.0  # for a body to arrive

_VISIBLE = re.compile(r"[!-~]{1,200}")
_STRING = re.compile(rb'("[^"]*")\s*(:?)')  # in JSON without escapes; a colon follows a key
_PORT = re.compile(r":\d*\Z")


class Response(msgspec.Struct, frozen=True):
    """An answer; a body in parts is sent as the parts come, and closed if the client goes away."""

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Request:
    """One request."""

    def __init__(self, scope: Any, protocol: Any, max_body: int) -> None:
        self.method: str = scope.method
        self.path: str = scope.path
        self.http_version: str = scope.http_version
        self.query: str = scope.query_string  # without "?"
        self.headers: Any = scope.headers  # names are lower-case; `get` has no values but ASCII
        self.params: Mapping[str, str] = {}  # what varies in the path: name, id
        self.key: Key | None = None  # the API key, if it is valid; None where none is needed
        self.idempotency_key: str | None = None  # where the route takes one
        self.content: Any = None  # the decoded body, of the type that the route takes
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
        """The X-Request-Id that a proxy gave it, if that is usable."""
        given: str = self.headers.get("x-request-id", "")
        return given if _VISIBLE.fullmatch(given) else None

    async def disconnected(self) -> None:
        """Wait until the client has gone away."""
        await self._protocol.client_disconnect()

    async def body(self) -> bytes:
        """Return the body; refuse it once it is known to exceed the limit."""
        limit = self._max_body
        length: str | None = self.headers.get("content-length")
        if length is not None and (len(length) > 18 or int(length) > limit):
            raise _too_large(limit)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                if length is not None:
                    whole: bytes = await self._protocol()
                    self.body_read = True
                    return whole
                parts: list[bytes] = []
                size = 0
                async for part in self._protocol:
                    size += len(part)
                    if size > limit:
                        raise _too_large(limit)
                    parts.append(part)
        except TimeoutError:
            words = f"the body did not arrive within {BODY_SECONDS:g} seconds"
            raise BadRequest(words) from None
        except RuntimeError as error:  # the server's own: the connection was closed
            raise _broken_off() from error
        # The server ends with an empty part. Before it, another one stands for trailers or for an
        # error, which cannot be told apart: trailers must be announced. Then nothing of the content
        # can be missing if it is a complete JSON object, which all handlers check.
        content = parts[:-1]
        if "trailer" in self.headers and len(content) > 1 and content[-1] == b"":
            content.pop()
        if b"" in content:
            raise _broken_off()
        self.body_read = True
        return b"".join(parts)

    def check_media_type(self) -> None:
        """Refuse a body that is not declared as JSON; no body is fine."""
        given: str = self.headers.get("content-type", "")
        if self.has_body and given.partition(";")[0].strip().lower() != JSON:
            words = "the body must be JSON in UTF-8: send Content-Type: application/json"
            raise UnsupportedMediaType(words)
        if self.headers.get("content-encoding", "identity") != "identity":
            raise UnsupportedMediaType("the body must not be compressed")

    def read_idempotency_key(self) -> None:
        """Take the Idempotency-Key, if there is one, or refuse it."""
        if "idempotency-key" not in self.headers:
            return
        given: str = self.headers.get("idempotency-key") or ""  # None if it is not ASCII
        if not _VISIBLE.fullmatch(given) or len(self.headers.get_all("idempotency-key")) > 1:
            words = "Idempotency-Key must be 1 to 200 visible ASCII characters, and there once"
            raise InvalidRequest(words, field="Idempotency-Key")
        self.idempotency_key = given


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the body is too large: at most {limit:,} bytes are taken")


def _broken_off() -> BadRequest:
    words = (
        "the body broke off, its chunks are not valid, or it has trailers that no Trailer header "
        "announces"
    )
    return BadRequest(words)


class Access:
    """Decides who may send a request.

    Without keys (None), which is for loopback alone, requests that a browser
    sends for another site are recognised by their Host and Origin.
    """

    def __init__(self, settings: Settings, keys: Keys | None) -> None:
        self.keys = keys
        self._own = settings.host.lower()

    def check_origin(self, request: Request) -> None:
        """Refuse ambiguous hosts; without keys, also what came through another site.

        Host shows a foreign name that resolves to this machine (DNS rebinding), and Origin a form
        or script of another site that posts here.
        """
        hosts = request.headers.get_all("host")
        if len(hosts) > 1:
            raise BadRequest("the request has more than one Host header")
        # An empty file of keys is false and yet asks for keys, so this must be None itself.
        if self.keys is not None:
            return
        host = hosts[0] if hosts else ""
        if not _is_here(host, self._own):
            words = "without keys this service answers to localhost alone, not to other names"
            raise Forbidden(words)
        if request.method not in {"GET", "HEAD"}:
            origin: str | None = request.headers.get("origin")
            if origin is not None and origin.partition("://")[2] != host:
                words = "without keys this service takes nothing from other sites"
                raise Forbidden(words)

    def check_key(self, request: Request, scope: Scope | None) -> None:
        """Refuse a request without a valid key of this scope for its cascade."""
        if self.keys is not None:
            request.key = self.keys.identify(request.headers.get("authorization"))
            self.keys.check(request.key, scope, request.params.get("name"))


@lru_cache(100)
def _is_here(host: str, own: str) -> bool:
    name = _PORT.sub("", host).lower()
    if name in (own, "localhost") or name.endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    return False


# -- answers -------------------------------------------------------------------------------------


def internal_error(error: BaseException, request: Request) -> InternalError:
    """Log an unexpected error; return the error for the caller, with the id of the log entry."""
    number = request.id or token_hex(8)
    fields = {"request": number, "method": request.method, "path": shorten(request.path, MAX_PATH)}
    LOG.error("a request failed", extra=fields, exc_info=error)
    name = request.params.get("name")
    where = "" if name is None else f" in the cascade {shorten(name)!r}"
    words = f"internal error{where}; the server log has it under {number}"
    return InternalError(words, number)


# -- bodies --------------------------------------------------------------------------------------


def read_json(decoder: "msgspec.json.Decoder[Any]", body: bytes) -> Any:
    """Return the content of a body, or refuse it in words for the person who must fix it."""
    if not body:
        raise BadRequest("the body is empty, and JSON is needed")
    try:
        try:
            value = decoder.decode(body)
        except msgspec.ValidationError as error:
            given = msgspec.UNSET
            with suppress(msgspec.ValidationError):  # what is not JSON at all comes first
                given = msgspec.json.decode(body)
            place, problem = explain(error, given)
            field = shorten(place) or None
            raise InvalidRequest(f"{field or 'the body'} {problem}", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = shorten(str(error).removeprefix("JSON is malformed: "))
        raise BadRequest(f"the body is not JSON: {why}") from None
    except RecursionError:
        raise _too_deep() from None
    keys = [text for text, colon in _STRING.findall(body) if colon]
    if b"\\" in body or len(set(keys)) < len(keys):  # in one object, perhaps
        _check_repeated(body)
    if isinstance(value, CascadeSpec):
        _check_depth(value.features, "features")
        _check_depth(value.policy, "policy")
    return value


def _check_repeated(body: bytes) -> None:
    def check(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                duplicate = shorten(name)
                raise InvalidRequest(f"duplicate field {duplicate!r}", field=duplicate)
            seen.add(name)

    try:
        json.loads(body, object_pairs_hook=check)
    except RecursionError:
        raise _too_deep() from None


def _check_depth(value: object, field: str, depth: int = MAX_DEPTH) -> None:
    if not isinstance(value, list | dict):
        return
    if depth == 0:
        raise _too_deep(field)
    for one in cast(Any, value.values() if isinstance(value, dict) else value):
        _check_depth(one, field, depth - 1)


def _too_deep(field: str | None = None) -> InvalidRequest:
    words = f"{field or 'the body'} is nested deeper than {MAX_DEPTH} lists or objects"
    return InvalidRequest(words, field=field)
