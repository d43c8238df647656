"""The application behind a real server, on a real connection."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.http.door import SPEC, fault
from tests.service.http.live import served

DECISIONS = "/v1/cascades/triage/decisions"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served"), max_body=100_000) as address:
        assert httpx.post(f"{address}/v1/cascades", json=SPEC).status_code == 201
        yield address


def test_a_body_in_chunks_is_read_and_limited(address: str) -> None:
    json = {"Content-Type": "application/json"}
    parts = iter([b'{"con', b'text": [0.1', b", 0.2]}"])
    assert httpx.post(address + DECISIONS, content=parts, headers=json).status_code == 201
    for path in (DECISIONS, "/v1/cascades"):
        parts = iter([b" " * 10_000] * 1000)
        try:
            refused = httpx.post(address + path, content=parts, headers=json)
        except httpx.WriteError:  # refused, and the connection closed, while we were still sending
            continue
        assert fault(refused) == (413, "too_large")


def test_what_is_declared_too_large_is_refused_at_once(address: str) -> None:
    """The server does not wait for a body that it will not read."""
    with _connected(address) as line:
        line.sendall(
            f"POST {DECISIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 100001\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert line.recv(15) == b"HTTP/1.1 413 Re"


def test_head_get_and_a_connection_that_is_kept(address: str) -> None:
    with httpx.Client(base_url=address) as client:
        for _ in range(2):
            head, whole = client.head("/v1/cascades"), client.get("/v1/cascades")
            assert head.status_code == whole.status_code == 200
            assert head.headers["content-length"] == whole.headers["content-length"]
            assert head.content == b""


def test_escapes_in_a_path_reach_nothing_else(address: str) -> None:
    for path in (
        "/v1/cascades/triage%2Fretire",
        "/v1/cascades/..%2f..%2fhealthz",
        "/v1/cascades/%2e%2e/state",
        "/v1/cascades/a%0d%0aSet-Cookie:x",
        "/v1/cascades/%F0%28%8C%28",
        "/v1/cascades/a%00b",
    ):
        with _connected(address) as line:
            line.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: line.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split()[1] in {b"404", b"405"}, (path, head)
        assert json.loads(body)["error"]["code"], path
        assert b"set-cookie" not in head.lower()


def test_many_at_once_are_all_kept_and_all_different(address: str) -> None:
    with httpx.Client(base_url=address) as client:
        before = client.get("/v1/cascades/triage").json()["decisions"]

        def decide(_: int) -> str:
            answer = client.post(DECISIONS, json={"context": [0.1, 0.2]})
            assert answer.status_code == 201
            id_ = answer.json()["id"]
            told = client.post(f"{DECISIONS}/{id_}/outputs", json={"outputs": [1, 1, 1]})
            assert told.status_code in {200, 409}  # 409: it stopped earlier than the last arm
            return id_

        with ThreadPoolExecutor(8) as pool:
            ids = set(pool.map(decide, range(200)))
        assert len(ids) == 200
        assert client.get("/v1/cascades/triage").json()["decisions"] == before + 200


def _connected(address: str) -> socket.socket:
    place = urlsplit(address)
    line = socket.create_connection((place.hostname or "", place.port or 0), timeout=20)
    line.settimeout(20)
    return line
