"""Bodies that break off, and trailers: the proxy over ASGI treats them as the service over RSGI."""

import socket
from pathlib import Path

import pytest

from examples.proxy_upstreams import Upstream
from tests.proxy.harness import Proxied, proxied, stages
from tests.service.harness import received

BODY = b'{"model": "tickets", "messages": [{"role": "user", "content": "the invoice"}]}'
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked"
TRAILERS = b"0\r\nX-Sum: 1\r\n\r\n"
BROKEN = {
    "shorter than announced": (b"Content-Length: 500", BODY),
    "without the last chunk": (CHUNKED, CHUNK),
    "an invalid chunk": (CHUNKED, CHUNK + b"zz\r\n"),
    "trailers that are not announced": (CHUNKED, CHUNK + TRAILERS),
    "an invalid chunk, trailers announced": (CHUNKED + b"\r\nTrailer: X-Sum", CHUNK + b"zz\r\n"),
}


def answer(proxy: Proxied, header: bytes, body: bytes, *, ends: bool) -> bytes:
    """Send a request, after which the caller sends no more if it ``ends``; return the answer."""
    usual = b"Host: localhost\r\nContent-Type: application/json\r\nConnection: close"
    head = b"POST /v1/chat/completions HTTP/1.1\r\n%b\r\n%b\r\n\r\n" % (usual, header)
    with proxy.connect() as line:
        line.sendall(head + body)
        if ends:
            line.shutdown(socket.SHUT_WR)
        return received(line)


@pytest.mark.parametrize("what", BROKEN)
def test_a_body_that_breaks_off_is_refused_and_asks_no_stage(
    models: list[Upstream], tmp_path: Path, what: str
) -> None:
    calls = [model.calls for model in models]
    with proxied(tmp_path, stages(models), mode="on") as proxy:
        refused = answer(proxy, *BROKEN[what], ends=not what.startswith("trailers"))
        # A caller that sends no more may count as gone before it has the answer.
        assert not refused or refused.startswith(b"HTTP/1.1 400")
        assert [model.calls for model in models] == calls


def test_trailers_that_are_announced_are_ignored(models: list[Upstream], tmp_path: Path) -> None:
    announced = CHUNKED + b"\r\nTrailer: X-Sum"
    with proxied(tmp_path, stages(models), mode="on") as proxy:
        given = answer(proxy, announced, CHUNK + TRAILERS, ends=False)
        assert given.startswith(b"HTTP/1.1 200")
