"""Truncated bodies and trailers: the proxy over ASGI treats them like the service over RSGI."""

import socket
from pathlib import Path

import pytest

from examples.proxy_upstreams import Upstream
from tests.proxy.proxy_harness import RunningProxy, running_proxy, stages
from tests.service.harness import received

BODY = b'{"model": "tickets", "messages": [{"role": "user", "content": "the invoice"}]}'
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked"
TRAILERS = b"0\r\nX-Sum: 1\r\n\r\n"
TRUNCATED = {
    "shorter than declared": (b"Content-Length: 500", BODY),
    "without the last chunk": (CHUNKED, CHUNK),
    "an invalid chunk": (CHUNKED, CHUNK + b"zz\r\n"),
    "undeclared trailers": (CHUNKED, CHUNK + TRAILERS),
    "an invalid chunk, declared trailers": (CHUNKED + b"\r\nTrailer: X-Sum", CHUNK + b"zz\r\n"),
}


def send(proxy: RunningProxy, header: bytes, body: bytes, *, shut_down: bool) -> bytes:
    """Send a request and return the response; ``shut_down`` closes the sending side."""
    usual = b"Host: localhost\r\nContent-Type: application/json\r\nConnection: close"
    head = b"POST /v1/chat/completions HTTP/1.1\r\n%b\r\n%b\r\n\r\n" % (usual, header)
    with proxy.connect() as line:
        line.sendall(head + body)
        if shut_down:
            line.shutdown(socket.SHUT_WR)
        return received(line)


@pytest.mark.parametrize("what", TRUNCATED)
def test_a_truncated_body_is_rejected_before_any_stage_runs(
    models: list[Upstream], tmp_path: Path, what: str
) -> None:
    calls = [model.calls for model in models]
    with running_proxy(tmp_path, stages(models), mode="on") as proxy:
        response = send(proxy, *TRUNCATED[what], shut_down=what != "undeclared trailers")
        # A caller that has shut down may count as disconnected before the response.
        assert not response or response.startswith(b"HTTP/1.1 400")
        assert [model.calls for model in models] == calls


def test_declared_trailers_are_ignored(models: list[Upstream], tmp_path: Path) -> None:
    header = CHUNKED + b"\r\nTrailer: X-Sum"
    with running_proxy(tmp_path, stages(models), mode="on") as proxy:
        response = send(proxy, header, CHUNK + TRAILERS, shut_down=False)
        assert response.startswith(b"HTTP/1.1 200")
