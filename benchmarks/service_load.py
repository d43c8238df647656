"""Load generators for a service: at full speed or at a constant rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle


@dataclass
class Load:
    """The result of a load test."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, q: float) -> float:
        """Return the latency within which this share of the requests was answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def request(path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request on a persistent connection."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._done: Callable[[bool], None] = lambda _: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, message: bytes, done: Callable[[bool], None]) -> None:
        self._done = done
        assert self._transport is not None
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head >= 0:
            at = buffer.find(b"content-length: ")
            length = int(buffer[at + 16 : buffer.find(b"\r", at)])
            if len(buffer) >= head + 4 + length:
                self._buffer = b""
                self._done(buffer.startswith(b"HTTP/1.1 20"))
                return
        self._buffer = buffer

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


async def _connect(port: int, n: int) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(_Connection, "127.0.0.1", port) for _ in range(n)]
    return [protocol for _, protocol in pairs]


def full_speed(port: int, messages: Sequence[bytes], connections: int, seconds: float) -> Load:
    """Send the next request on each connection as soon as the last is answered."""

    async def main() -> Load:
        load = Load()
        source = cycle(messages)
        lines = await _connect(port, connections)
        began = time.perf_counter()
        until = began + seconds
        finished = asyncio.get_running_loop().create_future()
        running = connections

        def ask(line: _Connection) -> None:
            sent = time.perf_counter()

            def done(good: bool) -> None:
                nonlocal running
                now = time.perf_counter()
                load.latencies.append(now - sent)
                load.failed += not good
                if now < until:
                    ask(line)
                else:
                    running -= 1
                    if running == 0:
                        finished.set_result(None)

            line.send(next(source), done)

        for line in lines:
            ask(line)
        await finished
        load.seconds = time.perf_counter() - began
        for line in lines:
            line.close()
        return load

    return asyncio.run(main())


def paced(
    port: int, messages: Sequence[bytes], connections: int, seconds: float, rate: float
) -> Load:
    """Send requests at a constant rate.

    Latency counts from the moment a request is due, so waiting for a free connection is included.
    """

    async def main() -> Load:
        load = Load()
        source: Iterator[bytes] = cycle(messages)
        free = await _connect(port, connections)
        lines = list(free)
        due: list[float] = []
        began = time.perf_counter()
        planned = 0

        def ask() -> None:
            while due and free:
                line, at = free.pop(), due.pop(0)

                def done(good: bool, line: _Connection = line, at: float = at) -> None:
                    load.latencies.append(time.perf_counter() - at)
                    load.failed += not good
                    free.append(line)
                    ask()

                line.send(next(source), done)

        while (now := time.perf_counter()) < began + seconds:
            while planned < (now - began) * rate:
                due.append(began + planned / rate)
                planned += 1
            ask()
            await asyncio.sleep(0.0005)
        while len(free) < len(lines):
            await asyncio.sleep(0.01)
        load.seconds = time.perf_counter() - began
        for line in lines:
            line.close()
        return load

    return asyncio.run(main())
