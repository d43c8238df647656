"""Who may come in, and what they may bring: checks of a request before anybody reads it.

All of them work on raw ASGI headers, as a dict of bytes, so that no framework is needed.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, TypeAlias

from stopwise.service.keys import Key, Keys, Scope
from stopwise.service.refusals import Refusal
from stopwise.service.settings import Settings

Headers: TypeAlias = Mapping[bytes, bytes]
Receive: TypeAlias = Callable[[], Awaitable[Any]]

# On every answer, unless it says otherwise itself. What is decided for one is for no cache.
SAFE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

JSON = b"application/json"
_CHARSET = re.compile(rb';\s*charset\s*=\s*"?([^";\s]*)')
_KEY = re.compile(rb"[!-~]{1,200}")
_PORT = re.compile(r":\d*\Z")


class Guard:
    """Stands at the door; each method lets a request pass or raises the `Refusal` that it gets.

    Parameters
    ----------
    settings : Settings
        ``max_body`` and ``host`` are used.
    keys : Keys or None
        None: nobody is asked for a key, which is for loopback alone. Then requests that a browser
        was made to send by some other site are found out by their Host and Origin.

    Examples
    --------
    >>> guard = Guard(Settings(), None)
    >>> guard.origin({b"host": b"localhost:8350"}, "GET")
    >>> guard.origin({b"host": b"evil.example"}, "GET")
    Traceback (most recent call last):
    stopwise.service.refusals.Refusal: without keys this service answers to localhost alone, ...
    """

    def __init__(self, settings: Settings, keys: Keys | None) -> None:
        self.keys = keys
        self.max_body = settings.max_body
        self._own = settings.host.lower()
        self._hosts: set[bytes] = set()  # seen to be good, to be quick; ports make them few

    def origin(self, headers: Headers, method: str) -> None:
        """Where nobody is asked for a key: refuse what came through a site of somebody else.

        A name of theirs that resolves to this machine (DNS rebinding) shows in Host. A form or
        script of theirs that posts here shows in Origin; reading the answer is forbidden to it by
        the browser.
        """
        # An empty file of keys is false and yet asks for keys, so this must be None itself.
        if self.keys is not None:
            return
        host = headers.get(b"host", b"")
        if host not in self._hosts:
            if not self._is_here(host.decode("latin-1")):
                raise Refusal(
                    403,
                    "forbidden",
                    "without keys this service answers to localhost alone, and this request was "
                    "sent to another name",
                )
            if len(self._hosts) < 100:
                self._hosts.add(host)
        if method not in {"GET", "HEAD"}:
            origin = headers.get(b"origin")
            if origin is not None and origin.partition(b"://")[2] != host:
                raise Refusal(
                    403, "forbidden", "without keys this service takes nothing from other sites"
                )

    def _is_here(self, host: str) -> bool:
        name = _PORT.sub("", host).lower()
        if name == self._own or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            return ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
        except ValueError:
            return False

    def key(self, headers: Headers, scope: Scope | None = None) -> Key | None:
        """Return the key, which is valid and has the scope; None where nobody is asked for one."""
        if self.keys is None:
            return None
        header = headers.get(b"authorization")
        return self.keys.check(None if header is None else header.decode("latin-1"), scope)

    def known(self, headers: Headers) -> str | None:
        """Return the id of the key, if it is valid, whatever it may do; for logs and details."""
        if self.keys is None or b"authorization" not in headers:
            return None
        try:
            key = self.key(headers)
        except Refusal:
            return None
        return None if key is None else key.id

    def media_type(self, headers: Headers) -> None:
        """Refuse a body that is not declared as JSON in UTF-8; no body is fine."""
        given = headers.get(b"content-type", b"")
        if given != JSON and has_body(headers):
            lowered = given.lower()
            charset = _CHARSET.search(lowered)
            if lowered.partition(b";")[0].strip() != JSON or (
                charset is not None and charset[1] not in {b"utf-8", b"utf8", b"us-ascii"}
            ):
                raise Refusal(
                    415,
                    "unsupported_media_type",
                    "the body must be JSON in UTF-8: send Content-Type: application/json",
                )
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refusal(415, "unsupported_media_type", "the body must not be compressed")

    async def body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body, or refuse it as soon as it is known to be too large."""
        # What is declared too large is refused unread; what declares nothing, once it has become
        # too large. The server sees to it that no more comes than was declared.
        length = headers.get(b"content-length", b"0")
        if len(length) > 18 or (length.isdigit() and int(length) > self.max_body):
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal(400, "bad_request", "the request ended before its body did")
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > self.max_body:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join([*parts, part]) if parts else part
            parts.append(part)

    def _too_large(self) -> Refusal:
        return Refusal(
            413, "too_large", f"the body is too large: this service takes {self.max_body:,} bytes"
        )


def has_body(headers: Headers) -> bool:
    """Say whether a request declares a body.

    Examples
    --------
    >>> has_body({b"content-length": b"12"}), has_body({b"content-length": b"0"}), has_body({})
    (True, False, False)
    """
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def idempotency_key(headers: Headers) -> str | None:
    """Return the Idempotency-Key, if there is one.

    Raises
    ------
    Refusal
        If it is not 1 to 200 characters of visible ASCII.

    Examples
    --------
    >>> idempotency_key({b"idempotency-key": b"order-17"}), idempotency_key({})
    ('order-17', None)
    """
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise Refusal(
            422,
            "invalid",
            "Idempotency-Key must be 1 to 200 visible ASCII characters, without spaces",
            field="Idempotency-Key",
        )
    return given.decode("ascii")


def request_id(headers: Headers) -> str | None:
    """Return the X-Request-Id that somebody before us gave the request, if it can be one.

    Examples
    --------
    >>> request_id({b"x-request-id": b"4f2a"}), request_id({b"x-request-id": b"two words"})
    ('4f2a', None)
    """
    given = headers.get(b"x-request-id", b"")
    return given.decode("ascii") if _KEY.fullmatch(given) else None
