"""Rejected requests: status, code, field and message of every error."""

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
    """Check that a request is rejected with a code; return the field in the error."""
    answer = running.post(path, body, **how)
    assert fault(answer) == (CODES[code].status, code), answer.text
    return answer.json()["error"].get("field", "")


UNKNOWN = {
    "unknown_path": [
        "GET /nowhere",
        "GET /v1",
        "GET /v2/cascades",
        f"POST {ROUNDS}/decisions/x",
        f"GET {CASCADES}/..%2f..%2fhealthz",
        f"GET {CASCADES}/%2e%2e/state",
    ],
    "method_not_allowed": [
        f"POST {ROUNDS}/{ID}",
        f"GET {ROUNDS}",
        f"DELETE {CASCADES}/triage",
        f"PUT {CASCADES}",
        "TRACE /healthz",
        "BREW /healthz",
    ],
    "unknown_cascade": [
        f"GET {CASCADES}/missing",
        f"GET {CASCADES}/%00%ff%F0%9F%92%A3",
        f"GET {CASCADES}/{'x' * 5000}",
        f"POST {CASCADES}/missing/retire",
        f"GET {CASCADES}/a%0d%0aSet-Cookie:x",
    ],
    "unknown_round": [
        f"GET {ROUNDS}/0-00000",
        f"GET {ROUNDS}/٣-00000",
        f"GET {ROUNDS}/{'9' * 400}-00000",
        f"GET {STAGED}/nothing",
        f"GET {STAGED}/{ID}",  # the id of a round of another cascade
    ],
}


@pytest.mark.parametrize("code", UNKNOWN)
def test_unknown_paths_methods_cascades_and_rounds_have_documented_errors(
    unchanged: Served, code: str
) -> None:
    for request in UNKNOWN[code]:
        answer = unchanged.ask(*request.split(" "))
        assert fault(answer) == (CODES[code].status, code), request
        assert ("allow" in answer.headers) == (code == "method_not_allowed")
        assert len(answer.content) < 500  # long input is not repeated
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", [CASCADES, ROUNDS, BATCH, OUTPUTS, LABEL])
@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("bad_request", b""),
        ("bad_request", b"   "),
        ("bad_request", b"{"),
        ("bad_request", b"\xff\xfe{}"),
        ("bad_request", b'\xef\xbb\xbf{"context": [1]}'),
        ("bad_request", b"{]"),
        ("invalid", b"null"),
        ("invalid", b"[]"),
        ("invalid", b'"text"'),
        ("invalid", b'{"surprise": 1}'),
        pytest.param("invalid", b"[" * 100_000, id="nested arrays"),
        pytest.param("invalid", b'{"a":' * 100_000, id="nested objects"),
    ],
)
def test_malformed_bodies_are_rejected_by_every_route(
    unchanged: Served, path: str, code: str, content: bytes
) -> None:
    check(unchanged, code, path, content=content, headers=JSON)


@pytest.mark.parametrize(
    ("type_", "body", "field", "message"),
    [
        (RoundRequest, '{"context": [1, "2"]}', "context[1]", 'must be a number, got "2"'),
        (RoundRequest, '{"context": {"a": [1]}}', "context[...]", "a number or a string or null"),
        (RoundRequest, '{"context": 3}', "context", "must be an object or an array, got 3"),
        (RoundRequest, '{"context": [1e400]}', "context[0]", "is invalid: number out of range"),
        (RoundRequest, '{"evidence": 1}', "evidence", "must be true or false, got 1"),
        (BatchRequest, "{}", "contexts", "is missing"),
        (BatchRequest, '{"contexts": []}', "contexts", "an array of length >= 1, got []"),
        (CascadeSpec, '{"name": "Big"}', "name", 'digits, - and _), got "Big"'),
        (CascadeSpec, '{"name": "a\\n"}', "name", 'digits, - and _), got "a\\n"'),
        (CascadeSpec, '{"arms": [{"x": 1}]}', "arms[0].x", "is an unknown field"),
        (CascadeSpec, '{"arms": [{"name": "b"}]}', "arms[0].cost", "is missing"),
        (CascadeSpec, '{"tradeoff": 0}', "tradeoff", "must be a number > 0, got 0"),
        (CascadeSpec, f'["{"x" * 70}"]', None, f'got ["{"x" * 57}…'),  # not at length
    ],
)
def test_the_message_has_the_field_the_expected_type_and_the_value(
    type_: type[msgspec.Struct], body: str, field: str | None, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read_json(msgspec.json.Decoder(type_), body.encode())
    assert (caught.value.code, caught.value.field) == ("invalid", field)
    assert str(caught.value).startswith(field or "the body")
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ROUNDS, '{"context": [0, 0], "\\u0063ontext": [0.1, 0.1]}'),
        (BATCH, '{"contexts": [[0, 0], {"age": 0, "bmi": 0, "bmi" : 0}]}'),
        (LABEL, '{"label": {"a": [{"b": 1, "b": 1}]}}'),
    ],
)
def test_a_duplicate_field_is_rejected(unchanged: Served, path: str, body: str) -> None:
    field = check(unchanged, "invalid", path, content=body.encode(), headers=JSON)
    assert f'"{field}"' in body


def test_field_names_may_repeat_in_different_objects_and_values(running: Served) -> None:
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
        ({"features": {"kind": "identity", "bound": 10**30}}, ""),  # too large to store
        ({"policy": {"kind": nested(40)}}, "policy"),
        ({"policy": {"kind": "oracle"}}, "policy.kind"),
        ({"policy": {"kind": "uss-pd", "delta": 2}}, "policy"),
        ({"policy": {"kind": "uss-pd", "delta": "0.05"}}, "policy.delta"),
        ({"policy": {"kind": "uss-pd", "speed": 1}}, "policy.speed"),
        ({"context": ["age", "age"]}, "context"),
        ({"arms": [{"name": "a", "cost": 1}, {"name": "a", "cost": 1}]}, "arms"),
    ],
)
def test_an_invalid_cascade_is_rejected(
    unchanged: Served, change: dict[str, object], field: str
) -> None:
    invalid = check(unchanged, "invalid", CASCADES, {**SPEC, "name": "new", **change})
    assert invalid.startswith(field)
    assert fault(unchanged.get(f"{CASCADES}/new")) == (404, "unknown_cascade")


@pytest.mark.parametrize(
    "context",
    [[0.2], [0.2, 0.7, 0.1], {"age": 0.2}, {"age": 0.2, "bmi": 0.7, "shoe": 1}, [0.2, 7]],
)
def test_an_invalid_context_is_rejected(unchanged: Served, context: object) -> None:
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
        ("conflict", "", LABEL, {"label": "ill"}),  # not learned yet
        ("invalid", "label", LABEL, {"label": None}),
        ("conflict", "outputs", "staged", {"outputs": {"model": 1}, "revealed": [0.1]}),
        ("conflict", "outputs", "staged", {"outputs": [1, 1]}),
        ("invalid", "revealed", "staged", {"outputs": [1, 1], "revealed": [0.1]}),
        ("invalid", "revealed", "staged", {"outputs": [1]}),
        ("invalid", "revealed", "staged", {"outputs": [1], "revealed": [7]}),  # out of range
    ],
)
def test_requests_that_do_not_fit_their_cascade_or_round_are_rejected(
    unchanged: Served, code: str, field: str, path: str, body: dict[str, object]
) -> None:
    path = f"{STAGED}/{STAGED_ID}/outputs" if path == "staged" else path
    path = path if path.startswith("/") else f"{CASCADES}/{path}"
    assert check(unchanged, code, path, body) == field


def test_an_unnamed_revealed_number_out_of_range_is_rejected(running: Served) -> None:
    running.post(CASCADES, {**REVEALING, "name": "named", "context": ["age"]})
    url = f"{CASCADES}/named/rounds"
    opened = running.post(url, {"context": [0.5]}).json()
    outputs = f"{url}/{opened['id']}/outputs"
    assert check(running, "invalid", outputs, {"outputs": [1], "revealed": [7]}) == "revealed"
    assert running.post(outputs, {"outputs": [1], "revealed": [0.7]}).status_code == 200


@pytest.mark.parametrize("path", [ROUNDS, CASCADES, RETIRE])
def test_a_body_must_be_declared_as_json(unchanged: Served, path: str) -> None:
    for headers in (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        check(unchanged, "unsupported_media_type", path, content=b"{}", headers=headers)


def test_json_media_types_and_empty_bodies_are_accepted(running: Served) -> None:
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
@pytest.mark.parametrize(("path", "body"), [(ROUNDS, CONTEXT), (CASCADES, {**SPEC, "name": "new"})])
def test_an_invalid_idempotency_key_is_rejected(
    unchanged: Served, keys: list[bytes], path: str, body: dict[str, object]
) -> None:
    headers = [(b"Idempotency-Key", key) for key in keys]
    answer = unchanged.client.post(path, json=body, headers=headers)
    assert fault(answer) == (422, "invalid")
    assert answer.json()["error"]["field"] == "Idempotency-Key"


def test_the_limits_of_the_service_are_enforced(tmp_path: Path) -> None:
    limits = {"max_batch": 3, "max_cascades": 1, "max_features": 10, "max_context": 2}
    with served(tmp_path, **limits) as running:
        running.post(CASCADES, SPEC)
        check(running, "too_large", BATCH, {"contexts": [[0, 0]] * 4})
        assert running.post(BATCH, {"contexts": [[0, 0]] * 3}).status_code == 201
        check(running, "conflict", CASCADES, {**SPEC, "name": "two"})
        for change in ({"context": 3}, {"features": {"kind": "polynomial", "degree": 4}}):
            check(running, "invalid", CASCADES, {**SPEC, "name": "big", **change})


def test_requests_beyond_max_waiting_get_429(tmp_path: Path) -> None:
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


def test_while_the_log_is_loading_requests_get_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Event()

    async def recover_late(store: EventStore, *arguments: Any, **options: Any) -> State:
        await asyncio.to_thread(read.wait)
        return await recover_state(store, *arguments, **options)

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


def test_an_internal_error_is_logged_and_not_revealed(
    running: Served, caplog: pytest.LogCaptureFixture
) -> None:
    running.service.counters.answers["route", 200] = cast(Any, None)  # breaks /metrics
    with caplog.at_level("ERROR"):
        answer = running.get("/metrics")
    assert fault(answer) == (500, "internal")
    request_id = answer.headers["x-request-id"]
    assert request_id in answer.text
    assert "NoneType" not in answer.text
    [record] = [record for record in caplog.records if record.exc_info]
    assert vars(record)["request"] == request_id
    assert "NoneType" in str(record.exc_info[1] if record.exc_info else "")
    again = running.get("/metrics", headers={"X-Request-Id": "mine-17"})
    assert again.headers["x-request-id"] == "mine-17"
