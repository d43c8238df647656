"""Memory of the proxy under attack: `python -m benchmarks.proxy_memory` (Linux).

Each attack runs against a new proxy with the default limits. A line has the resident memory of the
proxy's process before the attack, its peak during it and its value afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.proxy import ANSWER, running

MB = 1_000_000
BOMB = 1000 * MB  # size of a bomb after decompression
STREAM = 200 * MB  # size of a stream
DEADLINE = 120.0  # seconds per attack
PINGS = (b":" + b" ping" * 20 + b"\n\n") * 600  # comments, each an event


class Memory(NamedTuple):
    """Resident memory of a process in bytes."""

    before: int
    peak: int
    after: int
    seconds: float


def content_event(text: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def compressed(packer: Any, part: bytes, parts: int) -> bytes:
    pieces = [packer.compress(part) for _ in range(parts)]
    return b"".join([*pieces, packer.flush()])


def bomb(wbits: int, stream: bool) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    part = PINGS * (MB // len(PINGS)) if stream else b" " * MB

    return compressed(packer, part, BOMB // MB)


def nested() -> bytes:
    return gzip.compress(bomb(31, stream=False))


class Attack(NamedTuple):
    """The behaviour of the upstream and of the callers."""

    encoding: str
    body: Callable[[], bytes] | None = None  # sent at once
    part: bytes = b""  # otherwise, sent repeatedly
    stream: bool = True
    stalled: int = 0  # number of callers that do not read
    mode: str = "on"
    headers: bool = True  # whether headers are sent before the parts


ATTACKS = {
    "gzip bomb": Attack("gzip", lambda: bomb(31, stream=False), stream=False),
    "gzip bomb in shadow": Attack(
        "gzip", lambda: bomb(31, stream=False), stream=False, mode="shadow"
    ),
    "deflate bomb": Attack("deflate", lambda: bomb(15, stream=False), stream=False),
    "nested gzip bomb": Attack("gzip, gzip", nested, stream=False),
    "gzip bomb as a stream": Attack("gzip", lambda: bomb(31, stream=True)),
    "gzip bomb as a stream in shadow": Attack("gzip", lambda: bomb(31, stream=True), mode="shadow"),
    "endless line": Attack("", part=b"x" * 65_536),
    "endless line in shadow": Attack("", part=b"x" * 65_536, mode="shadow"),
    "endless small lines": Attack("", part=PINGS),
    "endless text": Attack("", part=content_event("yes") * 600),
    "3 stalled readers": Attack("", part=content_event("yes" * 10_000) * 2, stalled=3),
    "3 stalled readers in shadow": Attack(
        "", part=content_event("yes" * 10_000) * 2, stalled=3, mode="shadow"
    ),
    "endless interim responses": Attack(
        "", part=b"HTTP/1.1 100 Continue\r\n\r\n" * 600, headers=False
    ),
    "shadow queue": Attack("", mode="shadow", stream=False),
}


class Upstream:
    """The upstream of all stages: "first" answers, "last" attacks, "hang" does not respond."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._body = None if attack.body is None else attack.body()
        self.last_sent = time.monotonic()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(x for x in head.lower().split(b"\r\n") if b"content-length" in x)
            body = await reader.readexactly(int(size.split(b":")[1]))
            await self._answer(json.loads(body)["model"], reader, writer)
        writer.close()

    async def _answer(
        self, model: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        attack = self._attack
        if model == "hang":
            await reader.read()
            return
        if model == "first":
            body = json.dumps(ANSWER).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            return
        kind = "text/event-stream" if attack.stream else "application/json"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n"
        head += f"content-encoding: {attack.encoding}\r\n" if attack.encoding else ""
        if attack.headers:
            writer.write(head.encode() + b"\r\n")
        if self._body is not None:
            writer.write(self._body)
            await writer.drain()
            return
        for _ in range(STREAM // len(attack.part)):
            writer.write(attack.part)
            await writer.drain()
            self.last_sent = time.monotonic()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def call(port: int, stream: bool, text: str = "hi") -> Connection:
    request = {"model": "tickets", "messages": [{"role": "user", "content": text}]}
    body = json.dumps({**request, "stream": stream}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def read_all(connection: Connection) -> None:
    reader, writer = connection
    with suppress(ConnectionError):
        while await reader.read(65_536):
            pass
    writer.close()


async def run_attack(attack: Attack, upstream: Upstream, port: int) -> None:
    """Attack the proxy until all callers have an answer or their streams stall."""
    if attack.stalled:
        upstream.last_sent = time.monotonic()
        connections = [await call(port, stream=True) for _ in range(attack.stalled)]
        while time.monotonic() - upstream.last_sent < 3:
            await asyncio.sleep(0.1)
        for _, writer in connections:
            writer.transport.abort()
    elif attack.body is None and not attack.part:
        for _ in range(300):
            await read_all(await call(port, stream=False, text="invoice " * (MB // 8)))
    else:
        await read_all(await call(port, attack.stream))


def resident(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


async def measure(name: str) -> Memory:
    """Run an attack and return the memory of the proxy."""
    attack = ATTACKS[name]
    upstream = Upstream(attack)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    hangs = attack.body is None and not attack.part
    models = ["hang", "first"] if hangs else ["first", "last"]
    stages = [
        {"name": model, "url": url, "model": model, "cost": cost}
        for model, cost in zip(models, (0.01, 0.2), strict=True)
    ]
    deep: dict[str, Any] = {"policy": "uss-laplace", "error_cost": 1e6}  # runs every stage
    with tempfile.TemporaryDirectory() as folder:
        proxy = running(Path(folder), stages, mode=attack.mode, sample=1.0, **deep)
        address, pid = await asyncio.to_thread(proxy.__enter__)
        try:
            port = int(address.rpartition(":")[2])
            began, before = time.monotonic(), resident(pid, "VmRSS")
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
            with suppress(TimeoutError):
                await asyncio.wait_for(run_attack(attack, upstream, port), DEADLINE)
            seconds = time.monotonic() - began
            return Memory(before, resident(pid, "VmHWM"), resident(pid, "VmRSS"), seconds)
        finally:
            await asyncio.to_thread(proxy.__exit__, None, None, None)
            server.close()


def results(names: list[str]) -> Iterator[tuple[str, Memory]]:
    for name in names:
        yield name, asyncio.run(measure(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    options = parser.parse_args()
    print(f"{'MB':<33}{'before':>8}{'peak':>8}{'after':>8}{'growth':>8}{'seconds':>9}")
    for name, memory in results(options.only):
        sizes = [memory.before, memory.peak, memory.after, memory.peak - memory.before]
        columns = "".join(f"{size / MB:8.0f}" for size in sizes)
        print(f"{name:<33}{columns}{memory.seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
