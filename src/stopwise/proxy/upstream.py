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
    decode_json,
    error_body,
    event,
    prompt_of,
    read_usage,
    total_usage,
)
from stopwise.running.calls import ask_async
from stopwise.service.server_log import LOG

AHEAD = 64  # events of a stream that may wait for a slow caller
MAX_EVENT = 16_000_000  # bytes
TOKEN = 4  # characters of a prompt that count as one token where no usage is known (heuristic)
AFTER_END = 1.0  # seconds that a stream may stay open after its last event
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
        self.media_type = "text/event-stream"
        self.used: Sequence[dict[str, Any]] = ()  # by the stages before
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD)
        self._ended = False

    def begin(self, media_type: str) -> None:
        """Note that a stream begins; one that is passed on untouched begins here."""
        if self.untouched:
            self.media_type = media_type if media_type.isascii() else self.media_type
            self.started.set()

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

    async def fail(self, words: str) -> None:
        """End a stream that has begun with an error."""
        if self.started.is_set():
            await self.end(event(error_body(502, words)))

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
        self._usage_error = ""  # as logged last
        self._call = None if stage.python is None else configured.function(stage.python)
        self._post = poster(stage, "chat/completions", session)

    async def ask(
        self, chat: Chat, seconds: float, left: float = 0.0, relay: Relay | None = None
    ) -> Answer:
        """Return the answer, or raise `StageFailure`.

        Where there is a relay, the answer is passed on as it comes: then ``seconds`` limit each
        pause, and ``left`` limits the whole.
        """
        try:
            if self._call is not None:
                answer = await self._called(self._call, chat, seconds)
            elif relay is None:
                answer = await self._asked(chat, seconds)
            else:
                answer = await self._streamed(chat, seconds, left, relay)
        except TimeoutError:
            words = f"{self.stage.name} did not answer within {seconds:.3g} seconds"
            raise StageFailure(words, 504, cost=self._failed_cost(chat)) from None
        except (aiohttp.ClientError, ValueError) as error:  # a ValueError: no valid header
            words = f"{self.stage.name} cannot be reached: {str(error) or type(error).__name__}"
            # What could not be connected to, or asked, was not sent the request.
            sent = not isinstance(error, aiohttp.ClientConnectorError | ValueError)
            cost = self._failed_cost(chat) if sent else 0.0
            raise StageFailure(words, cost=cost) from None
        except StageFailure as failure:
            words, cost = f"{self.stage.name}: {failure}", self._failed_cost(chat, failure.reply)
            raise StageFailure(words, failure.status, failure.reply, cost) from None
        self._note_usage(answer.usage_error)
        answer.cost = self._cost(answer.tokens, self.expected)
        return answer

    def _cost(self, tokens: Sequence[float], otherwise: float) -> float:
        """Return what tokens cost, or another number where none are known."""
        paid = self.stage.price(tokens) if any(tokens) else None
        return otherwise if paid is None else paid

    def _failed_cost(self, chat: Chat, reply: Reply | None = None) -> float:
        """Return what a call without an answer cost, as a budget has to count it.

        That is the usage in the reply, else that of the prompt alone; a price for the call counts
        as a whole.
        """
        prompt = len(prompt_of(chat)) / TOKEN, 0.0
        estimate = self._cost(prompt, self.expected)
        if reply is None:
            return estimate
        try:
            usage, problem = read_usage(decode_json(reply.body)["usage"])
        except (ValueError, LookupError, TypeError, RecursionError):
            return estimate
        self._note_usage(problem)
        tokens = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
        return self._cost(tokens, estimate)

    def _note_usage(self, problem: str) -> None:
        """Log that the usage of an answer cannot be used, unless it is the same as before."""
        if problem and problem != self._usage_error:
            fields = {"stage": self.stage.name, "reason": problem}
            LOG.warning("usage ignored", extra=fields)
            self._usage_error = problem

    async def _called(self, call: Callable[..., Any], chat: Chat, seconds: float) -> Answer:
        try:
            given = await ask_async(call, chat.plain(), seconds)
        except TimeoutError:
            raise
        except Exception as error:
            raise StageFailure(f"{type(error).__name__}: {error}") from error
        try:
            if isinstance(given, str):
                return Answer.of_text(given, self.stage.name)
            return Answer(msgspec.json.encode(given, enc_hook=str))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise StageFailure(f"the answer cannot be written as JSON: {error}") from None

    async def _asked(self, chat: Chat, seconds: float) -> Answer:
        sent = chat.sent(self.stage.model, stream=False, extra=self.stage.extra)
        async with asyncio.timeout(seconds), self._post(sent) as response:
            body = await response.read()
        return _answer(response, body)

    async def _streamed(self, chat: Chat, seconds: float, left: float, relay: Relay) -> Answer:
        """Pass a stream on; ``seconds`` limit its pauses, ``left`` limits all of it."""
        sent = chat.sent(self.stage.model, stream=True, extra=self.stage.extra)
        clock, streamed = asyncio.get_running_loop().time, Streamed()
        until, problem = clock() + left, None
        try:
            async with asyncio.timeout(seconds) as limit, self._post(sent) as response:
                kind = response.headers.get("content-type", "")
                if response.status != 200 or "event-stream" not in kind:
                    return _answer(response, await response.read())  # it does not stream
                relay.begin(kind)
                events = _Events()
                async for part in response.content.iter_any():
                    pause = AFTER_END if streamed.done else seconds
                    limit.reschedule(min(clock() + pause, until))
                    if relay.untouched:
                        await relay.put(part)
                    problem = problem or await self._pass_on(events.add(part), streamed, relay)
                problem = problem or await self._pass_on(events.rest(), streamed, relay)
        except (TimeoutError, aiohttp.ClientError) as error:
            if not streamed.done:  # else all has come, and the upstream did not hang up
                broken = f"{self.stage.name} broke off: {str(error) or type(error).__name__}"
                await relay.fail(broken)
                raise
        try:
            if problem is not None:
                raise problem
            if not streamed.complete:
                raise StageFailure("the stream broke off")
            return Answer(streamed.body())
        except StageFailure:
            if relay.untouched:
                await relay.end(b"")  # the caller has it as it came; nothing is learned from it
            raise

    async def _pass_on(
        self, events: list[bytes], into: Streamed, relay: Relay
    ) -> StageFailure | None:
        """Collect events, and pass them on; return what is wrong with them."""
        for raw in events:
            try:
                chunk = into.add(_data(raw))
            except StageFailure as failure:
                if relay.untouched:
                    return failure
                raise
            if into.done or relay.untouched:
                continue
            used: object = (chunk or {}).get("usage")
            if chunk is not None and isinstance(used, dict) and relay.used:
                total = total_usage([*relay.used, read_usage(chunk["usage"])[0]])
                await relay.put(event({**chunk, "usage": total}))
            else:
                await relay.put(raw + b"\n\n")
        return None


class _Events:
    """Cuts a stream of bytes into events."""

    def __init__(self) -> None:
        self._waiting = b""

    def add(self, part: bytes) -> list[bytes]:
        """Return the events that are complete now."""
        waiting = self._waiting + part
        held = b"\r" if waiting.endswith(b"\r") else b""  # "\n" may follow
        lines = waiting.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *events, rest = lines.split(b"\n\n")
        self._waiting = rest + held
        if len(rest) > MAX_EVENT:
            raise StageFailure("an event of the stream is too long")
        return events

    def rest(self) -> list[bytes]:
        """Return what is left at the end."""
        return [self._waiting] if self._waiting.strip() else []


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """Return the answer in a response, or raise `StageFailure` with what came instead."""
    status, headers = response.status, response.headers
    media_type = headers.get("content-type", "")
    media_type = media_type if media_type.isascii() and media_type else "application/json"
    after = headers.get("retry-after")
    reply = Reply(status, body, media_type, after if (after or "").isascii() else None)
    if status == 200:
        try:
            return Answer(body)
        except StageFailure as failure:
            raise StageFailure(str(failure), failure.status, reply) from None
    said = body[:200].decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # a body of any kind
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
