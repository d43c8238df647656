"""Unusual streams: unchanged in shadow mode, and always ended in mode on."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.proxy_upstreams import Handler, Upstream
from tests.proxy.proxy_harness import running_proxy, stage

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}


def chunk(**more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [], **more}).encode()


def content_chunk(text: str | None, index: Any = 0, **more: Any) -> bytes:
    delta = {"role": "assistant", "content": text}
    return chunk(choices=[{"index": index, "delta": delta, "finish_reason": "stop", **more}])


TOOLS = [{"index": k, "function": {"name": "f", "arguments": "{}"}} for k in (None, 0)]
END = b"data: [DONE]\n\n"
STREAMS = {
    "plain": content_chunk("yes") + b"\n\n" + END,
    "no end": content_chunk("yes") + b"\n\n",
    "short end": content_chunk("yes") + b"\n\ndata: [DONE]",
    "returns": content_chunk("yes") + b"\r\rdata: [DONE]\r\r",
    "both": content_chunk("yes") + b"\r\n\r\n: a comment\r\n\r\ndata: [DONE]\r\n\r\n",
    "no text": content_chunk(None) + b"\n\n" + END,
    "ping": content_chunk("yes") + b"\n\nevent: ping\ndata: pong\n\n" + END,
    "utf-8": b'data: {"choices": [{"delta": {"content": "\xf0\x9f"}}]}\n\n' + END,
    "surrogate": b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n' + END,
    "index": content_chunk("yes", None) + b"\n\n" + content_chunk("no", 1) + b"\n\n" + END,
    "calls": chunk(choices=[{"index": 0, "delta": {"tool_calls": TOOLS}}]) + b"\n\n" + END,
    "deep": b"data: " + b"[" * 3000 + b"]" * 3000 + b"\n\n" + END,
    "usage": content_chunk("yes") + b"\n\n" + chunk(usage=5) + b"\n\n" + END,
    "error": content_chunk("yes") + b'\n\ndata: {"error": {"message": "overloaded"}}\n\n',
    "empty": b"",
}  # fmt: skip


class StreamHandler(Handler):
    """Sends the stream named by the requested model; requests without a stream get "yes"."""

    def answer(self, request: dict[str, Any]) -> None:
        if request.get("stream"):
            body = STREAMS[request["model"]]
            self.reply(200, body, "text/event-stream; charset=utf-8")
        else:
            message = {"role": "assistant", "content": "yes"}
            self.reply(200, json.dumps({"choices": [{"message": message}]}).encode())


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    server = Upstream(lambda text: (text, 0.0))
    server.RequestHandlerClass = StreamHandler
    yield server
    server.close()


def cascades(upstream: Upstream) -> dict[str, Any]:
    first = stage("first", upstream, 0.01)
    named = {f"c{k}": name for k, name in enumerate(STREAMS)}
    return {c: [first, {**stage("last", upstream, 0.3), "model": m}] for c, m in named.items()}


def test_streams_are_forwarded_unchanged_in_shadow_mode(upstream: Upstream, tmp_path: Path) -> None:
    with running_proxy(tmp_path, cascades(upstream), sample=1.0) as proxy:
        for k, body in enumerate(STREAMS.values()):
            answer = proxy.chat({"model": f"c{k}", "stream": True})
            assert answer.content == body
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["x-stopwise-arm"] == "last"


def test_every_stream_ends_in_mode_on(upstream: Upstream, tmp_path: Path) -> None:
    valid = {"plain", "no end", "short end", "returns", "both", "index", "calls", "usage"}
    with running_proxy(tmp_path, cascades(upstream), mode="on", policy=ALL) as proxy:
        for k, name in enumerate(STREAMS):
            answer = proxy.chat({"model": f"c{k}", "stream": True})
            done = answer.content.endswith(END) and b'"error"' not in answer.content
            # A stream that is invalid before its first forwarded event fails the stage.
            failed = answer.headers.get("x-stopwise-arm") == "first"
            assert done == (name in valid or failed), (name, answer.content)
            if name == "both":
                assert b"yes" in answer.content


def test_a_stream_ends_although_the_store_fails(upstream: Upstream, tmp_path: Path) -> None:
    options: Any = {"isolation_level": None, "timeout": 30, "check_same_thread": False}
    with (
        running_proxy(tmp_path, cascades(upstream), mode="on", policy=ALL) as proxy,
        sqlite3.connect(tmp_path / "proxy.db", **options) as other,
    ):
        report = proxy.service.report

        async def locked(*arguments: Any, **more: Any) -> Any:
            if "last" in arguments[2].outputs and not other.in_transaction:
                other.execute("BEGIN IMMEDIATE")
            return await report(*arguments, **more)

        proxy.service.report = locked
        answer = proxy.chat({"model": "c0", "stream": True})
        other.execute("ROLLBACK")
        assert answer.content.endswith(END)
        assert b"yes" in answer.content
        assert b"error" not in answer.content


def test_a_round_ended_by_a_limit_is_stored_before_the_response(
    models: list[Upstream], tmp_path: Path
) -> None:
    cascade = [stage("keywords", models[0], 0.01), stage("phrases", models[2], 0.3)]
    with running_proxy(tmp_path, cascade, mode="on", policy=ALL, max_calls=1) as proxy:
        settled: list[bool] = []
        end = proxy.service.report

        async def watched(*arguments: Any, **more: Any) -> Any:
            answer = await end(*arguments, **more)
            settled.append(proxy.service.writer.settled or answer.next is not None)
            return answer

        proxy.service.report = watched
        name = proxy.chat().headers["x-stopwise-round"]
        assert settled[-1]
        with sqlite3.connect(tmp_path / "proxy.db") as log:
            (events,) = log.execute("SELECT SUM(count) FROM block").fetchone()
        assert events == proxy.service.state.position
        assert proxy.get(f"/v1/cascades/tickets/rounds/{name}").json()["status"] == "learned"


def test_a_slow_embedding_does_not_exceed_the_deadline(
    models: list[Upstream], tmp_path: Path
) -> None:
    (tmp_path / "hanging_embedding.py").write_text(
        "import asyncio\nasync def embed(text):\n    await asyncio.Event().wait()\n"
    )
    cascade = [stage("keywords", models[0], 0.01), stage("phrases", models[2], 0.3)]
    embedding = {"python": "hanging_embedding:embed", "size": 2, "timeout": 3600}
    with running_proxy(tmp_path, cascade, mode="on", policy=ALL, embedding=embedding) as proxy:
        answer = proxy.chat(headers={"x-stopwise-deadline": "8"})
        assert answer.status_code == 200
        assert answer.headers["x-stopwise-arm"] == "phrases"


def test_rounds_of_disconnected_callers_are_closed(models: list[Upstream], tmp_path: Path) -> None:
    cascade = [stage("keywords", models[0], 0.01), stage("phrases", models[2], 0.3)]
    with running_proxy(tmp_path, cascade, mode="on", policy=ALL) as proxy:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:{proxy.port}\r\n"
        body = json.dumps({"model": "tickets", "messages": [{"role": "user", "content": "x"}]})
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"

        async def disconnect(after: float) -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write((head + body).encode())
            await asyncio.sleep(after)
            writer.close()

        async def disconnect_all() -> None:
            await asyncio.gather(*(disconnect(k / 2000) for k in range(60)))

        asyncio.run(disconnect_all())
        ledger = proxy.service.state.cascades["tickets"].ledger

        async def closed() -> None:
            while ledger.open:
                await asyncio.sleep(0.01)

        proxy.chat()
        proxy.run(closed())
