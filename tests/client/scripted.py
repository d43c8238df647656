"""A server on a real socket that treats each request by a script, then repeats its end."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import msgspec


@dataclass(frozen=True)
class Answer:
    """Answer."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Read the request, then close the connection without an answer."""


@dataclass(frozen=True)
class Hang:
    """Read the request, then do nothing until the server ends."""


@dataclass(frozen=True)
class Trickle:
    """Answer, a byte at a time, after blanks that take ten minutes; or end with the server."""

    body: Any
    every: float = 0.05


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    time: float

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


Step: TypeAlias = Answer | Drop | Hang | Trickle


def refuse(status: int, code: str, retry_after: str | None = None, **more: Any) -> Answer:
    fault = {"code": code, "message": f"this is {code}", **more}
    return Answer(
        {"error": fault}, status, {} if retry_after is None else {"Retry-After": retry_after}
    )


class Scripted:
    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.seen: list[Seen] = []
        self.url = ""

    def answered(self, seen: Seen) -> Step:
        self.seen.append(seen)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def serving(*script: Step) -> Iterator[Scripted]:
    scripted = Scripted(*script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = msgspec.json.decode(raw) if raw else None
            seen = Seen(self.command, self.path, headers, body, time.monotonic())
            match scripted.answered(seen):
                case Answer(body, status, headers):
                    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                case Drop():
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                case Trickle(body, every):
                    self.close_connection = True
                    content = msgspec.json.encode(body).rjust(int(600 / every))
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    with suppress(OSError):  # left alone
                        for byte in content:
                            if over.wait(every):
                                break
                            self.wfile.write(bytes([byte]))
                case Hang():
                    self.close_connection = True
                    over.wait(60)

        do_GET = do_POST = answer

        def log_message(self, *args: Any) -> None:
            pass

    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    scripted.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield scripted
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
