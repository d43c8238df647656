"""Calls to stages, which are HTTP upstreams or Python functions."""

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

from stopwise.proxy.chat import (
    Answer,
    ChatRequest,
    Reply,
    StageFailure,
    StreamCollector,
    decode_json,
    error_body,
    event,
    prompt_of,
    read_usage,
    too_large,
    total_usage,
)
from stopwise.proxy.config import EmbeddingConfig, Limits, StageConfig, import_function
from stopwise.running.stage import ask_async
from stopwise.service.server_log import LOG

RELAY_BUFFER = 256_000  # bytes of a stream that may be buffered for a slow caller
CHUNK_SIZE = 65_536  # bytes decompressed or sent at a time
MAX_MEMBERS = 1000  # gzip members per body; empty ones take time without adding bytes
# Bytes per connection. The parser creates objects for all received bytes at once, and a 25-byte
# "100 Continue" response takes 500 times as much memory once parsed.
RECEIVE_BUFFER = 65_536
CHARACTERS_PER_TOKEN = 4  # heuristic, for failed calls without usage
CLOSE_TIMEOUT = 1.0  # seconds for the upstream to close a stream after its last event
# Upstream statuses that are forwarded to the caller, whose request caused them.
CLIENT_ERRORS = frozenset({400, 404, 405, 409, 413, 415, 422, 429})


def new_session() -> aiohttp.ClientSession:
    """Create the HTTP client session for all upstreams; each call sets its own timeout."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_new_socket),
        cookie_jar=aiohttp.DummyCookieJar(),  # cookies must not leak from one caller to another
        timeout=aiohttp.ClientTimeout(),
        auto_decompress=False,  # `Decompressor` enforces the limits
        headers={"accept-encoding": "gzip, deflate"},
    )


def _new_socket(address: tuple[int, int, int, str, Any]) -> socket.socket:
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return connection


class Decompressor:
    """Decompresses a body in bounded chunks; raises `StageFailure` if the body is invalid.

    Examples
    --------
    >>> import gzip
    >>> [len(chunk) for chunk in Decompressor("gzip").chunks(gzip.compress(bytes(100_000)))]
    [65536, 34464]
    """

    def __init__(self, encoding: str) -> None:
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            raise StageFailure(
                f"the answer's content-encoding must be gzip or deflate, got {encoding!r}"
            )
        self._encoding = encoding
        self._engine: Any = None
        self._members = 0

    def chunks(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body; yield the result in chunks."""
        full = False  # whether the zlib decompressor may hold more output
        while data or full:
            if self._engine is None or self._engine.eof:
                self._engine = self._new_engine(data)
            try:
                chunk: bytes = self._engine.decompress(data, CHUNK_SIZE)
            except zlib.error as error:
                raise StageFailure(f"the answer is not valid {self._encoding}: {error}") from None
            full = len(chunk) == CHUNK_SIZE and not self._engine.eof
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            if chunk:
                yield chunk

    def _new_engine(self, data: bytes) -> Any:
        """Return a zlib decompressor for the next member."""
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise StageFailure(f"the answer has more than {MAX_MEMBERS} {self._encoding} members")
        if self._encoding != "deflate":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        # Some servers omit the zlib header, whose first byte has 8 in its low 4 bits.
        return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 15 == 8 else -zlib.MAX_WBITS)


def decompressor_of(response: aiohttp.ClientResponse) -> Decompressor | None:
    """Return a decompressor for a response's body, or None if it is not compressed."""
    encoding = ", ".join(response.headers.getall("content-encoding", ())).strip().lower()
    return None if encoding in {"", "identity"} else Decompressor(encoding)


async def iter_body(
    response: aiohttp.ClientResponse,
    decompressor: Decompressor | None,
    failure: StageFailure,
    max_bytes: int,
) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed body; raise ``failure`` if it exceeds ``max_bytes``."""
    size = 0
    async for raw in response.content.iter_any():
        for chunk in (raw,) if decompressor is None else decompressor.chunks(raw):
            size += len(chunk)
            if size > max_bytes:
                raise failure
            yield chunk


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the decompressed body; raise `StageFailure` if it exceeds ``max_bytes``."""
    decompressor = decompressor_of(response)
    chunks: list[bytes] = []
    size = 0
    while raw := await response.content.readany():  # twice as fast as `iter_body`
        for chunk in (raw,) if decompressor is None else decompressor.chunks(raw):
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise too_large("the answer", max_bytes, "max_answer")
    return b"".join(chunks)


class Relay:
    """Forwards a stream to the caller, byte for byte if ``untouched``."""

    def __init__(self, *, untouched: bool) -> None:
        self.untouched = untouched
        self.started = asyncio.Event()
        self.media_type = "text/event-stream"
        self.earlier_usage: Sequence[dict[str, Any]] = ()  # of earlier stages
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._ended = False
        self._added = asyncio.Event()
        self._taken = asyncio.Event()

    def begin(self, media_type: str) -> None:
        """Start the response of an untouched stream, even before its first chunk."""
        if self.untouched:
            self.media_type = media_type if is_valid_header(media_type) else self.media_type
            self.started.set()

    async def put(self, chunk: bytes) -> None:
        """Forward a chunk, waiting if the caller is slow; the first chunk starts the response."""
        self._add(chunk)
        self.started.set()
        while self._queued_bytes > RELAY_BUFFER:
            self._taken.clear()
            await self._taken.wait()

    def end(self, last: bytes) -> None:
        """Forward the last chunk and end the stream, unless it has already ended."""
        if not self._ended:
            self._ended = True
            self._add(last)

    def fail(self, message: str) -> None:
        """End the stream with an error event, if the response has started."""
        if self.started.is_set():
            self.end(event(error_body(502, message)))

    def _add(self, chunk: bytes) -> None:
        self._queue.append(chunk)
        self._queued_bytes += len(chunk)
        self._added.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield chunks until the stream ends."""
        while self._queue or not self._ended:
            if not self._queue:
                self._added.clear()
                await self._added.wait()
            chunk = self._queue.popleft()
            for begin in range(0, len(chunk), CHUNK_SIZE):
                yield chunk[begin : begin + CHUNK_SIZE]
            self._queued_bytes -= len(chunk)
            self._taken.set()


class StageClient:
    """Calls one stage of a cascade."""

    def __init__(
        self,
        stage: StageConfig,
        expected: float,
        session: aiohttp.ClientSession,
        limits: Limits,
    ) -> None:
        self.stage = stage
        self._limits = limits
        self.expected = expected
        self._usage_error = ""  # the last usage error logged
        self._function = None if stage.python is None else import_function(stage.python)
        self._post = make_post(stage, "chat/completions", session)

    async def ask(
        self, chat: ChatRequest, seconds: float, left: float = 0.0, relay: Relay | None = None
    ) -> Answer:
        """Return the stage's answer, or raise `StageFailure`.

        The call times out after ``seconds``. With a relay, the answer of an upstream is streamed to
        the caller; then ``seconds`` limits each pause between chunks, and ``left`` limits the whole
        stream.
        """
        try:
            if self._function is not None:
                answer = await self._call_function(self._function, chat, seconds)
            elif relay is None:
                answer = await self._complete(chat, seconds)
            else:
                answer = await self._stream(chat, seconds, left, relay)
        except TimeoutError:
            message = f"{self.stage.name} did not answer within {seconds:.3g} seconds"
            raise StageFailure(message, 504, cost=self._failed_cost(chat)) from None
        except (aiohttp.ClientError, ValueError) as error:  # ValueError: an invalid header
            message = f"cannot reach {self.stage.name}: {str(error) or type(error).__name__}"
            sent = not isinstance(error, aiohttp.ClientConnectorError | ValueError)
            cost = self._failed_cost(chat) if sent else 0.0
            raise StageFailure(message, cost=cost) from None
        except StageFailure as failure:
            message = f"{self.stage.name}: {failure}"
            cost = self._failed_cost(chat, failure.reply)
            raise StageFailure(message, failure.status, failure.reply, cost) from None
        self._log_usage_error(answer.usage_error)
        answer.cost = self._cost(answer.tokens, self.expected)
        return answer

    def _cost(self, tokens: Sequence[float], default: float) -> float:
        """Return the cost of (prompt, completion) tokens, or ``default`` if it is unknown."""
        cost = self.stage.price(tokens) if any(tokens) else None
        return default if cost is None else cost

    def _failed_cost(self, chat: ChatRequest, reply: Reply | None = None) -> float:
        """Return the cost of a failed call, which counts toward the budget.

        If there is no reply with usage, the cost is estimated from the prompt alone. A fixed cost
        per call counts in full.
        """
        prompt = len(prompt_of(chat)) / CHARACTERS_PER_TOKEN, 0.0
        estimate = self._cost(prompt, self.expected)
        if reply is None:
            return estimate
        try:
            usage, problem = read_usage(decode_json(reply.body)["usage"])
        except (ValueError, LookupError, TypeError, RecursionError):
            return estimate
        self._log_usage_error(problem)
        tokens = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
        return self._cost(tokens, estimate)

    def _log_usage_error(self, problem: str) -> None:
        """Log ``problem``, which made usage unreadable, unless it is empty or was logged last."""
        if problem and problem != self._usage_error:
            fields = {"stage": self.stage.name, "reason": problem}
            LOG.warning("usage ignored", extra=fields)
            self._usage_error = problem

    async def _call_function(
        self, function: Callable[..., Any], chat: ChatRequest, seconds: float
    ) -> Answer:
        try:
            result = await ask_async(function, chat.to_dict(), seconds)
        except TimeoutError:
            raise
        except Exception as error:
            raise StageFailure(f"{type(error).__name__}: {error}") from error
        try:
            if isinstance(result, str):
                return Answer.of_text(result, self.stage.name)
            return Answer(msgspec.json.encode(result, enc_hook=str))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise StageFailure(f"the answer cannot be encoded as JSON: {error}") from None

    async def _complete(self, chat: ChatRequest, seconds: float) -> Answer:
        request = chat.upstream_body(self.stage.model, stream=False, extra=self.stage.extra)
        async with asyncio.timeout(seconds), self._post(request) as response:
            body = await read_body(response, self._limits.max_answer)
            return _answer(response, body)

    async def _stream(self, chat: ChatRequest, seconds: float, left: float, relay: Relay) -> Answer:
        """Forward a stream; ``seconds`` and ``left`` are as in `ask`."""
        request = chat.upstream_body(self.stage.model, stream=True, extra=self.stage.extra)
        limits, clock = self._limits, asyncio.get_running_loop().time
        until = clock() + left
        collector = StreamCollector(limits.max_answer)
        reader = _StreamReader(collector, limits.max_line, relay)
        try:
            async with asyncio.timeout(seconds) as timeout, self._post(request) as response:
                media_type = response.headers.get("content-type", "")
                if response.status != 200 or "event-stream" not in media_type:
                    return _answer(response, await read_body(response, limits.max_answer))
                failure = too_large("the stream", limits.max_stream, "max_stream")
                body = iter_body(response, decompressor_of(response), failure, limits.max_stream)
                relay.begin(media_type)
                async with aclosing(body):
                    async for chunk in body:
                        timeout.reschedule(until)  # a slow caller is not an upstream pause
                        await reader.add(chunk)
                        if collector.done:
                            until = min(until, clock() + CLOSE_TIMEOUT)
                        timeout.reschedule(min(clock() + seconds, until))
                await reader.end()
        except (TimeoutError, aiohttp.ClientError) as error:
            if not collector.done:  # otherwise only closing the connection failed
                relay.fail(f"{self.stage.name} broke off: {str(error) or type(error).__name__}")
                raise
        try:
            if reader.problem is not None:
                raise reader.problem
            if not collector.complete:
                raise StageFailure("the stream broke off")
            return Answer(collector.body())
        except StageFailure:
            if relay.untouched:
                relay.end(b"")  # the caller already has the stream; only the policy skips it
            raise


class _StreamReader:
    """Collects the events of a stream and forwards them."""

    def __init__(self, collector: StreamCollector, max_line: int, relay: Relay) -> None:
        self.problem: StageFailure | None = None  # why the policy skips an untouched stream
        self._collector = collector
        self._relay = relay
        self._events = EventSplitter(max_line)

    async def add(self, chunk: bytes) -> None:
        """Collect and forward the next chunk."""
        if self._relay.untouched:
            await self._relay.put(chunk)
        await self._read(chunk)

    async def end(self) -> None:
        """Collect and forward the unfinished event at the end of the stream, if any."""
        await self._read(None)

    async def _read(self, chunk: bytes | None) -> None:
        if self.problem is not None:
            return
        forwarded: list[bytes] = []
        problem: StageFailure | None = None
        try:
            for raw in self._events.remainder() if chunk is None else self._events.add(chunk):
                forwarded += self._collect(raw)
        except StageFailure as failure:
            problem = failure
        if forwarded:  # joined, because a chunk may contain thousands of events
            await self._relay.put(b"".join(forwarded))
        if self._relay.untouched:
            self.problem = problem
        elif problem is not None:
            raise problem

    def _collect(self, raw: bytes) -> list[bytes]:
        """Collect an event; return the bytes to forward."""
        chunk = self._collector.add(_data(raw))
        relay = self._relay
        if self._collector.done or relay.untouched:
            return []
        usage: object = (chunk or {}).get("usage")
        if chunk is not None and isinstance(usage, dict) and relay.earlier_usage:
            total = total_usage([*relay.earlier_usage, read_usage(chunk["usage"])[0]])
            return [event({**chunk, "usage": total})]
        return [raw, b"\n\n"]


class EventSplitter:
    r"""Splits a byte stream into server-sent events, in linear time.

    Examples
    --------
    >>> events = EventSplitter(1000)
    >>> events.add(b"data: 1\n"), events.add(b"\ndata: 2\r\n\r\ndata"), events.remainder()
    ([], [b'data: 1', b'data: 2'], [b'data'])
    """

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._buffer = bytearray()
        self._carriage_return = b""  # at the end of the last chunk: a line feed may follow

    def add(self, chunk: bytes) -> list[bytes]:
        """Add a chunk; return the events that it completes.

        Raises `StageFailure` if an event, complete or not, has more than ``max_line`` bytes.
        """
        begin = max(len(self._buffer) - 1, 0)  # everything before has been searched
        chunk = self._carriage_return + chunk
        self._carriage_return = b"\r" if chunk.endswith(b"\r") else b""
        lines = chunk.removesuffix(self._carriage_return)
        self._buffer += lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = self._buffer.rfind(b"\n\n", begin)
        events: list[bytes] = []
        if end >= 0:
            events = bytes(self._buffer[:end]).split(b"\n\n")
            del self._buffer[: end + 2]
        if max(map(len, [*events, self._buffer])) > self._max_line:
            raise too_large("a line or event of the stream", self._max_line, "max_line")
        return events

    def remainder(self) -> list[bytes]:
        """Return the unfinished event at the end of the stream, if any."""
        return [bytes(self._buffer)] if self._buffer.strip() else []


def is_valid_header(value: str) -> bool:
    r"""Return whether an upstream's header value can be forwarded; the server rejects others.

    Examples
    --------
    >>> is_valid_header("text/event-stream;\tcharset=utf-8"), is_valid_header("text/\x01")
    (True, False)
    """
    return value.isascii() and value.replace("\t", " ").isprintable()


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """Return the answer in a response; if it has none, raise `StageFailure` with the reply."""
    status, headers = response.status, response.headers
    media_type = headers.get("content-type", "")
    media_type = media_type if media_type and is_valid_header(media_type) else "application/json"
    retry_after = headers.get("retry-after")
    if not is_valid_header(retry_after or ""):
        retry_after = None
    reply = Reply(status, body, media_type, retry_after)
    if status == 200:
        try:
            return Answer(body)
        except StageFailure as failure:
            raise StageFailure(str(failure), failure.status, reply) from None
    message = body[:200].decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError, RecursionError):  # the body may be anything
        message = str(decode_json(body)["error"]["message"])
    failure_status = 502
    if status in CLIENT_ERRORS:
        failure_status = status
    elif status in {408, 504}:
        failure_status = 504
    raise StageFailure(f"status {status}: {message}", failure_status, reply)


def make_post(
    source: StageConfig | EmbeddingConfig, path: str, session: aiohttp.ClientSession
) -> Callable[[bytes], AbstractAsyncContextManager[aiohttp.ClientResponse]]:
    """Return a function that sends a POST request with a given body to an upstream."""
    url = URL(f"{(source.url or '').rstrip('/')}/{path}")
    # Looked up once here; with trust_env=True, aiohttp would read ~/.netrc for every request.
    proxy = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
    options: Any = {"proxy": proxy, "allow_redirects": False}
    headers = {"content-type": "application/json"}
    if source.key_env:
        headers["authorization"] = f"Bearer {os.environ.get(source.key_env, '')}"
    return lambda body: session.post(url, data=body, headers=headers, **options)


def _data(raw: bytes) -> bytes:
    """Return the contents of a server-sent event's data lines."""
    return b"\n".join(line[5:] for line in raw.split(b"\n") if line.startswith(b"data:")).strip()


async def embed(
    source: EmbeddingConfig, post: Callable[[bytes], Any], text: str, max_bytes: int
) -> Sequence[float]:
    """Embed a text with the configured function or upstream."""
    if source.python is not None:
        return await ask_async(import_function(source.python), text, source.timeout)
    request = msgspec.json.encode({"model": source.model, "input": text})
    async with asyncio.timeout(source.timeout), post(request) as response:
        body = await read_body(response, max_bytes)
    return decode_json(body)["data"][0]["embedding"]
