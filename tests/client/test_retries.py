"""Both clients against a server that fails in scripted ways, over real sockets."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

import stopwise as sw
from stopwise.service.messages import RoundAnswer
from tests.client.scripted import Answer, Drop, Hang, Trickle, serving

Connect = Callable[..., Callable[..., Any]]
OPENED = Answer(
    {"id": "1-a", "status": "open", "arm": "rule", "cost": 0.01, "stop": 0, "next": 0}, 201
)
LEARNED = Answer({"id": "1-a", "status": "learned", "arm": "rule", "cost": 0.01, "stop": 0})
ARMS = [{"name": "rule", "cost": 0.01}, {"name": "model", "cost": 0.2}]
VIEW = {
    "spec": {"name": "triage", "arms": ARMS, "context": 1},
    "status": "active",
    "created": 0.0,
    "n_features": 2,
    "rounds": 0,
    "open": 0,
    "learned": 0,
    "audited": 0,
    "stops": [0, 0],
    "mean_cost": None,
}
ANSWER = RoundAnswer("1-a", "open", "rule", 0.01, stop=0, next=0)


def test_a_connection_that_breaks_after_the_request_is_tried_again(connect: Connect) -> None:
    with serving(Drop(), Drop(), OPENED) as server:
        assert connect(server.url)("open", "triage", [0.5]) == ANSWER
    assert len(server.seen) == 3
    assert len({seen.key for seen in server.seen}) == 1
    assert server.seen[0].key


def test_a_server_that_never_answers_is_a_timeout(connect: Connect) -> None:
    with serving(Hang()) as server, pytest.raises(sw.ServiceError) as caught:
        connect(server.url, timeout=0.2, deadline=0.7)("state")
    assert (caught.value.status, caught.value.code) == (0, "timeout")
    assert len(server.seen) >= 2


def test_an_answer_that_trickles_is_none(connect: Connect) -> None:
    answer = OPENED.body
    with serving(Trickle(answer)) as server, pytest.raises(sw.ServiceError) as caught:
        connect(server.url, timeout=0.3, deadline=0.8)("open", "triage", [0.5])
    assert (caught.value.status, caught.value.code) == (0, "timeout")
    assert len(server.seen) >= 2
    with serving(Trickle(answer), OPENED) as server:
        assert connect(server.url, timeout=0.3)("open", "triage", [0.5]) == ANSWER
        assert len(server.seen) == 2


def test_nobody_there_is_said_so(connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(sw.ServiceError) as caught:
            connect(url, deadline=0.3)("cascades")
        assert not connect(url)("ready")
    assert (caught.value.status, caught.value.code) == (0, "unreachable")
    assert url in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # no foreign traceback above ours


@pytest.mark.parametrize(
    ("method", "args", "answer"),
    [
        ("open_many", ("triage", [[0.5]]), {"rounds": []}),
        ("open", ("triage", [0.5]), OPENED.body),
        ("create", ("triage", sw.Cascade([0.1, 0.2])), VIEW),
    ],
)
def test_whatever_makes_something_has_one_key(
    connect: Connect, method: str, args: tuple[Any, ...], answer: Any
) -> None:
    more = {"context": 1} if method == "create" else {}
    with serving(Drop(), Answer(answer, 201), Answer(answer, 201)) as server:
        connect(server.url)(method, *args, **more)
        connect(server.url)(method, *args, **more, idempotency_key="mine")
    lost, repeated, own = server.seen
    assert lost.key == repeated.key
    assert lost.body == repeated.body == own.body
    assert own.key == "mine"


def test_reading_and_reporting_need_no_key(connect: Connect) -> None:
    with serving(Drop(), LEARNED) as server:
        assert connect(server.url)("report", "triage", "1-a", ["ill"]).status == "learned"
    assert [seen.key for seen in server.seen] == [None, None]
    assert server.seen[1].body == {"outputs": ["ill"], "revealed": [], "final": False}


def test_a_redirect_is_not_followed_with_the_key(connect: Connect) -> None:
    with serving(OPENED) as elsewhere:
        moved = Answer(b"", 307, {"Location": elsewhere.url})
        with serving(moved) as server, pytest.raises(sw.ServiceError) as caught:
            connect(server.url, key="s3cret")("open", "triage", [0.5])
    assert caught.value.status == 307
    assert elsewhere.seen == []


def test_a_path_before_ours_is_kept(connect: Connect) -> None:
    with serving(OPENED) as server:
        connect(server.url + "/behind/a/proxy/")("open", "triage", [0.5])
    assert server.seen[0].path == "/behind/a/proxy/v1/cascades/triage/rounds"


def test_proxies_of_the_environment_are_not_for_this_machine(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens to port 9
    with serving(OPENED) as server:
        assert connect(server.url, deadline=1)("open", "triage", [0.5]) == ANSWER
