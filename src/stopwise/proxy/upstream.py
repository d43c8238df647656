"""Asking a stage: an upstream over HTTP, or a function in a thread."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

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


def new_session() -> aiohttp.ClientSession:
    """Return the connections to all upstreams; every call has a time limit of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),  # an upstream's cookie for one caller is not another's
        timeout=aiohttp.ClientTimeout(),
    )


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

    def __init__(
        self, stage: configured.Stage, expected: float, session: aiohttp.ClientSession
    ) -> None:
        self.stage = stage
        self.expected = expected
        self._call = None if stage.python is None else configured.function(stage.python)
        self._post = poster(stage, "chat/completions", session)

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
        except aiohttp.ClientError as error:
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
            body = await response.read()
        return _answer(response, body)

    async def _streamed(self, chat: Chat, seconds: float, relay: Relay) -> Answer:
        sent = chat.sent(self.stage.model, stream=True, extra=self.stage.extra)
        streamed = Streamed()
        try:
            async with asyncio.timeout(seconds), self._post(sent) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    return _answer(response, await response.read())  # it does not stream
                await self._pass_on(response, streamed, relay)
            if not streamed.done:
                raise StageFailure("the stream broke off")
            return Answer(streamed.body())
        except (TimeoutError, aiohttp.ClientError, StageFailure) as error:
            if relay.started.is_set():
                broken = f"{self.stage.name} broke off: {error or type(error).__name__}"
                await relay.end(event(error_body(502, broken)))
            raise

    async def _pass_on(
        self, response: aiohttp.ClientResponse, into: Streamed, relay: Relay
    ) -> None:
        waiting = b""
        async for part in response.content.iter_any():
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


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """Return the answer in a response, or raise `StageFailure` with what came instead."""
    status, headers = response.status, response.headers
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
    source: configured.Stage | configured.Embedding, path: str, session: aiohttp.ClientSession
) -> Callable[[bytes], AbstractAsyncContextManager[aiohttp.ClientResponse]]:
    """Return what posts a body to an upstream: a context manager of the response."""
    url = URL(f"{(source.url or '').rstrip('/')}/{path}")
    # Once: aiohttp itself would read ~/.netrc for each request.
    direct = proxy_bypass(url.host or "")
    how: Any = {"proxy": None if direct else getproxies().get(url.scheme), "allow_redirects": False}
    headers = {"content-type": "application/json"}
    if source.key_env:
        headers["authorization"] = f"Bearer {os.environ.get(source.key_env, '')}"
    return lambda body: session.post(url, data=body, headers=headers, **how)


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
        body = await response.read()
    return msgspec.json.decode(body)["data"][0]["embedding"]
