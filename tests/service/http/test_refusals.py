"""Every way in which a request can be refused: one shape, the right code, the right place."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, cast

import msgspec
import pytest

from stopwise.service import service
from stopwise.service.http.request import Body
from stopwise.service.messages import BatchRequest, CascadeSpec, OutputsRequest, RoundRequest
from stopwise.service.recovery import recover_state
from stopwise.service.refusals import Refusal
from stopwise.service.state import State
from stopwise.service.store.base import EventStore
from tests.service.harness import SPEC, Served, fault, served

ROUNDS = "/v1/cascades/triage/rounds"
ROUND = f"{ROUNDS}/0-00000"
CONTEXT = {"context": [0.1, 0.2]}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/nowhere", (404, "unknown_path")),
        ("GET", "/v1", (404, "unknown_path")),
        ("GET", "/v2/cascades", (404, "unknown_path")),
        ("POST", "/v1/cascades/triage/decisions", (404, "unknown_path")),
        ("POST", ROUND, (405, "method_not_allowed")),
        ("GET", ROUNDS, (405, "method_not_allowed")),
        ("DELETE", "/v1/cascades/triage", (405, "method_not_allowed")),
        ("PUT", "/v1/cascades", (405, "method_not_allowed")),
        ("TRACE", "/healthz", (405, "method_not_allowed")),
        ("BREW", "/healthz", (405, "method_not_allowed")),
        ("GET", "/v1/cascades/nobody", (404, "unknown_cascade")),
        ("GET", "/v1/cascades/%00%ff%F0%9F%92%A3", (404, "unknown_cascade")),
        ("GET", f"/v1/cascades/{'x' * 5000}", (404, "unknown_cascade")),
        ("POST", "/v1/cascades/nobody/retire", (404, "unknown_cascade")),
        ("GET", ROUND, (404, "unknown_round")),
        ("GET", f"{ROUNDS}/٣-00000", (404, "unknown_round")),
        ("GET", f"{ROUNDS}/{'9' * 400}-00000", (404, "unknown_round")),
        ("GET", "/v1/cascades/stages/rounds/nothing", (404, "unknown_round")),
    ],
)
def test_what_does_not_exist(
    unchanged: Served, method: str, path: str, wanted: tuple[int, str]
) -> None:
    answer = unchanged.ask(method, path)
    assert fault(answer) == wanted
    assert ("allow" in answer.headers) == (wanted[0] == 405)
    assert len(answer.content) < 500  # what was sent is not sent back at length


BODIES = {
    "/v1/cascades": SPEC,
    ROUNDS: CONTEXT,
    f"{ROUNDS}:batch": {"contexts": [[0.2, 0.7]]},
    f"{ROUND}/outputs": {"outputs": [1]},
    f"{ROUND}/label": {"label": 1},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", (400, "bad_request")),
        (b"   ", (400, "bad_request")),
        (b"{", (400, "bad_request")),
        (b"\xff\xfe{}", (400, "bad_request")),
        (b'\xef\xbb\xbf{"context": [1]}', (400, "bad_request")),  # a byte order mark
        (b'{"context": [NaN]}', (400, "bad_request")),
        (b'{"context": [1, "a"}', (400, "bad_request")),  # wrong type, and not JSON
        (b'{"\\ud800": 1}', (400, "bad_request")),
        (b"{} {}", (400, "bad_request")),
        (b"null", (422, "invalid")),
        (b"[]", (422, "invalid")),
        (b'"text"', (422, "invalid")),
        (b'{"surprise": 1}', (422, "invalid")),
        (b"[" * 100_000, (422, "invalid")),
        (b'{"a":' * 100_000, (422, "invalid")),
    ],
)
def test_a_body_that_the_route_does_not_take(
    unchanged: Served, path: str, content: bytes, wanted: tuple[int, str]
) -> None:
    assert fault(unchanged.post(path, content=content, headers=JSON)) == wanted


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (RoundRequest, '{"context": [1, "2"]}', "context[1]"),
        (RoundRequest, '{"context": [true]}', "context[0]"),
        (RoundRequest, '{"context": {"a": null}}', "context[...]"),
        (RoundRequest, '{"context": 3}', "context"),
        (RoundRequest, '{"context": [1e400]}', "context[0]"),
        (RoundRequest, '{"context": [1' + "0" * 400 + "]}", "context[0]"),
        (RoundRequest, '{"context": [], "evidence": 1}', "evidence"),
        (RoundRequest, '{"contxt": []}', "contxt"),
        (BatchRequest, "{}", "contexts"),
        (BatchRequest, '{"contexts": []}', "contexts"),
        (BatchRequest, '{"contexts": [[0], [0], [1], [0, "x"]]}', "contexts[3][1]"),
        (OutputsRequest, '{"outputs": 1}', "outputs"),
        (OutputsRequest, '{"outputs": [], "revealed": ["x"]}', "revealed[0]"),
        (OutputsRequest, '{"outputs": [], "final": "yes"}', "final"),
        (CascadeSpec, '{"name": "Big"}', "name"),
        (CascadeSpec, '{"name": "a\\n"}', "name"),
        (CascadeSpec, '{"name": "a", "arms": [{"name": ""}]}', "arms[0].name"),
        (CascadeSpec, '{"name": "a", "arms": [{"x": 1}]}', "arms[0].x"),
        (CascadeSpec, '{"name": "a", "arms": [{"name": "b"}]}', "arms[0].cost"),
        (CascadeSpec, '{"tradeoff": 0}', "tradeoff"),
        (CascadeSpec, "[]", None),
    ],
)
def test_the_field_and_the_message_name_the_place(
    kind: type[msgspec.Struct], body: str, field: str | None
) -> None:
    with pytest.raises(Refusal) as caught:
        Body.of(kind).read(body.encode())
    assert (caught.value.status, caught.value.code, caught.value.field) == (422, "invalid", field)
    assert str(caught.value).startswith(field or "the body")
    assert "`" not in str(caught.value)  # in words, not as the decoder has it


NEW = '{"name": "new", "arms": [{"name": "a", "cost": 1}, {"name": "b", "cost": 1}], "context": 1'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ROUNDS, '{"context": [0, 0], "context": [0.1, 0.1]}'),
        (ROUNDS, '{"context": [0, 0], "\\u0063ontext": [0.1, 0.1]}'),
        (ROUNDS, '{"evidence": true, "context": [0, 0], "evidence": false}'),
        (ROUNDS, '{"context": {"age": 0, "bmi": 0, "age": 0.1}}'),
        (ROUNDS, '{"context": {"age": 0, "bmi": 0, "\\u0061ge": 0.1}}'),
        (f"{ROUNDS}:batch", '{"contexts": [[0, 0], {"age": 0, "bmi": 0, "bmi": 0}]}'),
        (f"{ROUND}/outputs", '{"outputs": {"history": 1, "history": 2}}'),
        (f"{ROUND}/outputs", '{"outputs": [{"a": 1, "a": 1}]}'),
        (f"{ROUND}/outputs", '{"outputs": [1], "outputs": [1]}'),
        (f"{ROUND}/label", '{"label": {"a": [{"b": 1, "b": 1}]}}'),
        ("/v1/cascades", NEW + ', "context": 2}'),
        ("/v1/cascades", NEW.replace('"cost": 1}', '"cost": 1, "cost": 2}', 1) + "}"),
        ("/v1/cascades", NEW + ', "features": {"kind": "identity", "bound": 1, "bound": 2}}'),
        ("/v1/cascades", NEW + ', "policy": {"kind": "uss-pd", "kind": "uss-pd"}}'),
    ],
)
def test_a_field_that_is_there_twice_is_refused(unchanged: Served, path: str, body: str) -> None:
    answer = unchanged.post(path, content=body.encode(), headers=JSON)
    assert fault(answer) == (422, "invalid")
    assert answer.json()["error"]["field"] in body.replace("\\u0063", "c").replace("\\u0061", "a")


def test_words_that_are_there_twice_in_values_are_not_refused(running: Served) -> None:
    spec = {**SPEC, "name": "words", "context": ["context", "evidence"]}
    assert running.post("/v1/cascades", spec).status_code == 201
    here = "/v1/cascades/words/rounds"
    context = {"context": {"context": 0.1, "evidence": 0.2}, "evidence": True}
    opened = running.post(here, context)
    assert opened.status_code == 201
    value = {"outputs": '"outputs": "outputs"', "a": [{"a": 1}, {"a": 1}]}
    outputs = [value, "outputs", '"outputs"']
    answer = running.post(f"{here}/{opened.json()['id']}/outputs", {"outputs": outputs})
    assert answer.json()["status"] == "learned"
    batch = {"contexts": [{"context": 0, "evidence": 0}] * 2}
    assert running.post(f"{here}:batch", batch).status_code == 201


def test_a_spec_nested_too_deep_is_refused(unchanged: Served) -> None:
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    for part in ("features", "policy"):
        answer = unchanged.post("/v1/cascades", {**SPEC, "name": "deep", part: {"kind": deep}})
        assert fault(answer) == (422, "invalid")
        assert answer.json()["error"]["field"] == part


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"features": {"kind": "magic"}}, "features"),
        ({"features": {"kind": "custom", "name": "f", "n_features": 2}}, "features"),
        ({"features": {"kind": "polynomial", "degree": 2, "spin": 1}}, "features"),
        ({"features": {}}, "features"),
        ({"features": {"kind": "polynomial", "degree": 40}}, "features"),
        ({"policy": {"kind": "oracle"}}, "policy.kind"),
        ({"policy": {"kind": "uss-pd", "delta": 2}}, "policy"),
        ({"policy": {"kind": "uss-pd", "delta": "0.05"}}, "policy.delta"),
        ({"policy": {"kind": "uss-pd", "speed": 1}}, "policy.speed"),
        ({"context": 1001}, "context"),
        ({"context": ["age", "age"]}, "context"),
        ({"arms": [{"name": "a", "cost": 1}, {"name": "a", "cost": 1}]}, "arms"),
        ({"arms": [{"name": "a", "cost": 1e308}, {"name": "b", "cost": 1e308}]}, "arms"),
    ],
)
def test_a_cascade_that_cannot_be(unchanged: Served, change: dict[str, object], field: str) -> None:
    answer = unchanged.post("/v1/cascades", {**SPEC, "name": "new", **change})
    assert fault(answer) == (422, "invalid"), answer.text
    assert answer.json()["error"]["field"].startswith(field)
    assert fault(unchanged.get("/v1/cascades/new")) == (404, "unknown_cascade")


@pytest.mark.parametrize(
    "context",
    [[0.2], [0.2, 0.7, 0.1], {"age": 0.2}, {"age": 0.2, "bmi": 0.7, "shoe": 1}, [0.2, 7]],
)
def test_a_context_that_the_cascade_does_not_take(unchanged: Served, context: object) -> None:
    for path, body in (
        (ROUNDS, {"context": context}),
        (f"{ROUNDS}:batch", {"contexts": [[0, 0], context]}),
    ):
        answer = unchanged.post(path, body)
        assert fault(answer) == (422, "invalid")
        assert answer.json()["error"]["field"].startswith("context")
    assert unchanged.get("/v1/cascades/triage").json()["rounds"] == 0


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("rounds", {"context": [0.1, 0.2, 0.3]}, (422, "invalid")),  # stages reveal the rest
        ("rounds", {"context": {"a": 0.1}}, (422, "invalid")),
        ("rounds:batch", {"contexts": [[0.5], [0.5]]}, (409, "conflict")),
    ],
)
def test_a_context_that_a_staged_cascade_does_not_take(
    unchanged: Served, path: str, body: dict[str, object], wanted: tuple[int, str]
) -> None:
    assert fault(unchanged.post(f"/v1/cascades/stages/{path}", body)) == wanted


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
@pytest.mark.parametrize("path", [ROUNDS, "/v1/cascades", "/v1/cascades/triage/retire"])
def test_a_body_that_is_not_declared_as_json(
    unchanged: Served, headers: dict[str, str], path: str
) -> None:
    answer = unchanged.post(path, content=b'{"context": [0, 0]}', headers=headers)
    assert fault(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind",
    ["Application/JSON", "application/json; charset=utf-8", 'application/json ;charset="UTF-8"'],
)
def test_json_may_be_declared_in_all_these_ways(running: Served, kind: str) -> None:
    answer = running.post(ROUNDS, content=b'{"context": [0, 0]}', headers={"Content-Type": kind})
    assert answer.status_code == 201


def test_where_no_body_is_needed_none_or_an_empty_one_is_taken(running: Served) -> None:
    retire = "/v1/cascades/triage/retire"
    assert fault(running.post(retire, {"a": 1})) == (422, "invalid")
    assert running.get("/v1/cascades/triage").json()["status"] == "active"
    assert running.post(retire).status_code == 200
    assert running.post(retire, {}).status_code == 200


def test_limits_of_the_service(tmp_path: Path) -> None:
    limits = {"max_batch": 3, "max_cascades": 1, "max_features": 10, "max_context": 2}
    with served(tmp_path, **limits) as running:
        running.post("/v1/cascades", SPEC)
        four = {"contexts": [[0, 0]] * 4}
        assert fault(running.post(f"{ROUNDS}:batch", four)) == (413, "too_large")
        assert running.post(f"{ROUNDS}:batch", {"contexts": [[0, 0]] * 3}).status_code == 201
        assert fault(running.post("/v1/cascades", {**SPEC, "name": "two"})) == (409, "conflict")
        for change in ({"context": 3}, {"features": {"kind": "polynomial", "degree": 4}}):
            answer = running.post("/v1/cascades", {**SPEC, "name": "big", **change})
            assert fault(answer) == (422, "invalid")


def test_more_requests_than_may_wait_are_refused_with_429(tmp_path: Path) -> None:
    with served(tmp_path, max_waiting=1) as running, ThreadPoolExecutor(16) as pool:
        running.post("/v1/cascades", SPEC)
        answers = []
        while not any(answer.status_code == 429 for answer in answers):
            answers += pool.map(lambda _: running.post(ROUNDS, CONTEXT), range(50))
        opened = [answer.status_code for answer in answers].count(201)
        for answer in answers:
            if answer.status_code != 201:
                assert fault(answer) == (429, "too_many_requests")
                assert int(answer.headers["retry-after"]) >= 1
        assert running.get("/v1/cascades/triage").json()["rounds"] == opened


def test_while_the_log_is_read_only_health_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Event()

    async def recover_late(store: EventStore, **how: Any) -> State:
        await asyncio.to_thread(read.wait)
        return await recover_state(store, **how)

    with served(tmp_path) as running:
        running.post("/v1/cascades", SPEC)
        end = running.get("/v1/state").json()
    monkeypatch.setattr(service, "recover_state", recover_late)
    running = Served(running.settings)
    try:
        assert running.get("/healthz").status_code == 200
        assert "stopwise_ready 0.0" in running.get("/metrics").text
        for method, path, body in (
            ("GET", "/readyz", None),
            ("GET", "/v1/cascades", None),
            ("GET", "/v1/state", None),
            ("GET", ROUND, None),
            ("POST", ROUNDS, CONTEXT),
            ("POST", "/v1/cascades", SPEC),
            ("POST", "/v1/cascades/triage/retire", None),
        ):
            answer = running.ask(method, path, json=body)
            assert fault(answer) == (503, "unavailable"), (method, path)
            assert int(answer.headers["retry-after"]) >= 1
        read.set()
        running.wait_until_ready()
        assert running.get("/v1/state").json() == end
    finally:
        read.set()
        running.close()


def test_an_unexpected_error_is_logged_and_not_shown(
    running: Served, caplog: pytest.LogCaptureFixture
) -> None:
    running.service.counters.answers["route", 200] = cast(Any, None)  # so that /metrics fails
    with caplog.at_level("ERROR"):
        answer = running.get("/metrics")
    assert fault(answer) == (500, "internal")
    number = answer.headers["x-request-id"]
    assert number in answer.text
    assert "NoneType" not in answer.text
    [record] = [one for one in caplog.records if one.exc_info]
    assert record.__dict__["stopwise_fields"]["request"] == number
    assert "NoneType" in str(record.exc_info[1] if record.exc_info else "")
    again = running.get("/metrics", headers={"X-Request-Id": "mine-17"})
    assert again.headers["x-request-id"] == "mine-17"
