"""ASGI adapter for applications that stream to slow clients.

Over RSGI, Granian queues the parts of a stream without limit, even if the client does not read.
Over ASGI (since Granian 2.8), sending a part waits until the client has read the earlier ones.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

from stopwise.service.server_log import LOG

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Pairs = Iterable[tuple[str, str]]


class AsgiAdapter:
    """Runs an RSGI application on an ASGI server.

    A client that reads nothing from its stream for ``pause`` seconds is disconnected.
    """

    def __init__(self, app: Any, pause: float) -> None:
        self._app = app
        self._pause = pause

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Respond to one request."""
        protocol = Protocol(receive, send, self._pause)
        await self._app.__rsgi__(Scope(scope), protocol)
        await protocol.finish()


class Scope:
    """Method, path and headers of a request, with the attribute names of RSGI."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.http_version: str = scope["http_version"]
        self.query_string: str = scope["query_string"].decode("utf-8", "replace")
        self.headers = Headers(scope["headers"])


class Headers:
    r"""Request headers with the methods of RSGI headers; values that are not ASCII are hidden.

    Examples
    --------
    >>> headers = Headers([(b"host", b"a"), (b"host", b"b"), (b"x-name", b"\xe4")])
    >>> headers.get("host"), headers.get_all("host"), "x-name" in headers, headers.get("x-name")
    ('a', ['a', 'b'], True, None)
    """

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            values = self._values.setdefault(name.decode("latin-1"), [])
            if value.isascii():
                values.append(value.decode("ascii"))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Return the first value of a header."""
        values = self._values.get(name)
        return values[0] if values else default

    def get_all(self, name: str) -> list[str]:
        """Return all values of a header."""
        return self._values.get(name, [])


class Protocol:
    """The connection of one request, with the methods of an RSGI protocol."""

    def __init__(self, receive: Receive, send: Send, pause: float) -> None:
        self._receive = receive
        self._send = send
        self._pause = pause
        self._head: dict[str, Any] | None = None  # status and headers that are not sent yet
        self._body = b""
        self._broken = False

    async def __call__(self) -> bytes:
        """Return the request body."""
        return b"".join([part async for part in self])

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the request body as they arrive."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RuntimeError("the client disconnected")
            yield message.get("body", b"")
            more = message.get("more_body", False)

    async def client_disconnect(self) -> None:
        """Wait until the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def response_bytes(self, status: int, headers: Pairs, body: bytes) -> None:
        """Set the complete response."""
        self.response_stream(status, headers)
        self._body = body

    def response_stream(self, status: int, headers: Pairs) -> "Protocol":
        """Set the status and headers of a streamed response; return the object that sends parts."""
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._head = {"type": "http.response.start", "status": status, "headers": pairs}
        return self

    async def send_bytes(self, part: bytes) -> None:
        """Send a part, after the client has read the earlier ones."""
        try:
            async with asyncio.timeout(self._pause):
                await self._send_head()
                await self._send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            self._broken = True
            reason = f"the client read nothing from its stream for {self._pause:g} seconds"
            LOG.warning("disconnected", extra={"reason": reason})
            raise RuntimeError(reason) from None

    async def finish(self) -> None:
        """End the response; if its stream is broken, the server closes the connection instead."""
        if not self._broken:
            await self._send_head()
            await self._send({"type": "http.response.body", "body": self._body, "more_body": False})

    async def _send_head(self) -> None:
        if self._head is not None:
            head = self._head
            self._head = None  # send it once
            await self._send(head)
