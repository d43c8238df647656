"""Successful requests: responses, repeats with an Idempotency-Key, and restarts."""

from pathlib import Path
from typing import Any

import pytest

from stopwise.version import __version__
from tests.service.harness import CONTEXT, REVEALING, ROUNDS, SPEC, STAGED, Served, fault, served

CASCADES = "/v1/cascades"
BATCH = f"{ROUNDS}:batch"


def open_round(running: Served) -> str:
    """Open a round of "triage"; return its path."""
    answer = running.post(ROUNDS, CONTEXT)
    assert answer.status_code == 201
    return f"{ROUNDS}/{answer.json()['id']}"


def test_evidence_is_returned_on_request(running: Served) -> None:
    for _ in range(60):  # forced rounds have no evidence
        opened = running.post(ROUNDS, CONTEXT).json()
        outputs = ["a"] * (opened["stop"] + 1)
        running.post(f"{ROUNDS}/{opened['id']}/outputs", {"outputs": outputs})
    assert "evidence" not in opened
    batch = running.post(BATCH, {"contexts": [[0.1, 0.2], [0.2, 0.7]], "evidence": True})
    assert all(round_["reason"] and "evidence" in round_ for round_ in batch.json()["rounds"])
    explained = running.post(ROUNDS, {**CONTEXT, "evidence": True}).json()
    gaps = {(pair["first"], pair["second"]): pair["gap"] for pair in explained["evidence"]}
    assert list(gaps)[:2] == [("history", "glucose"), ("history", "insulin")]
    assert gaps["history", "insulin"] == pytest.approx(0.49)
    assert explained["reason"]


def test_outputs_are_any_json_values(running: Served) -> None:
    path = open_round(running)
    values = [{"b": [1, None, "ä\u0000"], "a": -0.0}, False, 10**40]
    running.post(f"{path}/outputs", {"outputs": values})
    decoded = [{"a": 0, "b": [1, None, "ä\u0000"]}, False, 10**40]
    assert list(running.get(path).json()["outputs"].values()) == decoded


@pytest.mark.parametrize(
    ("large", "same", "other"),
    [
        ("x" * 5000, "x" * 5000, "x" * 4999 + "y"),
        ([1.0] * 2000, [1] * 2000, [1] * 1999 + [True]),
        ({"a": 1, "b": "x" * 2000}, {"b": "x" * 2000, "a": 1.0}, {"a": 2, "b": "x" * 2000}),
    ],
)
def test_a_large_output_is_stored_and_compared_as_a_hash(
    running: Served, large: object, same: object, other: object
) -> None:
    round_path = open_round(running)
    running.post(f"{round_path}/outputs", {"outputs": [large, same, other]})
    outputs = running.get(round_path).json()["outputs"]
    assert all(set(output) == {"blake2b", "bytes"} for output in outputs.values())
    assert outputs["history"] == outputs["glucose"] != outputs["insulin"]
    assert outputs["history"]["bytes"] > 1024
    for path, name, repeated in (
        (f"{round_path}/outputs", "outputs", lambda value: [value]),
        (f"{round_path}/label", "label", lambda value: value),
    ):
        running.post(path, {name: repeated(large)})
        assert running.post(path, {name: repeated(same)}).json()["repeated"]
        assert fault(running.post(path, {name: repeated(other)})) == (409, "conflict")
    # The first two arms agree; each of them disagrees with the third.
    assert running.service.state.cascades["triage"].counts.differed_total == [0, 1, 1]
    small = open_round(running)
    running.post(f"{small}/outputs", {"outputs": ["x" * 1022]})  # 1,024 bytes with its quotes
    assert running.get(small).json()["outputs"] == {"history": "x" * 1022}


# -- repeated requests -----------------------------------------------------------------------------

# Path, body, different body.
REPEATS: dict[str, tuple[str, Any, Any]] = {
    "list": (ROUNDS, CONTEXT, {"context": [0.2, 0.8]}),
    "evidence": (ROUNDS, {**CONTEXT, "evidence": True}, CONTEXT),
    "two": (BATCH, {"contexts": [[0.2, 0.7], [0, 0]]}, {"contexts": [[0.2, 0.7]]}),
    "staged": (STAGED, {"context": [0.2]}, {"context": [0.3]}),
    "cascade": (CASCADES, {**SPEC, "name": "new"}, {**SPEC, "name": "newer"}),
}


def test_a_request_with_an_idempotency_key_is_executed_once(tmp_path: Path) -> None:
    """This holds after a restart and after retiring the cascade."""
    first: dict[str, Any] = {}

    def check_repeats(running: Served) -> None:
        before = running.get("/v1/state").json()
        for key, (path, body, other) in REPEATS.items():
            again = running.post(path, body, repeat=key)
            assert (again.status_code, again.json()) == (200, first[key])
            assert fault(running.post(path, other, repeat=key)) == (409, "conflict")
        assert running.get("/v1/state").json() == before

    with served(tmp_path) as running:
        for spec in (SPEC, REVEALING):
            assert running.post(CASCADES, spec).status_code == 201
        for key, (path, body, other) in REPEATS.items():
            answer = running.post(path, body, repeat=key)
            assert answer.status_code == 201
            # Repeats have no evidence.
            hidden = {"evidence", "reason"}
            first[key] = {k: v for k, v in answer.json().items() if k not in hidden}
            assert running.post(path, other, repeat="!" * (200 - len(key)) + key).is_success
        check_repeats(running)
        paths = ("/v1/state", CASCADES, f"{ROUNDS}/{first['list']['id']}")
        before = [running.get(path).json() for path in paths]
    with served(tmp_path) as running:
        assert [running.get(path).json() for path in paths] == before
        check_repeats(running)
        for name in ("triage", "stages"):
            running.post(f"{CASCADES}/{name}/retire")
        check_repeats(running)
        assert fault(running.post(ROUNDS, CONTEXT, repeat="new")) == (409, "retired")
        # A repeat returns the present state of the round.
        path = f"{ROUNDS}/{first['list']['id']}/outputs"
        ended = running.post(path, {"outputs": [1, 1, 1]}).json()
        assert running.post(ROUNDS, CONTEXT, repeat="list").json() == ended


# -- the service itself ----------------------------------------------------------------------------


def test_other_routes_have_the_documented_media_types_and_methods(running: Served) -> None:
    assert running.get("/metrics").headers["content-type"].startswith("text/plain")
    document = running.get("/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.json()["info"]["version"] == __version__
    for path in (CASCADES, "/healthz", "/openapi.json", f"{CASCADES}/missing"):
        get, head = running.get(path), running.ask("HEAD", path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
    for path, methods in (
        (CASCADES, {"GET", "POST", "HEAD"}),
        (ROUNDS, {"POST"}),
        ("/healthz", {"GET", "HEAD"}),
    ):
        answer = running.ask("DELETE", path)
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == methods
