"""HTTP on the wire: pipelining, upgrades, limits of size and time, chunks and trailers."""

import json
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from stopwise.service import serve
from stopwise.service.http import request as requests
from tests.service.harness import JSON, ROUNDS, SPEC, Served, keys_in, process, received, served

RETIRE = "/v1/cascades/triage/retire"
BODY = b'{"context": [0.1, 0.2]}'
CHUNKED = b"Transfer-Encoding: chunked"
CLOSE = b"Connection: close"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def head(*headers: bytes, path: str = ROUNDS) -> bytes:
    first = f"POST {path} HTTP/1.1".encode()
    common = (b"Host: localhost", b"Content-Type: application/json")
    return b"\r\n".join([first, *common, *headers]) + b"\r\n\r\n"


def post(body: bytes, *headers: bytes, path: str = ROUNDS) -> bytes:
    return head(b"Content-Length: %d" % len(body), *headers, path=path) + body


def answers(running: Served, *parts: bytes) -> list[tuple[int, bytes]]:
    """Send segments of bytes; return status and body of each response until the close."""
    with running.connect() as connection:
        for part in parts:
            connection.sendall(part)
            running.get("/healthz")  # by now, the server has read it
        return split(received(connection))


def split(answer: bytes) -> list[tuple[int, bytes]]:
    """Split bytes into responses; return status and body of each."""
    responses: list[tuple[int, bytes]] = []
    while answer:
        first, _, rest = answer.partition(b"\r\n\r\n")
        lines = first.lower().split(b"\r\n")
        [length] = [int(line[15:]) for line in lines if line.startswith(b"content-length:")] or [0]
        responses.append((int(first.split()[1]), rest[:length]))
        answer = rest[length:]
    return responses


def rounds(running: Served) -> int:
    return running.get("/v1/cascades/triage").json()["rounds"]


# -- pipelining, upgrades and invalid HTTP ---------------------------------------------------------


@pytest.mark.parametrize("later", [False, True], ids=["one segment", "two segments"])
@pytest.mark.parametrize("kind", [b"h2c", b"websocket"])
def test_an_upgrade_is_ignored(running: Served, kind: bytes, later: bool) -> None:
    upgrade = [b"Upgrade: " + kind, b"Sec-WebSocket-Version: 13", b"HTTP2-Settings: AAMAAABkAAQ"]
    smuggled = post(b"", path=RETIRE)
    for body, status in ((BODY, 201), (smuggled, 400)):
        sent = post(body, b"Connection: Upgrade, HTTP2-Settings", *upgrade)
        parts = [sent[: -len(body)], body] if later else [sent]
        responses = answers(running, *parts, post(BODY, CLOSE))
        assert [code for code, _ in responses] == [status, 201]
    assert running.get("/v1/cascades/triage").json()["status"] == "active"
    assert rounds(running) == 3


def test_pipelined_requests_are_answered_in_order_until_invalid_http(running: Served) -> None:
    responses = answers(running, post(BODY) + HEALTH + post(b"{}") + post(BODY, CLOSE))
    assert [status for status, _ in responses] == [201, 200, 422, 201]
    for garbage in (b"\x00\x01 garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\xfc"):
        assert answers(running, garbage) == [(400, b"")]
        responses = answers(running, post(BODY) + garbage)
        assert [status for status, _ in responses] == [201, 400]
    assert rounds(running) == 4


@pytest.mark.parametrize("host", [b"Host: localhost", b"Host: evil.example"])
def test_duplicate_host_headers_are_rejected(unchanged: Served, host: bytes) -> None:
    [(status, body)] = answers(unchanged, post(BODY, host, CLOSE))
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")


def test_duplicate_length_headers_are_rejected(unchanged: Served) -> None:
    responses = answers(unchanged, post(BODY, b"Content-Length: 5"))
    assert responses == [(400, b"")]


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "large",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
        b"GET /" + b"x" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"X: xxxxxxxxxx\r\n" * 7000,
    ],
)
def test_a_head_beyond_the_limit_is_rejected(unchanged: Served, large: bytes) -> None:
    assert answers(unchanged, large) == [(431, b"")]
    assert answers(unchanged, large + b"\r\n\r\n") == [(431, b"")]


def test_a_body_beyond_the_limit_is_rejected(tmp_path: Path) -> None:
    with served(tmp_path, max_body=100_000) as running:
        running.post("/v1/cascades", SPEC)
        for length in (100_001, 10**17):  # rejected from the declared length
            for expect in ((), (b"Expect: 100-continue",)):
                sent = head(b"Content-Length: %d" % length, *expect)
                [(status, body)] = answers(running, sent)
                assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
        exact = BODY.ljust(100_000)  # exactly the limit
        parts = iter([exact[:3], b"", exact[3:11], exact[11:]])  # sent in chunks
        for content in (exact, parts):
            assert running.post(ROUNDS, content=content, headers=JSON).status_code == 201
        parts = iter([b" " * 10_000] * 1000)
        with suppress(httpx.WriteError):  # closed while sending
            refused = running.post(ROUNDS, content=parts, headers=JSON)
            assert refused.json()["error"]["code"] == "too_large"
        assert rounds(running) == 2


# -- incomplete bodies -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ROUNDS, RETIRE, "/v1/cascades"])
@pytest.mark.parametrize(
    ("header", "sent"),
    [
        (b"Content-Length: 40", b""),
        (b"Content-Length: 40", BODY[:9]),
        (CHUNKED, b""),
        (CHUNKED, b"17\r\n" + BODY + b"\r\n"),
        (CHUNKED, b"17\r\n" + BODY + b"\r\nzz\r\n"),
        (CHUNKED, b"zz\r\n"),
    ],
)
def test_an_incomplete_body_is_rejected_and_has_no_effect(
    unchanged: Served, caplog: pytest.LogCaptureFixture, path: str, header: bytes, sent: bytes
) -> None:
    with unchanged.connect() as connection:
        connection.sendall(head(header, path=path) + sent)
        connection.shutdown(socket.SHUT_WR)
        responses = split(received(connection))
    assert [status for status, _ in responses] in ([400], [])
    assert unchanged.get("/v1/cascades/triage").json()["status"] == "active"
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


# -- trailers --------------------------------------------------------------------------------------

CHUNK = b"17\r\n" + BODY + b"\r\n"
TRAILERS = (b"X-Sum: 1\r\n", b"X-Sum: 1\r\n" + b"X-Long: " + b"x" * 4000 + b"\r\n")
TOO_LONG = (b"X-Long: " + b"x" * 20_000 + b"\r\n", b"X: x\r\n" * 10_000)
ANNOUNCED = b"Trailer: X-Sum, X-Long"


@pytest.mark.parametrize("trailers", TRAILERS, ids=["short", "long"])
def test_announced_trailers_are_ignored(running: Served, trailers: bytes) -> None:
    sent = head(CHUNKED, ANNOUNCED) + CHUNK + b"0\r\n" + trailers + b"\r\n"
    responses = answers(running, sent, sent + post(BODY, CLOSE))  # keep-alive
    assert [status for status, _ in responses] == [201, 201, 201]
    split_everywhere = [sent[k : k + 1] for k in range(len(sent) - 60, len(sent))]
    responses = answers(running, sent[:-60], *split_everywhere, post(BODY, CLOSE))
    assert [status for status, _ in responses] == [201, 201]
    assert rounds(running) == 5


def test_unannounced_trailers_are_rejected(unchanged: Served) -> None:
    """They cannot be distinguished from an error in a chunk."""
    sent = head(CHUNKED) + CHUNK + b"0\r\nX-Sum: 1\r\n\r\n"
    [(status, body)] = answers(unchanged, sent)
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
    assert b"Trailer header" in body


@pytest.mark.parametrize("large", TOO_LONG, ids=["one", "many"])
def test_trailers_beyond_the_limit_close_the_connection(running: Served, large: bytes) -> None:
    """The request may be executed, because its body is complete; later requests are not."""
    sent = head(CHUNKED, ANNOUNCED) + CHUNK + b"0\r\n" + large + b"\r\n"
    with running.connect() as connection:
        with suppress(OSError):  # closed while sending
            connection.sendall(sent + post(BODY, path=RETIRE))
        responses = split(received(connection))
    assert [status for status, _ in responses] in ([201], [])
    assert running.get("/v1/cascades/triage").json()["status"] == "active"
    assert rounds(running) <= 1


@pytest.mark.parametrize("path", [ROUNDS, RETIRE, "/v1/cascades"])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"5\r\n" + BODY[:5] + b"\r\n",
        b"5\r\n" + BODY[:5] + b"\r\nzz\r\n",
        b"zz\r\n",
    ],
)
def test_incomplete_content_is_rejected_despite_announced_trailers(
    unchanged: Served, path: str, sent: bytes
) -> None:
    with unchanged.connect() as connection:
        connection.sendall(head(CHUNKED, ANNOUNCED, path=path) + sent)
        connection.shutdown(socket.SHUT_WR)
        responses = split(received(connection))
    assert [status for status, _ in responses] in ([400], [422], [])
    assert unchanged.get("/v1/cascades/triage").json()["status"] == "active"


# -- time and number -------------------------------------------------------------------------------


def test_an_incomplete_head_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_TIMEOUT", 2_000)
    with served(tmp_path) as running, ExitStack() as stack:
        waiting: list[tuple[socket.socket, list[int]]] = []
        for sent in (b"", b"GET / HT", HEALTH[:-2], b"\r\n\r\n"):
            for before, statuses in ((b"", []), (HEALTH, [200])):
                connection = stack.enter_context(running.connect())
                connection.sendall(before + sent)
                waiting.append((connection, statuses))
        for connection, statuses in waiting:
            assert [status for status, _ in split(received(connection))] == statuses


def test_an_incomplete_body_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = head(b"Content-Length: 40")
    with served(tmp_path) as running:
        running.post("/v1/cascades", SPEC)
        monkeypatch.setattr(requests, "BODY_TIMEOUT", 0.2)
        for sent in (declared, declared + BODY[:5], head(CHUNKED) + b"17\r\n" + BODY):
            [(status, body)] = answers(running, sent)
            assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
        assert rounds(running) == 0


def test_connections_beyond_the_limit_wait(tmp_path: Path) -> None:
    with served(tmp_path, max_connections=2) as running:
        running.client.close()
        with running.connect() as first, running.connect() as second, running.connect() as third:
            for connection in (first, second):
                connection.sendall(HEALTH)
                assert b"alive" in connection.recv(65536)
            third.sendall(HEALTH)
            second.sendall(HEALTH)
            assert b"alive" in second.recv(65536)
            third.setblocking(False)
            with pytest.raises(BlockingIOError):
                third.recv(65536)
            first.close()
            third.settimeout(30)
            assert b"alive" in third.recv(65536)


# -- memory ----------------------------------------------------------------------------------------


def memory(pid: int) -> int:
    """Return the resident memory of a process in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(kilobytes) >> 10


ATTACKS = {
    "unfinished head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65_536,
    "unfinished trailers": head(CHUNKED) + b"0\r\n" + b"X: xxxxxxxx\r\n" * 20_000,
    "endless body": head(CHUNKED) + (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 16,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_unauthenticated_connections_use_bounded_memory(tmp_path: Path, attack: str) -> None:
    with process(tmp_path, "--keys", keys_in(tmp_path)[0]) as server, ExitStack() as stack:
        place, pid = urlsplit(server.url), server.process.pid
        while httpx.get(f"{server.url}/readyz", verify=False).status_code != 200:
            pass
        before = peak = memory(pid)
        for _ in range(300):
            connection = socket.create_connection((place.hostname, place.port or 0), timeout=60)
            stack.enter_context(connection)
            connection.settimeout(1)
            with suppress(OSError):  # the server closed it or stopped reading
                connection.sendall(ATTACKS[attack])
            peak = max(peak, memory(pid))
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200
        assert max(peak, memory(pid)) - before <= 100
