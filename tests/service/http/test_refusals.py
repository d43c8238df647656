"""Every way in which a request can be refused: one shape, the right code, the right place."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, cast

import msgspec
import pytest

from stopwise.service import service
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.ledger import Ledger
from stopwise.service.domain.messages import BatchRequest, CascadeSpec, RoundRequest
from stopwise.service.domain.state import State
from stopwise.service.http.errors import CODES
from stopwise.service.http.request import read_json
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.stores.base import EventStore
from tests.service.harness import (
    CONTEXT,
    JSON,
    REVEALING,
    ROUNDS,
    SPEC,
    STAGED,
    Served,
    fault,
    served,
)

CASCADES = "/v1/cascades"
BATCH = f"{ROUNDS}:batch"
RETIRE = f"{CASCADES}/triage/retire"
ID, STAGED_ID = (Ledger(name, 3, 9).id(0) for name in ("triage", "stages"))
OUTPUTS, LABEL = f"{ROUNDS}/{ID}/outputs", f"{ROUNDS}/{ID}/label"


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else 1


def check(running: Served, code: str, path: str, body: object = None, **how: Any) -> str:
    """Check that a request is refused with a code; return the field that the answer names."""
    answer = running.post(path, body, **how)
    assert fault(answer) == (CODES[code].status, code), answer.text
    return answer.json()["error"].get("field", "")


ABSENT = {
    "unknown_path": [
        *("GET /nowhere", "GET /v1", "GET /v2/cascades", f"POST {ROUNDS}/decisions/x"),
        *(f"GET {CASCADES}/..%2f..%2fhealthz", f"GET {CASCADES}/%2e%2e/state"),
    ],
    "method_not_allowed": [
        *(f"POST {ROUNDS}/{ID}", f"GET {ROUNDS}", f"DELETE {CASCADES}/triage", f"PUT {CASCADES}"),
        *("TRACE /healthz", "BREW /healthz"),
    ],
    "unknown_cascade": [
        *(f"GET {CASCADES}/nobody", f"GET {CASCADES}/%00%ff%F0%9F%92%A3"),
        *(f"GET {CASCADES}/{'x' * 5000}", f"POST {CASCADES}/nobody/retire"),
        f"GET {CASCADES}/a%0d%0aSet-Cookie:x",
    ],
    "unknown_round": [
        *(f"GET {ROUNDS}/0-00000", f"GET {ROUNDS}/٣-00000", f"GET {ROUNDS}/{'9' * 400}-00000"),
        *(f"GET {STAGED}/nothing", f"GET {STAGED}/{ID}"),  # the second is of another cascade
    ],
}


@pytest.mark.parametrize("code", ABSENT)
def test_what_does_not_exist(unchanged: Served, code: str) -> None:
    for request in ABSENT[code]:
        answer = unchanged.ask(*request.split(" "))
        assert fault(answer) == (CODES[code].status, code), request
        assert ("allow" in answer.headers) == (code == "method_not_allowed")
        assert len(answer.content) < 500  # what was sent is not sent back at length
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", [CASCADES, ROUNDS, BATCH, OUTPUTS, LABEL])
def test_a_body_that_no_route_takes(unchanged: Served, path: str) -> None:
    for content in (*(b"", b"   ", b"{", b"\xff\xfe{}", b'\xef\xbb\xbf{"context": [1]}', b"{]"),):
        check(unchanged, "bad_request", path, content=content, headers=JSON)
    for content in (
        *(b"null", b"[]", b'"text"', b'{"surprise": 1}', b"[" * 100_000, b'{"a":' * 100_000),
    ):
        check(unchanged, "invalid", path, content=content, headers=JSON)


@pytest.mark.parametrize(
    ("kind", "body", "field", "words"),
    [
        (RoundRequest, '{"context": [1, "2"]}', "context[1]", 'must be a number, not "2"'),
        (RoundRequest, '{"context": {"a": [1]}}', "context[...]", "a number or a string or null"),
        (RoundRequest, '{"context": 3}', "context", "must be an object or an array, not 3"),
        (RoundRequest, '{"context": [1e400]}', "context[0]", "is invalid: number out of range"),
        (RoundRequest, '{"evidence": 1}', "evidence", "must be true or false, not 1"),
        (BatchRequest, "{}", "contexts", "is missing"),
        (BatchRequest, '{"contexts": []}', "contexts", "an array of length at least 1, not []"),
        (CascadeSpec, '{"name": "Big"}', "name", 'digits, - and _), not "Big"'),
        (CascadeSpec, '{"name": "a\\n"}', "name", 'digits, - and _), not "a\\n"'),
        (CascadeSpec, '{"arms": [{"x": 1}]}', "arms[0].x", "is not a known field"),
        (CascadeSpec, '{"arms": [{"name": "b"}]}', "arms[0].cost", "is missing"),
        (CascadeSpec, '{"tradeoff": 0}', "tradeoff", "must be a number of more than 0, not 0"),
        (CascadeSpec, f'["{"x" * 70}"]', None, f'not ["{"x" * 57}…'),  # not at length
    ],
)
def test_the_message_names_the_place_what_is_there_and_what_is_right(
    kind: type[msgspec.Struct], body: str, field: str | None, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read_json(msgspec.json.Decoder(kind), body.encode())
    assert (caught.value.code, caught.value.field) == ("invalid", field)
    assert str(caught.value).startswith(field or "the body")
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ROUNDS, '{"context": [0, 0], "\\u0063ontext": [0.1, 0.1]}'),
        (BATCH, '{"contexts": [[0, 0], {"age": 0, "bmi": 0, "bmi" : 0}]}'),
        (LABEL, '{"label": {"a": [{"b": 1, "b": 1}]}}'),
    ],
)
def test_a_field_that_is_there_twice_is_refused(unchanged: Served, path: str, body: str) -> None:
    field = check(unchanged, "invalid", path, content=body.encode(), headers=JSON)
    assert f'"{field}"' in body


def test_words_that_are_there_twice_in_values_are_not_refused(running: Served) -> None:
    batch = {"contexts": [{"age": 0, "bmi": 0}] * 2}
    assert running.post(BATCH, batch).status_code == 201
    value = {"outputs": '"outputs": "outputs"', "a": [{"a": 1}, {"a": 1}]}
    outputs = {"outputs": [value, "outputs", '"outputs"']}
    assert running.post(OUTPUTS, outputs).json()["status"] == "learned"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"features": {"kind": "magic"}}, "features"),
        ({"features": {"kind": "custom", "name": "f", "n_features": 2}}, "features"),
        ({"features": {"kind": nested(40)}}, "features"),
        ({"features": {"kind": "identity", "bound": 10**30}}, ""),  # no log can hold it
        ({"policy": {"kind": nested(40)}}, "policy"),
        ({"policy": {"kind": "oracle"}}, "policy.kind"),
        ({"policy": {"kind": "uss-pd", "delta": 2}}, "policy"),
        ({"policy": {"kind": "uss-pd", "delta": "0.05"}}, "policy.delta"),
        ({"policy": {"kind": "uss-pd", "speed": 1}}, "policy.speed"),
        ({"context": ["age", "age"]}, "context"),
        ({"arms": [{"name": "a", "cost": 1}, {"name": "a", "cost": 1}]}, "arms"),
    ],
)
def test_a_cascade_that_cannot_be(unchanged: Served, change: dict[str, object], field: str) -> None:
    found = check(unchanged, "invalid", CASCADES, {**SPEC, "name": "new", **change})
    assert found.startswith(field)
    assert fault(unchanged.get(f"{CASCADES}/new")) == (404, "unknown_cascade")


@pytest.mark.parametrize(
    "context",
    [[0.2], [0.2, 0.7, 0.1], {"age": 0.2}, {"age": 0.2, "bmi": 0.7, "shoe": 1}, [0.2, 7]],
)
def test_a_context_that_the_cascade_does_not_take(unchanged: Served, context: object) -> None:
    assert check(unchanged, "invalid", ROUNDS, {"context": context}).startswith("context")
    several = {"contexts": [[0, 0], context]}
    assert check(unchanged, "invalid", BATCH, several).startswith("context")


@pytest.mark.parametrize(
    ("code", "field", "path", "body"),
    [
        ("conflict", "name", CASCADES, {**SPEC, "tradeoff": 2}),
        ("invalid", "", RETIRE, {"a": 1}),
        ("invalid", "contexts", "few/rounds:batch", {"contexts": [[0.2, 0.7]] * 3}),
        ("invalid", "context", "stages/rounds", {"context": [0.1, 0.2, 0.3]}),
        ("invalid", "context", "stages/rounds", {"context": {"a": 0.1}}),
        ("conflict", "", "stages/rounds:batch", {"contexts": [[0.5], [0.5]]}),
        ("invalid", "outputs", OUTPUTS, {"outputs": {"x-ray": 1}}),
        ("invalid", "outputs", OUTPUTS, {"outputs": [1, 2, 3, 4]}),
        ("invalid", "outputs[0]", OUTPUTS, {"outputs": [nested(40)]}),
        ("invalid", "revealed", OUTPUTS, {"outputs": [1], "revealed": [0.1]}),
        ("conflict", "", LABEL, {"label": "ill"}),  # it was not learned from
        ("invalid", "label", LABEL, {"label": None}),
        ("conflict", "outputs", "staged", {"outputs": {"model": 1}, "revealed": [0.1]}),
        ("conflict", "outputs", "staged", {"outputs": [1, 1]}),
        ("invalid", "revealed", "staged", {"outputs": [1, 1], "revealed": [0.1]}),
        ("invalid", "revealed", "staged", {"outputs": [1]}),
        ("invalid", "revealed", "staged", {"outputs": [1], "revealed": [7]}),  # beyond the bound
    ],
)
def test_what_a_cascade_or_round_does_not_take(
    unchanged: Served, code: str, field: str, path: str, body: dict[str, object]
) -> None:
    path = f"{STAGED}/{STAGED_ID}/outputs" if path == "staged" else path
    path = path if path.startswith("/") else f"{CASCADES}/{path}"
    assert check(unchanged, code, path, body) == field


def test_a_revealed_number_out_of_range_is_refused_though_it_has_no_name(running: Served) -> None:
    """Names are of the numbers known at the start; a stage reveals the one after these."""
    running.post(CASCADES, {**REVEALING, "name": "named", "context": ["age"]})
    url = f"{CASCADES}/named/rounds"
    opened = running.post(url, {"context": [0.5]}).json()
    outputs = f"{url}/{opened['id']}/outputs"
    assert check(running, "invalid", outputs, {"outputs": [1], "revealed": [7]}) == "revealed"
    assert running.post(outputs, {"outputs": [1], "revealed": [0.7]}).status_code == 200


@pytest.mark.parametrize("path", [ROUNDS, CASCADES, RETIRE])
def test_a_body_that_is_not_declared_as_json(unchanged: Served, path: str) -> None:
    for headers in (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        check(unchanged, "unsupported_media_type", path, content=b"{}", headers=headers)


def test_json_may_be_declared_in_several_ways_and_an_empty_body_left_out(running: Served) -> None:
    for kind in (
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json ;charset="UTF-8"',
    ):
        headers = {"Content-Type": kind}
        assert running.post(ROUNDS, content=b'{"context": [0, 0]}', headers=headers).is_success
    assert running.post(RETIRE).status_code == 200
    assert running.post(RETIRE, {}).status_code == 200


@pytest.mark.parametrize("keys", [[b""], [b"two words"], [b"k" * 201], [b"\xfc"], [b"1", b"2"]])
def test_an_idempotency_key_is_one_of_visible_ascii_characters(
    unchanged: Served, keys: list[bytes]
) -> None:
    headers = [(b"Idempotency-Key", key) for key in keys]
    for path, body in ((ROUNDS, CONTEXT), (CASCADES, {**SPEC, "name": "new"})):
        answer = unchanged.client.post(path, json=body, headers=headers)
        assert fault(answer) == (422, "invalid")
        assert answer.json()["error"]["field"] == "Idempotency-Key"


def test_limits_of_the_service(tmp_path: Path) -> None:
    limits = {"max_batch": 3, "max_cascades": 1, "max_features": 10, "max_context": 2}
    with served(tmp_path, **limits) as running:
        running.post(CASCADES, SPEC)
        check(running, "too_large", BATCH, {"contexts": [[0, 0]] * 4})
        assert running.post(BATCH, {"contexts": [[0, 0]] * 3}).status_code == 201
        check(running, "conflict", CASCADES, {**SPEC, "name": "two"})
        for change in ({"context": 3}, {"features": {"kind": "polynomial", "degree": 4}}):
            check(running, "invalid", CASCADES, {**SPEC, "name": "big", **change})


def test_more_requests_than_may_wait_are_refused_with_429(tmp_path: Path) -> None:
    with served(tmp_path, max_waiting=1) as running, ThreadPoolExecutor(16) as pool:
        running.post(CASCADES, SPEC)
        answers = []
        while not any(answer.status_code == 429 for answer in answers):
            answers += pool.map(lambda _: running.post(ROUNDS, CONTEXT), range(50))
        refused = [answer for answer in answers if answer.status_code != 201]
        for answer in refused:
            assert fault(answer) == (429, "too_many_requests")
            assert int(answer.headers["retry-after"]) >= 1
        opened = len(answers) - len(refused)
        assert running.get(f"{CASCADES}/triage").json()["rounds"] == opened


def test_while_the_log_is_read_only_health_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Event()

    async def recover_late(store: EventStore, *what: Any, **how: Any) -> State:
        await asyncio.to_thread(read.wait)
        return await recover_state(store, *what, **how)

    with served(tmp_path) as running:
        running.post(CASCADES, SPEC)
        end = running.get("/v1/state").json()
    monkeypatch.setattr(service, "recover_state", recover_late)
    running = Served(running.settings)
    try:
        assert running.get("/healthz").status_code == 200
        assert "stopwise_ready 0.0" in running.get("/metrics").text
        for path in ("/readyz", CASCADES, "/v1/state", f"{ROUNDS}/{ID}"):
            assert fault(running.get(path)) == (503, "unavailable"), path
        for path, body in ((ROUNDS, CONTEXT), (CASCADES, SPEC), (RETIRE, None)):
            answer = running.post(path, body)
            assert fault(answer) == (503, "unavailable"), path
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
    assert vars(record)["request"] == number
    assert "NoneType" in str(record.exc_info[1] if record.exc_info else "")
    again = running.get("/metrics", headers={"X-Request-Id": "mine-17"})
    assert again.headers["x-request-id"] == "mine-17"
