"""Both clients against a server with scripted failures."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

import stopwise as sw
from stopwise.service.domain.messages import RoundAnswer
from tests.client.scripted import NO_RETRIES, Answer, Drop, Trickle, serving, view

Connect = Callable[..., Callable[..., Any]]
OPENED = Answer(
    {"id": "1-a", "status": "open", "arm": "rule", "cost": 0.01, "stop": 0, "next": 0}, 201
)
ANSWER = RoundAnswer("1-a", "open", "rule", 0.01, stop=0, next=0)


@pytest.mark.parametrize(
    ("method", "args", "answer"),
    [
        ("open_many", ("triage", [[0.5]]), {"rounds": []}),
        ("open", ("triage", [0.5]), OPENED.body),
        ("create", ("triage", sw.Cascade([0.1, 0.2])), view().body),
    ],
)
def test_all_tries_of_a_call_share_an_idempotency_key(
    connect: Connect, method: str, args: tuple[Any, ...], answer: Any
) -> None:
    more = {"context": 1} if method == "create" else {}
    with serving(Drop(), Drop(), Answer(answer, 201), Answer(answer, 201)) as server:
        connect(server.url)(method, *args, **more)
        connect(server.url)(method, *args, **more, idempotency_key="mine")
    lost, again, repeated, own = server.requests
    assert lost.key == again.key == repeated.key
    assert lost.key
    assert lost.body == again.body == repeated.body == own.body
    assert own.key == "mine"


@pytest.mark.parametrize("body", [None, OPENED.body])
def test_a_missing_or_slow_response_times_out(connect: Connect, body: Any) -> None:
    with serving(Trickle(body)) as server, pytest.raises(sw.errors.ServiceError) as caught:
        connect(server.url, timeout=0.3, deadline=0.8)("open", "triage", [0.5])
    assert (caught.value.status, caught.value.code) == (0, "timeout")
    with serving(Trickle(body), OPENED) as server:
        assert connect(server.url, timeout=0.3)("open", "triage", [0.5]) == ANSWER


def test_an_unreachable_address_is_reported(connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(sw.errors.ServiceError) as caught:
            connect(url, rng=NO_RETRIES)("cascades")
        assert not connect(url)("ready")
    assert (caught.value.status, caught.value.code) == (0, "unreachable")
    assert url in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None  # no traceback of httpx


def test_a_redirect_is_not_followed(connect: Connect) -> None:
    with serving(OPENED) as elsewhere:
        moved = Answer(b"", 307, {"Location": elsewhere.url})
        with serving(moved) as server, pytest.raises(sw.errors.ServiceError) as caught:
            connect(server.url, key="s3cret")("open", "triage", [0.5])
    assert caught.value.status == 307
    assert elsewhere.requests == []


def test_a_path_is_preserved_and_proxies_are_not_used_for_loopback(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # an unused port
    with serving(OPENED) as server:
        url = server.url + "/behind/a/proxy/"
        assert connect(url, rng=NO_RETRIES)("open", "triage", [0.5]) == ANSWER
    assert server.requests[0].path == "/behind/a/proxy/v1/cascades/triage/rounds"
