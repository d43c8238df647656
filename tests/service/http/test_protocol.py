"""What is sent before there is a request: limited in size and time, refused in one shape."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stopwise.service.http import protocol
from tests.service.http.door import SPEC
from tests.service.http.live import served

DECISIONS = "/v1/cascades/triage/decisions"
BODY = b'{"context": [0.1, 0.2]}'


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as address:
        assert httpx.post(f"{address}/v1/cascades", json=SPEC).status_code == 201
        yield address


def connected(address: str) -> socket.socket:
    place = urlsplit(address)
    line = socket.create_connection((place.hostname or "", place.port or 0), timeout=20)
    line.settimeout(20)
    return line


def rest(line: socket.socket) -> bytes:
    """Return all that comes until the connection is closed."""
    found = b""
    try:
        while part := line.recv(65536):
            found += part
    except ConnectionResetError:  # it was closed before it had read all we sent
        pass
    return found


def code(answer: bytes) -> tuple[bytes, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    return head.split()[1], json.loads(body)["error"]["code"]


def request(body: bytes = BODY, *headers: bytes, length: int | None = None) -> bytes:
    lines = [
        f"POST {DECISIONS} HTTP/1.1".encode(),
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Content-Length: %d" % (len(body) if length is None else length),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: xxxxxxxxxx\r\n" * 7000 + b"\r\n",
    ],
)
def test_headers_without_end_are_refused(address: str, head: bytes) -> None:
    with connected(address) as line:
        line.sendall(head)
        assert code(rest(line)) == (b"431", "headers_too_large")
    with connected(address) as line:  # and never ended: no more of it is kept than may be
        line.sendall(head.rstrip() + b"y")
        assert code(rest(line)) == (b"431", "headers_too_large")


def test_large_headers_and_large_bodies_within_the_limits_pass(address: str) -> None:
    large = b"X: " + b"x" * 60_000
    body = BODY + b" " * 200_000
    for content in (request(BODY, large), request(body), request(body, large)):
        with connected(address) as line:
            line.sendall(content + request(body, large) + request(BODY, b"Connection: close"))
            assert rest(line).count(b"HTTP/1.1 201 ") == 3


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\xfc", b"hello\r\n\r\n"])
def test_what_is_not_http_is_refused_in_the_one_shape(address: str, garbage: bytes) -> None:
    with connected(address) as line:
        line.sendall(garbage)
        assert code(rest(line)) == (b"400", "bad_request")


def test_garbage_is_not_taken_for_the_answer_to_what_came_before(address: str) -> None:
    """The request before it may be carried out or not; no answer says that it was refused."""
    with connected(address) as line:
        line.sendall(request() + b"\x00\x01 garbage\r\n\r\n")
        assert not rest(line).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: x",
        b"\r\n\r\n",
    ],
)
def test_headers_that_do_not_come_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "PATIENCE", 0.2)
    with served(tmp_path) as address:
        with connected(address) as line:
            line.sendall(sent)
            assert rest(line) == b""
        with connected(address) as line:  # nor after an answer
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"alive" in line.recv(65536)
            line.sendall(sent or b"\r\n")
            assert rest(line) == b""


def test_a_body_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PATIENCE", 0.2)
    with served(tmp_path) as address:
        assert httpx.post(f"{address}/v1/cascades", json=SPEC).status_code == 201
        for body in (b"", BODY[:5]):
            with connected(address) as line:
                line.sendall(request(body, length=40))
                answer = rest(line)
                assert code(answer) == (b"400", "bad_request")
                assert b"0.2 seconds" in answer
        # Whoever is refused at once, and goes on sending nothing, is not kept either.
        with connected(address) as line:
            line.sendall(request(b"", length=10**9))
            assert rest(line).startswith(b"HTTP/1.1 413 ")
        assert httpx.get(f"{address}{DECISIONS[:-10]}").json()["decisions"] == 0


def test_connections_beyond_the_limit_are_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path) as address:
        monkeypatch.setattr(protocol, "most_connections", lambda: 2)
        with connected(address) as first, connected(address) as second:
            for line in (first, second):
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"alive" in line.recv(65536)
            with connected(address) as third:
                assert code(rest(third)) == (b"503", "unavailable")


def test_an_upgrade_is_answered_as_if_it_had_not_been_asked_for(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), connected(address) as line:
        line.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
            b"Upgrade: websocket\r\n\r\n"
        )
        assert b"alive" in line.recv(65536)
    assert not caplog.records
