"""Asking a stage: an upstream over HTTP, or a function in a thread."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import httpx
import msgspec

from stopwise.proxy import config as configured
from stopwise.proxy.chat import (
    Answer,
    Chat,
    Reply,
    StageFailure,
    Streamed,
    error_body,
    event,
    total_usage,
)
from stopwise.running.calls import ask_async

AHEAD = 64  # events of a stream that may wait for a slow caller
MAX_EVENT = 16_000_000  # bytes
# Statuses of an upstream that say that the request itself is at fault.
REQUESTS = frozenset({400, 404, 405, 409, 413, 415, 422, 429})


class Clients:
    """Clients of one connection each: a pool of httpx goes through all it has for each request."""

    def __init__(self) -> None:
        self._made: list[httpx.AsyncClient] = []
        self._verify = httpx.create_ssl_context()

    def new(self) -> httpx.AsyncClient:
        """Return a client; every call has a time limit of its own."""
        limits = httpx.Limits(max_connections=1, keepalive_expiry=60.0)
        self._made.append(httpx.AsyncClient(timeout=None, limits=limits, verify=self._verify))
        return self._made[-1]

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(one.aclose() for one in self._made))


class Relay:
    """A stream on its way to the caller; ``untouched`` passes on every byte as it came."""

    def __init__(self, *, untouched: bool) -> None:
        self.untouched = untouched
        self.started = asyncio.Event()
        self.used: Sequence[dict[str, Any]] = ()  # by the stages before
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD)
        self._ended = False

    async def put(self, part: bytes) -> None:
        """Pass a part on; the first one begins the answer."""
        await self._parts.put(part)
        self.started.set()

    async def end(self, last: bytes) -> None:
        """Pass the last part on, unless it has ended."""
        if not self._ended:
            self._ended = True
            await self._parts.put(last)
            await self._parts.put(None)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they come."""
        while (part := await self._parts.get()) is not None:
            yield part


class Source:
    """A stage of a cascade that can be asked."""

    def __init__(self, stage: configured.Stage, expected: float, clients: Clients) -> None:
        self.stage = stage
        self.expected = expected
        self._call = None if stage.python is None else configured.function(stage.python)
        self._post = poster(stage, "chat/completions", clients)

    async def ask(self, chat: Chat, seconds: float, relay: Relay | None = None) -> Answer:
        """Return the answer, passed on as it comes where there is a relay; or `StageFailure`."""
        try:
            if self._call is not None:
                answer = await self._called(self._call, chat, seconds)
            elif relay is None:
                answer = await self._asked(chat, seconds)
            else:
                answer = await self._streamed(chat, seconds, relay)
        except TimeoutError:
            words = f"{self.stage.name} did not answer within {seconds:.3g} seconds"
            raise StageFailure(words, 504) from None
        except httpx.HTTPError as error:
            words = f"{self.stage.name} cannot be reached: {error or type(error).__name__}"
            raise StageFailure(words) from None
        except StageFailure as failure:
            raise StageFailure(
                f"{self.stage.name}: {failure}", failure.status, failure.reply
            ) from None
        paid = self.stage.price(answer.tokens) if any(answer.tokens) else None
        answer.cost = self.expected if paid is None else paid
        return answer

    async def _called(self, call: Callable[..., Any], chat: Chat, seconds: float) -> Answer:
        try:
            given = await ask_async(call, chat.plain(), seconds)
        except TimeoutError:
            raise
        except Exception as error:
            raise StageFailure(f"{type(error).__name__}: {error}") from error
        if isinstance(given, str):
            return Answer.of_text(given, self.stage.name)
        return Answer(msgspec.json.encode(given, enc_hook=str))

    async def _asked(self, chat: Chat, seconds: float) -> Answer:
        sent = chat.sent(self.stage.model, stream=False, extra=self.stage.extra)
        async with asyncio.timeout(seconds), self._post(sent) as response:
            body = await response.aread()
        return _answer(response, body)

    async def _streamed(self, chat: Chat, seconds: float, relay: Relay) -> Answer:
        sent = chat.sent(self.stage.model, stream=True, extra=self.stage.extra)
        streamed = Streamed()
        try:
            async with asyncio.timeout(seconds), self._post(sent) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    return _answer(response, await response.aread())  # it does not stream
                await self._pass_on(response, streamed, relay)
            if not streamed.done:
                raise StageFailure("the stream broke off")
            return Answer(streamed.body())
        except (TimeoutError, httpx.HTTPError, StageFailure) as error:
            if relay.started.is_set():
                broken = f"{self.stage.name} broke off: {error or type(error).__name__}"
                await relay.end(event(error_body(502, broken)))
            raise

    async def _pass_on(self, response: httpx.Response, into: Streamed, relay: Relay) -> None:
        waiting = b""
        async for part in response.aiter_bytes():
            if relay.untouched:
                await relay.put(part)
            waiting = (waiting + part).replace(b"\r\n", b"\n")
            *events, waiting = waiting.split(b"\n\n")
            if len(waiting) > MAX_EVENT:
                raise StageFailure("an event of the stream is too long")
            for raw in events:
                chunk = into.add(_data(raw))
                used = (chunk or {}).get("usage")
                if into.done or relay.untouched:
                    continue
                if chunk is not None and used and relay.used:
                    total = total_usage([*relay.used, used])
                    await relay.put(event({**chunk, "usage": total}))
                else:
                    await relay.put(raw + b"\n\n")


def _answer(response: httpx.Response, body: bytes) -> Answer:
    """Return the answer in a response, or raise `StageFailure` with what came instead."""
    status, headers = response.status_code, response.headers
    media_type = headers.get("content-type", "application/json")
    reply = Reply(status, body, media_type, headers.get("retry-after"))
    if status == 200:
        try:
            return Answer(body)
        except StageFailure as failure:
            raise StageFailure(str(failure), failure.status, reply) from None
    said = body[:200].decode(errors="replace")
    with suppress(msgspec.MsgspecError, LookupError, TypeError, UnicodeDecodeError):
        said = str(msgspec.json.decode(body)["error"]["message"])
    shown = status if status in REQUESTS else 504 if status in {408, 504} else 502
    raise StageFailure(f"status {status}: {said}", shown, reply)


def poster(
    source: configured.Stage | configured.Embedding, path: str, clients: Clients
) -> Callable[[bytes], AbstractAsyncContextManager[httpx.Response]]:
    """Return what posts a body to an upstream: a context manager of the response."""
    url = httpx.URL(f"{(source.url or '').rstrip('/')}/{path}")
    headers = {"content-type": "application/json"}
    if source.key_env:
        headers["authorization"] = f"Bearer {os.environ.get(source.key_env, '')}"
    idle: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def post(body: bytes) -> AsyncGenerator[httpx.Response, None]:
        client = idle.pop() if idle else clients.new()
        try:
            async with client.stream("POST", url, content=body, headers=headers) as response:
                yield response
        finally:
            idle.append(client)

    return post


def _data(raw: bytes) -> bytes:
    return b"\n".join(one[5:] for one in raw.split(b"\n") if one.startswith(b"data:")).strip()


async def embed(
    source: configured.Embedding, post: Callable[[bytes], Any], text: str
) -> Sequence[float]:
    """Return the embedding of a text, from a function or from an upstream."""
    if source.python is not None:
        return await ask_async(configured.function(source.python), text, source.timeout)
    sent = msgspec.json.encode({"model": source.model, "input": text})
    async with asyncio.timeout(source.timeout), post(sent) as response:
        body = await response.aread()
    return msgspec.json.decode(body)["data"][0]["embedding"]
