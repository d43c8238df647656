"""What the server does with bytes: limits of size and time, chunks, upgrades, several requests."""

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
    usual = (b"Host: localhost", b"Content-Type: application/json")
    return b"\r\n".join([first, *usual, *headers]) + b"\r\n\r\n"


def post(body: bytes, *headers: bytes, path: str = ROUNDS) -> bytes:
    return head(b"Content-Length: %d" % len(body), *headers, path=path) + body


def answers(running: Served, *parts: bytes) -> list[tuple[int, bytes]]:
    """Send bytes in segments; return status and body of each answer until it is closed."""
    with running.connect() as line:
        for part in parts:
            line.sendall(part)
            running.get("/healthz")  # so that the server has read it
        return split(received(line))


def split(answer: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while answer:
        first, _, rest = answer.partition(b"\r\n\r\n")
        lines = first.lower().split(b"\r\n")
        [length] = [int(one[15:]) for one in lines if one.startswith(b"content-length:")] or [0]
        found.append((int(first.split()[1]), rest[:length]))
        answer = rest[length:]
    return found


def rounds(running: Served) -> int:
    return running.get("/v1/cascades/triage").json()["rounds"]


# -- several requests, upgrades, and what is not HTTP ----------------------------------------------


@pytest.mark.parametrize("later", [False, True], ids=["at once", "in a later segment"])
@pytest.mark.parametrize("kind", [b"h2c", b"websocket"])
def test_an_upgrade_is_ignored_and_the_body_is_that_of_the_request(
    running: Served, kind: bytes, later: bool
) -> None:
    upgrade = [b"Upgrade: " + kind, b"Sec-WebSocket-Version: 13", b"HTTP2-Settings: AAMAAABkAAQ"]
    smuggled = post(b"", path=RETIRE)
    for body, status in ((BODY, 201), (smuggled, 400)):
        sent = post(body, b"Connection: Upgrade, HTTP2-Settings", *upgrade)
        parts = [sent[: -len(body)], body] if later else [sent]
        found = answers(running, *parts, post(BODY, CLOSE))
        assert [one for one, _ in found] == [status, 201]
    assert running.get("/v1/cascades/triage").json()["status"] == "active"
    assert rounds(running) == 3


def test_requests_are_answered_in_order_until_something_is_not_http(running: Served) -> None:
    found = answers(running, post(BODY) + HEALTH + post(b"{}") + post(BODY, CLOSE))
    assert [status for status, _ in found] == [201, 200, 422, 201]
    for garbage in (b"\x00\x01 garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\xfc"):
        assert answers(running, garbage) == [(400, b"")]
        found = answers(running, post(BODY) + garbage)
        assert [status for status, _ in found] == [201, 400]
    assert rounds(running) == 4


def test_two_hosts_and_two_lengths_are_refused(unchanged: Served) -> None:
    for other in (b"Host: localhost", b"Host: evil.example"):
        [(status, body)] = answers(unchanged, post(BODY, other, CLOSE))
        assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
    found = answers(unchanged, post(BODY, b"Content-Length: 5"))
    assert found == [(400, b"")]


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "large",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
        b"GET /" + b"x" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"X: xxxxxxxxxx\r\n" * 7000,
    ],
)
def test_a_head_that_is_too_large_is_refused_whether_it_ends_or_not(
    unchanged: Served, large: bytes
) -> None:
    assert answers(unchanged, large) == [(431, b"")]
    assert answers(unchanged, large + b"\r\n\r\n") == [(431, b"")]


def test_a_body_is_read_as_far_as_is_allowed(tmp_path: Path) -> None:
    with served(tmp_path, max_body=100_000) as running:
        running.post("/v1/cascades", SPEC)
        for length in (100_001, 10**17):  # declared, and refused before it is sent
            for expect in ((), (b"Expect: 100-continue",)):
                sent = head(b"Content-Length: %d" % length, *expect)
                [(status, body)] = answers(running, sent)
                assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
        exact = BODY.ljust(100_000)  # as large as allowed
        parts = iter([exact[:3], b"", exact[3:11], exact[11:]])  # or in chunks
        for content in (exact, parts):
            assert running.post(ROUNDS, content=content, headers=JSON).status_code == 201
        parts = iter([b" " * 10_000] * 1000)
        with suppress(httpx.WriteError):  # it was closed while this was sending
            refused = running.post(ROUNDS, content=parts, headers=JSON)
            assert refused.json()["error"]["code"] == "too_large"
        assert rounds(running) == 2


# -- bodies that break off -------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ROUNDS, RETIRE, "/v1/cascades"])
def test_a_body_that_breaks_off_is_refused_and_changes_nothing(
    unchanged: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    chunk = b"17\r\n" + BODY + b"\r\n"
    for header, sent in (
        *((b"Content-Length: 40", b""), (b"Content-Length: 40", BODY[:9]), (CHUNKED, b"")),
        *((CHUNKED, chunk), (CHUNKED, chunk + b"zz\r\n"), (CHUNKED, b"zz\r\n")),
    ):
        with unchanged.connect() as line:
            line.sendall(head(header, path=path) + sent)
            line.shutdown(socket.SHUT_WR)
            found = split(received(line))
        assert [status for status, _ in found] in ([400], [])
        assert unchanged.get("/v1/cascades/triage").json()["status"] == "active"
    assert not [one for one in caplog.records if one.levelname in {"WARNING", "ERROR"}]


# -- trailers --------------------------------------------------------------------------------------

CHUNK = b"17\r\n" + BODY + b"\r\n"
TRAILERS = (b"X-Sum: 1\r\n", b"X-Sum: 1\r\n" + b"X-Long: " + b"x" * 4000 + b"\r\n")
TOO_LONG = (b"X-Long: " + b"x" * 20_000 + b"\r\n", b"X: x\r\n" * 10_000)
ANNOUNCED = b"Trailer: X-Sum, X-Long"


@pytest.mark.parametrize("trailers", TRAILERS, ids=["short", "long"])
def test_trailers_that_are_announced_are_ignored(running: Served, trailers: bytes) -> None:
    sent = head(CHUNKED, ANNOUNCED) + CHUNK + b"0\r\n" + trailers + b"\r\n"
    found = answers(running, sent, sent + post(BODY, CLOSE))  # the connection stays open
    assert [status for status, _ in found] == [201, 201, 201]
    split_everywhere = [sent[k : k + 1] for k in range(len(sent) - 60, len(sent))]
    found = answers(running, sent[:-60], *split_everywhere, post(BODY, CLOSE))
    assert [status for status, _ in found] == [201, 201]
    assert rounds(running) == 5


def test_trailers_that_nothing_announces_are_refused(unchanged: Served) -> None:
    """As they cannot be told from an error in a chunk."""
    sent = head(CHUNKED) + CHUNK + b"0\r\nX-Sum: 1\r\n\r\n"
    [(status, body)] = answers(unchanged, sent)
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
    assert b"Trailer header" in body


@pytest.mark.parametrize("large", TOO_LONG, ids=["one", "many"])
def test_trailers_that_are_too_long_end_the_connection(running: Served, large: bytes) -> None:
    """The content before them is complete, so it counts; nothing after it does."""
    sent = head(CHUNKED, ANNOUNCED) + CHUNK + b"0\r\n" + large + b"\r\n"
    with running.connect() as line:
        with suppress(OSError):  # it was closed while this was sending
            line.sendall(sent + post(BODY, path=RETIRE))
        found = split(received(line))
    assert [status for status, _ in found] in ([201], [])
    assert running.get("/v1/cascades/triage").json()["status"] == "active"
    assert rounds(running) <= 1


@pytest.mark.parametrize("path", [ROUNDS, RETIRE, "/v1/cascades"])
def test_content_that_breaks_off_is_refused_although_trailers_were_announced(
    unchanged: Served, path: str
) -> None:
    for sent in (
        b"",
        b"5\r\n" + BODY[:5] + b"\r\n",
        b"5\r\n" + BODY[:5] + b"\r\nzz\r\n",
        b"zz\r\n",
    ):
        with unchanged.connect() as line:
            line.sendall(head(CHUNKED, ANNOUNCED, path=path) + sent)
            line.shutdown(socket.SHUT_WR)
            found = split(received(line))
        assert [status for status, _ in found] in ([400], [422], [])
        assert unchanged.get("/v1/cascades/triage").json()["status"] == "active"


# -- time and number -------------------------------------------------------------------------------


def test_a_head_that_does_not_arrive_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "HEAD_TIMEOUT", 2_000)
    with served(tmp_path) as running, ExitStack() as lines:
        waiting: list[tuple[socket.socket, list[int]]] = []
        for sent in (b"", b"GET / HT", HEALTH[:-2], b"\r\n\r\n"):
            for before, statuses in ((b"", []), (HEALTH, [200])):
                line = lines.enter_context(running.connect())
                line.sendall(before + sent)
                waiting.append((line, statuses))
        for line, statuses in waiting:
            assert [status for status, _ in split(received(line))] == statuses


def test_a_body_that_does_not_arrive_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = head(b"Content-Length: 40")
    with served(tmp_path) as running:
        running.post("/v1/cascades", SPEC)
        monkeypatch.setattr(requests, "BODY_TIMEOUT", 0.2)
        for sent in (declared, declared + BODY[:5], head(CHUNKED) + b"17\r\n" + BODY):
            [(status, body)] = answers(running, sent)
            assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")
        assert rounds(running) == 0


def test_connections_beyond_the_limit_wait_until_one_is_closed(tmp_path: Path) -> None:
    with served(tmp_path, max_connections=2) as running:
        running.client.close()
        with running.connect() as first, running.connect() as second, running.connect() as third:
            for line in (first, second):
                line.sendall(HEALTH)
                assert b"alive" in line.recv(65536)
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
    """Return the megabytes that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(kilobytes) >> 10


ATTACKS = {
    "unfinished head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65_536,
    "unfinished trailers": head(CHUNKED) + b"0\r\n" + b"X: xxxxxxxx\r\n" * 20_000,
    "endless body": head(CHUNKED) + (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 16,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_peers_without_a_key_cannot_fill_the_memory(tmp_path: Path, attack: str) -> None:
    with process(tmp_path, "--keys", keys_in(tmp_path)[0]) as server, ExitStack() as lines:
        place, pid = urlsplit(server.url), server.process.pid
        while httpx.get(f"{server.url}/readyz", verify=False).status_code != 200:
            pass
        before = grown = memory(pid)
        for _ in range(300):
            line = socket.create_connection((place.hostname, place.port or 0), timeout=60)
            lines.enter_context(line)
            line.settimeout(1)
            with suppress(OSError):  # it closes the connection, or reads no more of it
                line.sendall(ATTACKS[attack])
            grown = max(grown, memory(pid))
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200
        assert max(grown, memory(pid)) - before <= 100
