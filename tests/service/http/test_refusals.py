"""Every way in which a request can be refused: one shape, the right code, words that help."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from stopwise.service.http import faults
from stopwise.service.http.faults import CODES, decoded
from stopwise.service.messages import BatchRequest, CascadeSpec, DecisionRequest, StepRequest
from stopwise.service.refusals import Refusal
from tests.service.http.door import SPEC, Door, fault, opened

DECISIONS = "/v1/cascades/triage/decisions"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/nowhere", (404, "unknown_path")),
        ("GET", "/v1", (404, "unknown_path")),
        ("GET", "/v2/cascades", (404, "unknown_path")),
        ("POST", "/v1/cascades/triage/decisions/1-00000", (405, "method_not_allowed")),
        ("GET", DECISIONS, (405, "method_not_allowed")),
        ("DELETE", "/v1/cascades/triage", (405, "method_not_allowed")),
        ("PUT", "/v1/cascades", (405, "method_not_allowed")),
        ("TRACE", "/healthz", (405, "method_not_allowed")),
        ("BREW", "/healthz", (405, "method_not_allowed")),
        ("GET", "/v1/cascades/nobody", (404, "unknown_cascade")),
        ("GET", "/v1/cascades/%00%ff%F0%9F%92%A3", (404, "unknown_cascade")),
        ("GET", f"/v1/cascades/{'x' * 5000}", (404, "unknown_cascade")),
        ("POST", "/v1/cascades/nobody/retire", (404, "unknown_cascade")),
        ("GET", f"{DECISIONS}/0-00000", (404, "unknown_decision")),
        ("GET", f"{DECISIONS}/٣-00000", (404, "unknown_decision")),
        ("GET", f"{DECISIONS}/{'9' * 400}-00000", (404, "unknown_decision")),
        ("GET", "/v1/cascades/stages/rounds/0-00000", (404, "unknown_round")),
        ("POST", "/v1/cascades/stages/rounds/nothing/end", (404, "unknown_round")),
    ],
)
def test_what_is_not_there(still: Door, method: str, path: str, wanted: tuple[int, str]) -> None:
    refused = still.ask(method, path)
    assert fault(refused) == wanted
    assert ("allow" in refused.headers) == (wanted[0] == 405)
    assert len(refused.content) < 500  # what was sent is not sent back at length


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/cascades/nobody/decisions", {"context": [1]}),
        ("/v1/cascades/nobody/decisions:batch", {"contexts": [[1]]}),
        ("/v1/cascades/nobody/decisions/0-00000/outputs", {"outputs": []}),
        ("/v1/cascades/nobody/decisions/0-00000/label", {"label": 1}),
        ("/v1/cascades/nobody/rounds", {}),
        ("/v1/cascades/nobody/rounds/0-00000/steps", {"arm": 0, "output": 1}),
        ("/v1/cascades/nobody/rounds/0-00000/end", None),
    ],
)
def test_a_cascade_that_is_not_there(still: Door, path: str, body: object) -> None:
    refused = still.post(path, body)
    assert fault(refused) == (404, "unknown_cascade")
    assert "'nobody'" in refused.json()["error"]["message"]


BODIES = {
    "/v1/cascades": SPEC,
    DECISIONS: {"context": [0.2, 0.7]},
    f"{DECISIONS}:batch": {"contexts": [[0.2, 0.7]]},
    f"{DECISIONS}/0-00000/outputs": {"outputs": [1]},
    f"{DECISIONS}/0-00000/label": {"label": 1},
    "/v1/cascades/stages/rounds": {"context": [0.5]},
    "/v1/cascades/stages/rounds/0-00000/steps": {"arm": 0, "output": 1},
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
        (b'{"context": [1, "a"}', (400, "bad_request")),  # both: no JSON comes first
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
def test_a_body_that_is_not_what_was_asked_for(
    still: Door, path: str, content: bytes, wanted: tuple[int, str]
) -> None:
    before = still.get("/v1/state").json()
    assert fault(still.post(path, content=content, headers=JSON)) == wanted
    assert still.get("/v1/state").json() == before


@pytest.mark.parametrize(
    ("kind", "body", "field", "words"),
    [
        (DecisionRequest, '{"context": [1, "2"]}', "context[1]", "must be a number, not a string"),
        (DecisionRequest, '{"context": [true]}', "context[0]", "a number, not a truth value"),
        (DecisionRequest, '{"context": {"a": null}}', "context[...]", "a number, not null"),
        (DecisionRequest, '{"context": 3}', "context", "an object or an array, not a whole number"),
        (DecisionRequest, '{"context": [1e400]}', "context[0]", "fits into 64 bits"),
        (DecisionRequest, '{"context": [1' + "0" * 400 + "]}", "context[0]", "fits into 64 bits"),
        (
            DecisionRequest,
            '{"context": [], "evidence": 1}',
            "evidence",
            "true or false, not a whole",
        ),
        (DecisionRequest, "{}", "context", "context is missing"),
        (DecisionRequest, '{"contxt": []}', "contxt", "contxt is no field of this request"),
        (BatchRequest, '{"contexts": []}', "contexts", "must have at least 1 elements"),
        (BatchRequest, '{"contexts": [[0], [0], [1], [0, "x"]]}', "contexts[3][1]", "a number"),
        (StepRequest, '{"arm": 0.5, "output": 1}', "arm", "a whole number, not a number with a"),
        (StepRequest, '{"arm": -1, "output": 1}', "arm", "must be at least 0"),
        (CascadeSpec, '{"name": "Big"}', "name", "lower-case letters, digits, - and _"),
        (CascadeSpec, '{"name": "a\\n"}', "name", "lower-case letters"),
        (CascadeSpec, '{"name": "a", "arms": [{"name": ""}]}', "arms[0].name", "at least 1 char"),
        (CascadeSpec, '{"name": "a", "arms": [{"x": 1}]}', "arms[0].x", "arms[0].x is no field"),
        (CascadeSpec, '{"name": "a", "arms": [{"name": "b"}]}', "arms[0].cost", "is missing"),
        (CascadeSpec, '{"tradeoff": 0}', "tradeoff", "must be more than 0"),
        (CascadeSpec, "[]", None, "the body must be an object, not an array"),
    ],
)
def test_the_message_names_the_place_and_what_is_wanted(
    kind: type, body: str, field: str | None, words: str
) -> None:
    with pytest.raises(Refusal) as caught:
        decoded(msgspec.json.Decoder(kind), body.encode())
    assert (caught.value.status, caught.value.code) == (422, "invalid")
    assert caught.value.field == field
    assert words in str(caught.value)
    assert field is None or str(caught.value).startswith(field)


def test_a_spec_nested_too_deep_is_refused(still: Door) -> None:
    deep: object = 1
    for _ in range(40):
        deep = [deep]
    for part in ("features", "policy"):
        refused = still.post("/v1/cascades", {**SPEC, "name": "deep", part: {"kind": deep}})
        assert fault(refused) == (422, "invalid")
        assert refused.json()["error"]["field"] == part


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
def test_a_cascade_that_cannot_be(still: Door, change: dict[str, object], field: str) -> None:
    refused = still.post("/v1/cascades", {**SPEC, "name": "new", **change})
    assert fault(refused) == (422, "invalid"), refused.text
    assert refused.json()["error"]["field"].startswith(field)
    assert fault(still.get("/v1/cascades/new")) == (404, "unknown_cascade")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ([0.2], "1 numbers"),
        ([0.2, 0.7, 0.1], "3 numbers"),
        ({"age": 0.2}, "missing: bmi"),
        ({"age": 0.2, "bmi": 0.7, "shoe": 1}, "unknown: shoe"),
        ([0.2, 7], "outside the promised [-1, 1]"),
    ],
)
def test_a_context_that_is_not_the_cascades(still: Door, context: object, words: str) -> None:
    refused = still.post(DECISIONS, {"context": context})
    assert fault(refused) == (422, "invalid")
    assert words in refused.json()["error"]["message"]
    assert refused.json()["error"]["field"].startswith("context")
    refused = still.post(f"{DECISIONS}:batch", {"contexts": [[0, 0], context]})
    assert fault(refused) == (422, "invalid")
    assert still.get("/v1/cascades/triage").json()["decisions"] == 0


def test_limits_of_the_service(tmp_path: Path) -> None:
    with opened(tmp_path, max_batch=3, max_cascades=1, max_features=10, max_context=2) as door:
        door.post("/v1/cascades", SPEC)
        four = {"contexts": [[0, 0]] * 4}
        assert fault(door.post(f"{DECISIONS}:batch", four)) == (413, "too_large")
        assert door.post(f"{DECISIONS}:batch", {"contexts": [[0, 0]] * 3}).status_code == 201
        assert fault(door.post("/v1/cascades", {**SPEC, "name": "two"})) == (409, "conflict")
        for change in (
            {"context": 3},
            {"features": {"kind": "polynomial", "degree": 4}},
        ):
            refused = door.post("/v1/cascades", {**SPEC, "name": "big", **change})
            assert fault(refused) == (422, "invalid")


def test_too_many_waiting_are_sent_away_and_told_when_to_come_back(tmp_path: Path) -> None:
    """With one place to wait, of many requests at once some get 429, and what they ask undone."""
    with opened(tmp_path, max_waiting=1) as door:
        door.post("/v1/cascades", SPEC)

        async def at_once() -> list[tuple[int, dict[str, str], bytes]]:
            body = b'{"context": [0.1, 0.2]}'
            length = {"content-type": "application/json", "content-length": str(len(body))}
            return await asyncio.gather(
                *(door.raw("POST", DECISIONS, length, [body]) for _ in range(20))
            )

        answers = door.run(at_once())
        taken = [status for status, _, _ in answers].count(201)
        refused = [(headers, body) for status, headers, body in answers if status == 429]
        assert taken >= 1
        assert taken + len(refused) == 20
        assert refused
        for headers, body in refused:
            assert int(headers["retry-after"]) >= 1
            assert msgspec.json.decode(body)["error"]["code"] == "too_many_requests"
        assert door.get("/v1/cascades/triage").json()["decisions"] == taken


def test_while_the_log_is_being_read_everything_else_must_wait(tmp_path: Path) -> None:
    with opened(tmp_path, snapshot_every=10**9) as door:
        door.post("/v1/cascades", SPEC)
        for _ in range(300):  # a block each
            door.post(DECISIONS, {"context": [0.1, 0.2]})
        end = door.get("/v1/state").json()
    # Without the snapshot that stopping made, the log must be read from its beginning.
    forget_snapshots(tmp_path / "log.db")
    door = Door(door.settings)
    try:
        assert door.get("/healthz").status_code == 200
        for method, path, body in (
            ("GET", "/readyz", None),
            ("GET", "/v1/cascades", None),
            ("GET", "/v1/state", None),
            ("GET", f"{DECISIONS}/0-00000", None),
            ("POST", DECISIONS, {"context": [0.1, 0.2]}),
            ("POST", "/v1/cascades", SPEC),
            ("POST", "/v1/cascades/triage/retire", None),
        ):
            refused = door.ask(method, path, json=body)
            assert fault(refused) == (503, "unavailable"), (method, path)
            assert int(refused.headers["retry-after"]) >= 1
        assert not door.service.ready
        door.wait_until_ready()
        assert door.get("/readyz").status_code == 200
        assert door.get("/v1/state").json() == end
    finally:
        door.close()


def forget_snapshots(file: Path) -> None:
    with closing(sqlite3.connect(file)) as log, log:
        tables = [name for (name,) in log.execute("SELECT name FROM sqlite_master")]
        for name in tables:
            if "snapshot" in name and not name.startswith("sqlite_"):
                log.execute(f"DELETE FROM {name}")


def test_a_defect_is_logged_and_not_told(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """With the metrics of a service broken, whoever asks learns a number and no more."""
    door.service.numbers.answers[("route", 200)] = None  # pyright: ignore[reportArgumentType] (so that counting fails)
    with caplog.at_level("ERROR"):
        refused = door.get("/metrics")
    assert fault(refused) == (500, "internal")
    number = refused.headers["x-request-id"]
    assert number in refused.text
    assert "NoneType" not in refused.text
    [record] = [one for one in caplog.records if one.exc_info]
    assert record.__dict__["stopwise_fields"]["request"] == number
    assert "NoneType" in str(record.exc_info[1] if record.exc_info else "")
    again = door.get("/metrics", headers={"X-Request-Id": "mine-17"})
    assert again.headers["x-request-id"] == "mine-17"


def test_the_table_is_consistent_with_the_answers() -> None:
    for code, row in CODES.items():
        status, _, body = faults.answer(Refusal(row.status, code, "words"))
        assert status == row.status
        assert msgspec.json.decode(body) == {"error": {"code": code, "message": "words"}}
