"""A relay between a client and a service, which loses an answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec


class Relay:
    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Any] = []  # of the service, passed on or not


@contextmanager
def losing_first_answer(url: str) -> Iterator[Relay]:
    """Pass requests on, but not the first answer: the connection is closed instead."""
    relay = Relay()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {
                name: value for name, value in self.headers.items() if name.lower() != "host"
            }
            answer = httpx.post(url + self.path, headers=headers, content=content, trust_env=False)
            relay.answers.append(msgspec.json.decode(answer.content))
            if len(relay.answers) == 1:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status_code)
            for name in ("Content-Type", "Content-Length", "Retry-After"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    relay.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield relay
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
