"""Asking a stage: an upstream over HTTP, or a function in a thread."""

import asyncio
import os
import socket
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
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
    too_large,
    total_usage,
)
from stopwise.running.stage import ask_async
from stopwise.service.server_log import LOG

AHEAD = 256_000  # bytes of a stream that may wait for a slow caller
PART = 65_536  # bytes that are decompressed or sent at a time
MAX_MEMBERS = 1000  # of a compressed body: an empty one takes time and adds no bytes
# Of a connection. The parser turns all that has arrived into objects at once, and those of a
# response "100 Continue" take 500 times its 25 bytes.
RECEIVE_BUFFER = 65_536
TOKEN = 4  # characters of a prompt that count as one token where no usage is known (heuristic)
AFTER_END = 1.0  # seconds that a stream may stay open after its last event
# Statuses of an upstream that say that the request itself is at fault.
REQUESTS = frozenset({400, 404, 405, 409, 413, 415, 422, 429})


def new_session() -> aiohttp.ClientSession:
    """Return the connections to all upstreams; every call has a time limit of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_new_socket),
        cookie_jar=aiohttp.DummyCookieJar(),  # an upstream's cookie for one caller is not another's
        timeout=aiohttp.ClientTimeout(),
        auto_decompress=False,  # `Inflater` does it, within the limits
        headers={"accept-encoding": "gzip, deflate"},
    )


def _new_socket(address: tuple[int, int, int, str, Any]) -> socket.socket:
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return connection


class Inflater:
    """Decompresses a body in parts of bounded size; StageFailure if it is invalid.

    Examples
    --------
    >>> import gzip
    >>> [len(part) for part in Inflater("gzip").parts(gzip.compress(bytes(100_000)))]
    [65536, 34464]
    """

    def __init__(self, encoding: str) -> None:
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            raise StageFailure(f"content-encoding {encoding!r} is not supported (gzip, deflate)")
        self._encoding = encoding
        self._engine: Any = None
        self._members = 0

    def parts(self, data: bytes) -> Iterator[bytes]:
        """Yield the next part of the body, decompressed."""
        full = False  # whether the engine may hold more output
        while data or full:
            if self._engine is None or self._engine.eof:
                self._engine = self._next(data)
            try:
                part: bytes = self._engine.decompress(data, PART)
            except zlib.error as error:
                raise StageFailure(f"the answer is not valid {self._encoding}: {error}") from None
            full = len(part) == PART and not self._engine.eof
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            if part:
                yield part

    def _next(self, data: bytes) -> Any:
        """Return what decompresses the next member."""
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise StageFailure(f"the answer has more than {MAX_MEMBERS} {self._encoding} members")
        if self._encoding != "deflate":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        # Some servers send deflate without the header of zlib, whose low 4 bits are 8.
        return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 15 == 8 else -zlib.MAX_WBITS)


def inflater_of(response: aiohttp.ClientResponse) -> Inflater | None:
    """Return what decompresses a body; None if it is not compressed."""
    encoding = ", ".join(response.headers.getall("content-encoding", ())).strip().lower()
    return None if encoding in {"", "identity"} else Inflater(encoding)


async def body_parts(
    response: aiohttp.ClientResponse, inflater: Inflater | None, failure: StageFailure, most: int
) -> AsyncGenerator[bytes, None]:
    """Yield the body of a response, decompressed; raise the failure beyond ``most`` bytes."""
    size = 0
    async for raw in response.content.iter_any():
        for part in (raw,) if inflater is None else inflater.parts(raw):
            size += len(part)
            if size > most:
                raise failure
            yield part


async def whole_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response, decompressed; StageFailure beyond ``most`` bytes."""
    inflater = inflater_of(response)
    parts: list[bytes] = []
    size = 0
    while raw := await response.content.readany():  # half the time of `body_parts`
        for part in (raw,) if inflater is None else inflater.parts(raw):
            parts.append(part)
            size += len(part)
            if size > most:
                raise too_large("the answer", most, "max_answer")
    return b"".join(parts)


class Relay:
    """A stream on its way to the caller; ``untouched`` passes on every byte as it came."""

    def __init__(self, *, untouched: bool) -> None:
        self.untouched = untouched
        self.started = asyncio.Event()
        self.media_type = "text/event-stream"
        self.used: Sequence[dict[str, Any]] = ()  # by the stages before
        self._parts: deque[bytes] = deque()
        self._waiting = 0  # bytes
        self._ended = False
        self._added = asyncio.Event()
        self._taken = asyncio.Event()

    def begin(self, media_type: str) -> None:
        """Note that a stream begins; one that is passed on untouched begins here."""
        if self.untouched:
            self.media_type = media_type if can_be_sent(media_type) else self.media_type
            self.started.set()

    async def put(self, part: bytes) -> None:
        """Pass a part on and wait for a slow caller; the first part begins the answer."""
        self._add(part)
        self.started.set()
        while self._waiting > AHEAD:
            self._taken.clear()
            await self._taken.wait()

    def end(self, last: bytes) -> None:
        """Pass the last part on, unless it has ended."""
        if not self._ended:
            self._ended = True
            self._add(last)

    def fail(self, words: str) -> None:
        """End a stream that has begun with an error."""
        if self.started.is_set():
            self.end(event(error_body(502, words)))

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._waiting += len(part)
        self._added.set()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts as they come."""
        while self._parts or not self._ended:
            if not self._parts:
                self._added.clear()
                await self._added.wait()
            part = self._parts.popleft()
            for begin in range(0, len(part), PART):
                yield part[begin : begin + PART]
            self._waiting -= len(part)
            self._taken.set()


class Source:
    """A stage of a cascade that can be asked."""

    def __init__(
        self,
        stage: configured.Stage,
        expected: float,
        session: aiohttp.ClientSession,
        limits: configured.Limits,
    ) -> None:
        self.stage = stage
        self._limits = limits
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
            body = await whole_body(response, self._limits.max_answer)
            return _answer(response, body)

    async def _streamed(self, chat: Chat, seconds: float, left: float, relay: Relay) -> Answer:
        """Pass a stream on; ``seconds`` limit its pauses, ``left`` limits all of it."""
        sent = chat.sent(self.stage.model, stream=True, extra=self.stage.extra)
        limits, clock = self._limits, asyncio.get_running_loop().time
        until = clock() + left
        streamed = Streamed(limits.max_answer)
        reader = _Reader(streamed, limits.max_line, relay)
        try:
            async with asyncio.timeout(seconds) as limit, self._post(sent) as response:
                kind = response.headers.get("content-type", "")
                if response.status != 200 or "event-stream" not in kind:  # it does not stream
                    return _answer(response, await whole_body(response, limits.max_answer))
                failure = too_large("the stream", limits.max_stream, "max_stream")
                parts = body_parts(response, inflater_of(response), failure, limits.max_stream)
                relay.begin(kind)
                async with aclosing(parts):
                    async for part in parts:
                        limit.reschedule(until)  # a pause of the caller is not one of the upstream
                        await reader.add(part)
                        if streamed.done:
                            until = min(until, clock() + AFTER_END)
                        limit.reschedule(min(clock() + seconds, until))
                await reader.end()
        except (TimeoutError, aiohttp.ClientError) as error:
            if not streamed.done:  # else all has come, and the upstream did not hang up
                relay.fail(f"{self.stage.name} broke off: {str(error) or type(error).__name__}")
                raise
        try:
            if reader.problem is not None:
                raise reader.problem
            if not streamed.complete:
                raise StageFailure("the stream broke off")
            return Answer(streamed.body())
        except StageFailure:
            if relay.untouched:
                relay.end(b"")  # the caller has it as it came; nothing is learned from it
            raise


class _Reader:
    """Collects what a stream says, and passes it on."""

    def __init__(self, into: Streamed, max_line: int, relay: Relay) -> None:
        self.problem: StageFailure | None = None  # why an untouched stream is not learned from
        self._into = into
        self._relay = relay
        self._events = Events(max_line)

    async def add(self, part: bytes) -> None:
        """Read the next part."""
        if self._relay.untouched:
            await self._relay.put(part)
        await self._read(part)

    async def end(self) -> None:
        """Read what is left at the end."""
        await self._read(None)

    async def _read(self, part: bytes | None) -> None:
        if self.problem is not None:
            return
        passed: list[bytes] = []
        problem: StageFailure | None = None
        try:
            for raw in self._events.rest() if part is None else self._events.add(part):
                passed += self._passed_on(raw)
        except StageFailure as failure:
            problem = failure
        if passed:  # at once: a part may hold thousands of events
            await self._relay.put(b"".join(passed))
        if self._relay.untouched:
            self.problem = problem
        elif problem is not None:
            raise problem

    def _passed_on(self, raw: bytes) -> list[bytes]:
        """Collect an event; return what to pass on of it."""
        chunk = self._into.add(_data(raw))
        relay = self._relay
        if self._into.done or relay.untouched:
            return []
        used: object = (chunk or {}).get("usage")
        if chunk is not None and isinstance(used, dict) and relay.used:
            total = total_usage([*relay.used, read_usage(chunk["usage"])[0]])
            return [event({**chunk, "usage": total})]
        return [raw, b"\n\n"]


class Events:
    r"""Cuts a stream of bytes into events, in linear time.

    Examples
    --------
    >>> events = Events(1000)
    >>> events.add(b"data: 1\n"), events.add(b"\ndata: 2\r\n\r\ndata"), events.rest()
    ([], [b'data: 1', b'data: 2'], [b'data'])
    """

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._waiting = bytearray()
        self._held = b""  # a carriage return, which a line feed may follow

    def add(self, part: bytes) -> list[bytes]:
        """Return the events that are complete now."""
        begin = max(len(self._waiting) - 1, 0)  # what comes before has been searched
        part = self._held + part
        self._held = b"\r" if part.endswith(b"\r") else b""
        lines = part.removesuffix(self._held)
        self._waiting += lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = self._waiting.rfind(b"\n\n", begin)
        events: list[bytes] = []
        if end >= 0:
            events = bytes(self._waiting[:end]).split(b"\n\n")
            del self._waiting[: end + 2]
        if max(map(len, [*events, self._waiting])) > self._max_line:
            raise too_large("a line or event of the stream", self._max_line, "max_line")
        return events

    def rest(self) -> list[bytes]:
        """Return what is left at the end."""
        return [bytes(self._waiting)] if self._waiting.strip() else []


def can_be_sent(value: str) -> bool:
    r"""Return whether a header of an upstream can be passed on: a server refuses to send others.

    Examples
    --------
    >>> can_be_sent("text/event-stream;\tcharset=utf-8"), can_be_sent("text/\x01")
    (True, False)
    """
    return value.isascii() and value.replace("\t", " ").isprintable()


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """Return the answer in a response, or raise `StageFailure` with what came instead."""
    status, headers = response.status, response.headers
    media_type = headers.get("content-type", "")
    media_type = media_type if media_type and can_be_sent(media_type) else "application/json"
    after = headers.get("retry-after")
    reply = Reply(status, body, media_type, after if can_be_sent(after or "") else None)
    if status == 200:
        try:
            return Answer(body)
        except StageFailure as failure:
            raise StageFailure(str(failure), failure.status, reply) from None
    said = body[:200].decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # a body of any kind
        said = str(decode_json(body)["error"]["message"])
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
    source: configured.Embedding, post: Callable[[bytes], Any], text: str, most: int
) -> Sequence[float]:
    """Return the embedding of a text, from a function or from an upstream."""
    if source.python is not None:
        return await ask_async(configured.function(source.python), text, source.timeout)
    sent = msgspec.json.encode({"model": source.model, "input": text})
    async with asyncio.timeout(source.timeout), post(sent) as response:
        body = await whole_body(response, most)
    return decode_json(body)["data"][0]["embedding"]
