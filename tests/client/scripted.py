"""A server that responds by a script; the last step is repeated."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import httpx
import msgspec


@dataclass(frozen=True)
class Answer:
    """Respond."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Close the connection without a response; first forward the request to a service, if any."""

    service: str = ""


@dataclass(frozen=True)
class Forward:
    """Forward the request to a service and return its response."""

    service: str


@dataclass(frozen=True)
class Trickle:
    """Respond byte by byte, after spaces that take ten minutes; without a body, never."""

    body: Any = None
    every: float = 0.05


class ReceivedRequest(NamedTuple):
    """A request received by the server."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


# A random generator for ``rng=`` whose waits exceed the deadline.
NO_RETRIES: Any = SimpleNamespace(uniform=lambda low, high: 1e9)
Step: TypeAlias = Answer | Drop | Forward | Trickle


def refuse(status: int, code: str, **more: Any) -> Answer:
    return Answer({"error": {"code": code, "message": f"this is {code}", **more}}, status)


def view(**policy: Any) -> Answer:
    """Respond with a cascade."""
    arms = [{"name": name, "cost": 0.1} for name in ("history", "glucose", "insulin")]
    spec = {"name": "triage", "arms": arms, "context": 2, "policy": policy}
    counts = dict.fromkeys(
        ("created", "n_features", "rounds", "open", "learned", "labelled", "labels_wanted"), 0
    )
    return Answer(
        {"spec": spec, "status": "active", **counts, "stops": [0, 0, 0], "mean_cost": None}
    )


class ScriptedServer:
    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.requests: list[ReceivedRequest] = []
        self.forwarded: list[Any] = []  # responses of the service, sent or dropped
        self.url = ""

    def next(self, request: ReceivedRequest) -> Step:
        self.requests.append(request)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def serving(*script: Step) -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(*script)
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = msgspec.json.decode(raw) if raw else None
            match scripted.next(ReceivedRequest(self.path, headers, body)):
                case Answer(body, status, headers):
                    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
                    self.reply(status, content, headers)
                case Forward(url):
                    answer = self.forward(url, raw)
                    self.reply(answer.status_code, answer.content, {})
                case Drop(url):
                    if url:
                        self.forward(url, raw)
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                case Trickle(body, every):
                    self.close_connection = True
                    content = msgspec.json.encode(body).rjust(int(600 / every))
                    with suppress(OSError):  # the client disconnected
                        if body is not None:
                            self.reply(200, b"", {"Content-Length": str(len(content))})
                        for byte in content:
                            if stopped.wait(every):
                                break
                            self.wfile.write(bytes([byte]) if body is not None else b"")

        do_GET = do_POST = answer

        def forward(self, url: str, content: bytes) -> httpx.Response:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            answer = httpx.request(
                self.command,
                url + self.path,
                headers=headers,
                content=content,
                trust_env=False,
                verify=False,
            )
            scripted.forwarded.append(msgspec.json.decode(answer.content))
            return answer

        def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    scripted.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield scripted
    finally:
        stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
