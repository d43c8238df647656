"""Hostile upstreams and slow callers: memory and time are bounded, errors name the limit."""

import asyncio
import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from examples.proxy_upstreams import Handler, Upstream
from stopwise.errors import InvalidParameterError
from stopwise.proxy.app import ProxyApp
from stopwise.proxy.chat import Answer, StageFailure, StreamCollector
from stopwise.proxy.config import load_config
from stopwise.proxy.upstream import CHUNK_SIZE, MAX_MEMBERS, Decompressor, EventSplitter, Relay
from tests.proxy.proxy_harness import (
    MESSAGES,
    FaultyUpstream,
    RunningProxy,
    running_proxy,
    stage,
    write_config,
)
from tests.service.harness import JSON, received

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}  # runs every stage
SIZE = 48_000_000  # bytes after decompression: more than the limit, and than any socket buffer
EVENTS = "text/event-stream"


def content_event(text: str, index: int = 0) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


ANSWER = json.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}}]}).encode()
STREAM = content_event("yes") + b"data: [DONE]\n\n"


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1),
    "x-gzip": lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:], 1),
    "deflate": lambda body: zlib.compress(body, 1),
    "raw deflate": raw_deflate,
}
PLAIN: dict[str, bytes] = {"answer": ANSWER, "stream": STREAM, "bomb": b" " * SIZE}
LISTS = b',"x":[' + b"[]," * 1_000_000 + b"[]]}"  # decoded, twenty times as large
PLAIN["lists"] = ANSWER[:-1] + LISTS
PLAIN["stream lists"] = content_event("yes")[:-3] + LISTS + b"\n\n" + STREAM
PLAIN["stream bomb"] = (b": ping\n\n" * (SIZE // 8))[:SIZE]
ENDLESS: dict[str, Callable[[int], bytes]] = {
    "a line": lambda k: b"x" * CHUNK_SIZE,
    "an event": lambda k: b"data: x\n" * 8192,
    "comments": lambda k: b": ping\n\n" * 8192,
    "choices": lambda k: b"".join(content_event("", 1000 * k + j) for j in range(1000)),
    "text": lambda k: content_event("yes" * 10_000) * 2,
}


class HostileHandler(Handler):
    server: "HostileUpstream"

    def answer(self, request: dict[str, Any]) -> None:
        encoding, _, how = request["model"].partition(": ")
        if encoding == "endless":
            self.send_endless(ENDLESS[how])
        elif how == "pause":
            self.start(EVENTS)
            self.wfile.write(content_event("yes"))
            self.wait_until_closed()
        elif how == "silence":
            self.wait_until_closed()
        elif how == "long":
            self.send_long()
        else:
            kind = EVENTS if "stream" in how else "application/json"
            pack = PACKED.get(encoding, lambda body: body)
            named = encoding.removeprefix("raw ")
            self.start(kind, ("content-encoding", named) if encoding else None)
            self.wfile.write(pack(PLAIN[how]))
            self.close_connection = True

    def start(self, kind: str, header: tuple[str, str] | None = None) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        if header is not None:
            self.send_header(*header)
        self.end_headers()
        self.close_connection = True

    def wait_until_closed(self) -> None:
        self.server.asked.set()
        with suppress(ConnectionResetError):
            self.connection.recv(1)
        self.server.closed.set()

    def send_endless(self, part: Callable[[int], bytes]) -> None:
        self.start(EVENTS)
        k = 0
        try:
            while True:
                self.wfile.write(part(k))
                k += 1
        except OSError:
            self.server.closed.set()

    def send_long(self) -> None:
        """Send a stream; signal each time that sending blocks."""
        self.start(EVENTS)
        self.connection.settimeout(1)
        left = memoryview(self.server.long)
        with suppress(ConnectionError):
            while left:
                try:
                    left = left[self.connection.send(left[:CHUNK_SIZE]) :]
                except TimeoutError:
                    self.server.blocked.release()
                    self.connection.settimeout(None)
            self.server.finished.release()


class HostileUpstream(Upstream):
    """An upstream that sends too much or stalls; the requested model selects how."""

    long = (content_event("yes" * 10_000) * (SIZE // 30_000)) + b"data: [DONE]\n\n"

    def __init__(self) -> None:
        super().__init__(lambda text: ("account", -0.1))
        self.RequestHandlerClass = HostileHandler
        self.asked = threading.Event()
        self.closed = threading.Event()
        self.blocked = threading.Semaphore(0)
        self.finished = threading.Semaphore(0)


@pytest.fixture
def hostile() -> Iterator[HostileUpstream]:
    server = HostileUpstream()
    yield server
    server.close()


def cascade(hostile: HostileUpstream, how: str) -> list[dict[str, Any]]:
    first = {**stage("first", hostile, 0.01), "model": ": answer"}
    return [first, {**stage("last", hostile, 0.3), "model": how, "timeout": 3600}]


def cascades(hostile: HostileUpstream, *hows: str) -> dict[str, Any]:
    return {f"c{k}": cascade(hostile, how) for k, how in enumerate(hows)}


def call(proxy: RunningProxy, **more: Any) -> socket.socket:
    """Send a request on a new connection without reading the response."""
    line = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    body = json.dumps({"model": "tickets", "messages": MESSAGES, **more}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    head += "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    line.sendall(head.encode() + body)
    return line


# -- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_compressed_answers_are_decompressed(
    hostile: HostileUpstream, tmp_path: Path, mode: str
) -> None:
    hows = [f"{encoding}: {what}" for encoding in PACKED for what in ("answer", "stream")]
    with running_proxy(tmp_path, cascades(hostile, *hows), mode=mode, policy=ALL) as proxy:
        for k, how in enumerate(hows):
            answer = proxy.chat({"model": f"c{k}", "stream": "stream" in how})
            assert answer.headers["x-stopwise-arm"] == "last", how
            assert answer.content == (STREAM if "stream" in how else ANSWER)


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", ""])
def test_an_answer_above_max_answer_fails_the_stage(
    hostile: HostileUpstream, tmp_path: Path, encoding: str, mode: str
) -> None:
    with running_proxy(
        tmp_path, cascade(hostile, f"{encoding}: bomb"), mode=mode, policy=ALL
    ) as proxy:
        answer = proxy.chat()
        if mode == "on":
            assert answer.status_code == 200
            assert answer.headers["x-stopwise-arm"] == "first"
        else:
            assert answer.status_code == 502
            assert answer.json()["error"]["message"] == (
                "last: the answer exceeds 16,000,000 bytes; to allow more, raise max_answer in "
                "[limits]"
            )


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_a_stream_above_max_stream_ends_with_an_error(
    hostile: HostileUpstream, tmp_path: Path, mode: str
) -> None:
    limits = {"limits_max_stream": 2_000_000}
    stages = cascade(hostile, "gzip: stream bomb")
    with running_proxy(tmp_path, stages, mode=mode, policy=ALL, **limits) as proxy:
        answer = proxy.chat({"stream": True})
        assert len(answer.content) < 2_001_000
        *_, error = answer.content.strip().split(b"\n\n")
        assert b"exceeds 2,000,000 bytes; to allow more, raise max_stream" in error


def test_unsupported_encodings_fail_the_stage(hostile: HostileUpstream, tmp_path: Path) -> None:
    hows = ["br: answer", "gzip, gzip: answer", "zstd: stream"]
    with running_proxy(tmp_path, cascades(hostile, *hows)) as proxy:
        for k in range(len(hows)):
            answer = proxy.chat({"model": f"c{k}", "stream": "stream" in hows[k]})
            assert answer.status_code == 502
            assert "content-encoding must be gzip or deflate" in answer.json()["error"]["message"]


@pytest.mark.parametrize("how", ENDLESS)
def test_endless_streams_are_cut_off_in_mode_on(
    hostile: HostileUpstream, tmp_path: Path, how: str
) -> None:
    limits = {"limits_max_stream": 3_000_000, "limits_max_line": 100_000}
    limits["limits_max_answer"] = 1_000_000
    named = {"comments": "max_stream", "choices": "max_answer", "text": "max_answer"}
    stages = cascade(hostile, f"endless: {how}")
    with running_proxy(tmp_path, stages, mode="on", policy=ALL, **limits) as proxy:
        answer = proxy.chat({"stream": True})
        option = named.get(how, "max_line").encode()
        if how in named:  # the stream has started
            assert b"to allow more, raise " + option in answer.content[-300:]
        else:
            assert answer.headers["x-stopwise-arm"] == "first"
        assert hostile.closed.wait(60)


def test_long_lines_are_forwarded_unchanged_in_shadow_mode(
    hostile: HostileUpstream, tmp_path: Path
) -> None:
    limits = {"limits_max_line": 10, "limits_max_answer": 1000}
    with running_proxy(tmp_path, cascade(hostile, ": stream"), sample=1.0, **limits) as proxy:
        assert proxy.chat({"stream": True}).content == STREAM
        assert proxy.app._shadow.held == 0  # not queued for learning


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("how", ["lists", "stream lists"])
def test_answers_with_too_many_json_values_are_not_decoded(
    hostile: HostileUpstream, tmp_path: Path, how: str, mode: str
) -> None:
    stages = cascade(hostile, f": {how}")
    with running_proxy(tmp_path, stages, mode=mode, policy=ALL, sample=1.0) as proxy:
        answer = proxy.chat({"stream": "stream" in how})
        assert answer.status_code == 200
        if mode == "on":
            assert answer.headers["x-stopwise-arm"] == "first"
        else:
            assert answer.content == PLAIN[how]
            assert proxy.app._shadow.held == 0  # not queued for learning
        body = b'{"model": "tickets", "messages": [{"role": "user"' + LISTS + b"]}"
        refused = proxy.post("/v1/chat/completions", content=body, headers=JSON)
        assert refused.status_code == 413
        assert refused.json()["error"]["message"] == "the request has too many JSON values"


def test_the_members_of_a_compressed_body_are_limited() -> None:
    decompressor = Decompressor("gzip")
    assert b"".join(decompressor.chunks(gzip.compress(b"a") * MAX_MEMBERS)) == b"a" * MAX_MEMBERS
    with pytest.raises(StageFailure, match="1000 gzip members"):
        list(decompressor.chunks(gzip.compress(b"")))


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_that_arrives_in_single_bytes_is_decompressed(encoding: str) -> None:
    body = bytes(200_000)
    decompressor = Decompressor(encoding.removeprefix("raw "))
    packed = PACKED[encoding](body)
    chunks = [chunk for k in range(len(packed)) for chunk in decompressor.chunks(packed[k : k + 1])]
    assert b"".join(chunks) == body
    assert max(map(len, chunks)) <= CHUNK_SIZE


def test_an_invalid_compressed_body_fails_the_stage() -> None:
    with pytest.raises(StageFailure, match="not valid gzip"):
        list(Decompressor("gzip").chunks(b"{}"))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"limits_max_answers": 5}, "did you mean 'max_answer'"),
        ({"limits_max_line": 0}, "limits.max_line"),
        ({"limits_caller_pause": "no"}, "limits.caller_pause"),
    ],
)
def test_invalid_limits_are_rejected(
    hostile: HostileUpstream, tmp_path: Path, limits: dict[str, Any], message: str
) -> None:
    file = write_config(tmp_path, cascade(hostile, ": answer"), **limits)
    with pytest.raises(InvalidParameterError, match=message):
        load_config(file, {})


# -- long streams ------------------------------------------------------------------------------


PIECES = 200_000  # quadratic work would copy or search more than a terabyte, and take minutes


def test_many_pieces_of_text_are_joined_in_linear_time() -> None:
    collector = StreamCollector(10**9)
    chunk = content_event("é" * 50).removeprefix(b"data: ").strip()
    for _ in range(PIECES):
        collector.add(chunk)
    assert len(Answer(collector.body()).text) == 50 * PIECES


def test_a_line_in_many_chunks_is_split_in_linear_time() -> None:
    events = EventSplitter(10**9)
    for _ in range(PIECES):
        assert not events.add(b"x" * 100)
    assert [len(event) for event in events.add(b"\n\n")] == [100 * PIECES]


def test_a_stream_of_single_letters_is_stored_compactly() -> None:
    collector = StreamCollector(1_000_000)
    chunk = content_event("y").removeprefix(b"data: ").strip()
    for _ in range(10_000):
        collector.add(chunk)
    assert collector._held < 12_000
    choices = [content_event("", index).removeprefix(b"data: ").strip() for index in range(10_000)]
    with pytest.raises(StageFailure, match="raise max_answer"):
        list(map(collector.add, choices))


# -- callers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_streams_wait_for_slow_readers(hostile: HostileUpstream, tmp_path: Path, mode: str) -> None:
    limits = {"limits_max_stream": 10 * SIZE, "limits_max_answer": 10 * SIZE}
    with running_proxy(
        tmp_path, cascade(hostile, ": long"), mode=mode, policy=ALL, **limits
    ) as proxy:
        lines = [call(proxy, stream=True) for _ in range(3)]
        for _ in lines:
            assert hostile.blocked.acquire(timeout=60)
        assert not hostile.finished.acquire(blocking=False)
        for line in lines:
            with line, HTTPResponse(line) as answer:
                answer.begin()
                assert answer.read() == hostile.long


def test_a_caller_that_reads_nothing_is_disconnected(
    hostile: HostileUpstream, tmp_path: Path
) -> None:
    limits = {"limits_max_stream": 10**12, "limits_caller_pause": 0.3}
    with running_proxy(tmp_path, cascade(hostile, "endless: comments"), **limits) as proxy:
        line = call(proxy, stream=True)
        assert hostile.closed.wait(60)
        assert not received(line).endswith(b"0\r\n\r\n")  # the caller can detect the truncation
        line.close()


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("how", ["pause", "silence"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_caller_that_disconnects_cancels_the_call(
    hostile: HostileUpstream, tmp_path: Path, mode: str, how: str, stream: bool
) -> None:
    with running_proxy(tmp_path, cascade(hostile, f": {how}"), mode=mode, policy=ALL) as proxy:
        line = call(proxy, stream=stream)
        assert hostile.asked.wait(60)
        if stream and how == "pause":
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
        line.close()
        assert hostile.closed.wait(60)  # the stage itself would wait for an hour


def test_a_caller_that_stalls_and_disconnects_cancels_the_call(
    hostile: HostileUpstream, tmp_path: Path
) -> None:
    limits = {"limits_max_stream": 10**12, "limits_max_answer": 10**12}
    with running_proxy(tmp_path, cascade(hostile, ": long"), **limits) as proxy:
        line = call(proxy, stream=True)
        assert hostile.blocked.acquire(timeout=60)
        line.close()
        proxy.run(all_tasks_end(ProxyApp._answer))


def test_a_shutdown_while_a_stream_starts_cancels_the_call(
    hostile: HostileUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Relay.begin
    with running_proxy(tmp_path, cascade(hostile, ": pause")) as proxy:

        def begin_and_stop(relay: Relay, media_type: str) -> None:
            begin(relay, media_type)
            [request] = proxy.app._in_flight
            request.cancel()

        monkeypatch.setattr(Relay, "begin", begin_and_stop)
        with call(proxy, stream=True) as line:
            assert received(line).startswith(b"HTTP/1.1 503")
        proxy.run(all_tasks_end(ProxyApp._answer))


async def all_tasks_end(function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    """Wait until all tasks that run this coroutine function have ended."""
    code = function.__code__

    def running() -> list[asyncio.Task[Any]]:
        tasks = asyncio.all_tasks()
        return [task for task in tasks if getattr(task.get_coro(), "cr_code", None) is code]

    while running():
        await asyncio.sleep(0.005)


def test_headers_of_a_stream_do_not_wait_for_its_first_event(
    hostile: HostileUpstream, tmp_path: Path
) -> None:
    with running_proxy(tmp_path, cascade(hostile, ": pause")) as proxy:
        line = call(proxy, stream=True)
        assert line.recv(1000).startswith(b"HTTP/1.1 200")
        line.close()


# -- the queue in shadow mode ----------------------------------------------------------------------


def test_the_shadow_queue_is_limited_in_bytes(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path
) -> None:
    stages = [stage("hang", faulty, 0.01), stage("phrases", models[2], 0.3)]
    with running_proxy(tmp_path, stages, sample=1.0, limits_shadow_queue=10_000) as proxy:
        text = [{"role": "user", "content": "invoice " * 500}]
        for _ in range(5):
            assert proxy.chat({"messages": text}).status_code == 200
        assert proxy.event_count("shadow dropped") == 3
        assert 8_000 < proxy.app._shadow.held <= 10_000
