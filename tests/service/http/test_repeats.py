"""Requests that are sent again under the same Idempotency-Key."""

from pathlib import Path
from typing import Any

import pytest

from tests.service.harness import REVEALING, SPEC, Served, fault, served

CASCADES = "/v1/cascades"
ROUNDS = "/v1/cascades/triage/rounds"
BATCH = f"{ROUNDS}:batch"
STAGED = "/v1/cascades/stages/rounds"
# Path, body, another body.
ROUND_CASES = {
    "list": (ROUNDS, {"context": [0.2, 0.7]}, {"context": [0.2, 0.8]}),
    "dict": (ROUNDS, {"context": {"bmi": 0.7, "age": 0.2}}, {"context": {"bmi": 0.8, "age": 0.2}}),
    "evidence": (ROUNDS, {"context": [0.2, 0.7], "evidence": True}, {"context": [0.2, 0.7]}),
    "batch of one": (BATCH, {"contexts": [[0.2, 0.7]]}, {"contexts": [[0.2, 0.8]]}),
    "batch of two": (BATCH, {"contexts": [[0.2, 0.7], [0, 0]]}, {"contexts": [[0.2, 0.7]]}),
    "staged": (STAGED, {"context": [0.2]}, {"context": [0.3]}),
}
CASES = {
    **ROUND_CASES,
    "cascade": (CASCADES, {**SPEC, "name": "new"}, {**SPEC, "name": "newer"}),
}


def without_reasons(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as it is given again: without evidence."""
    return {name: value for name, value in answer.items() if name not in {"evidence", "reason"}}


@pytest.mark.parametrize("case", CASES)
def test_under_a_key_a_request_is_carried_out_once(running: Served, case: str) -> None:
    path, body, other = CASES[case]
    first = running.post(path, body, repeat="key-1")
    assert first.status_code == 201
    before = running.get("/v1/state").json()
    again = running.post(path, body, repeat="key-1")
    assert again.status_code == 200
    assert again.json() == without_reasons(first.json())
    assert fault(running.post(path, other, repeat="key-1")) == (409, "conflict")
    assert running.get("/v1/state").json() == before
    assert running.post(path, other, repeat="key-2").status_code == 201


@pytest.mark.parametrize("case", ROUND_CASES)
def test_a_key_is_still_known_after_the_cascade_was_retired(running: Served, case: str) -> None:
    path, body, other = ROUND_CASES[case]
    first = running.post(path, body, repeat="key-1").json()
    for name in ("triage", "stages"):
        running.post(f"/v1/cascades/{name}/retire")
    again = running.post(path, body, repeat="key-1")
    assert (again.status_code, again.json()) == (200, without_reasons(first))
    assert fault(running.post(path, other, repeat="key-1")) == (409, "conflict")
    assert fault(running.post(path, body, repeat="key-2")) == (409, "retired")


def test_the_answer_has_the_state_of_the_round_as_it_is_now(running: Served) -> None:
    path, body, _ = ROUND_CASES["list"]
    first = running.post(path, body, repeat="k").json()
    ended = running.post(f"{path}/{first['id']}/outputs", {"outputs": [1, 1, 1]}).json()
    assert running.post(path, body, repeat="k").json() == ended


@pytest.mark.parametrize("case", ["list", "batch of two", "cascade"])
@pytest.mark.parametrize("key", ["", "two words", "k" * 201, "schlüssel"])
def test_a_key_has_1_to_200_visible_ascii_characters(running: Served, case: str, key: str) -> None:
    path, body, _ = CASES[case]
    before = running.get("/v1/state").json()
    refused = running.post(path, body, headers={"Idempotency-Key": key.encode("latin-1")})
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == "Idempotency-Key"
    assert running.get("/v1/state").json() == before
    assert running.post(path, body, repeat="!" + "~" * 199).status_code == 201


def test_keys_are_still_known_after_a_restart(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        running.post(CASCADES, SPEC, repeat="make")
        running.post(CASCADES, REVEALING)
        first = {
            case: running.post(path, body, repeat=case.replace(" ", "-")).json()
            for case, (path, body, _) in ROUND_CASES.items()
        }
    with served(tmp_path) as running:
        for case, (path, body, other) in ROUND_CASES.items():
            key = case.replace(" ", "-")
            again = running.post(path, body, repeat=key)
            assert (again.status_code, again.json()) == (200, without_reasons(first[case]))
            assert fault(running.post(path, other, repeat=key)) == (409, "conflict")
        assert running.post(CASCADES, SPEC, repeat="make").status_code == 200
        assert fault(running.post(CASCADES, REVEALING, repeat="make")) == (409, "conflict")


def test_the_same_cascade_again_is_no_conflict_another_of_its_name_is(running: Served) -> None:
    assert running.post(CASCADES, SPEC).status_code == 200
    refused = running.post(CASCADES, {**SPEC, "tradeoff": 2})
    assert fault(refused) == (409, "conflict")
    assert refused.json()["error"]["field"] == "name"


def test_two_idempotency_keys_are_refused(running: Served) -> None:
    headers = [("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    answer = running.client.post(ROUNDS, json={"context": [0.2, 0.7]}, headers=headers)
    assert fault(answer) == (422, "invalid")
