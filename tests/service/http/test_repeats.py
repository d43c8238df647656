"""Requests sent again under the same Idempotency-Key, and rounds in steps sent again."""

from pathlib import Path

import pytest

from tests.service.http.door import REVEALING, SPEC, Door, fault, opened

DECISIONS = "/v1/cascades/triage/decisions"
CASES = [
    (DECISIONS, {"context": [0.2, 0.7]}, {"context": [0.2, 0.8]}),
    (f"{DECISIONS}:batch", {"contexts": [[0.2, 0.7], [0, 0]]}, {"contexts": [[0.2, 0.7]]}),
    ("/v1/cascades/stages/rounds", {"context": [0.2]}, {"context": [0.3]}),
    ("/v1/cascades", {**SPEC, "name": "new"}, {**SPEC, "name": "newer"}),
]


@pytest.mark.parametrize(("path", "body", "other"), CASES)
def test_a_key_makes_it_happen_once(
    door: Door, path: str, body: dict[str, object], other: dict[str, object]
) -> None:
    first = door.post(path, body, repeat="key-1")
    assert first.status_code == 201
    before = door.get("/v1/state").json()
    again = door.post(path, body, repeat="key-1")
    assert again.status_code == 200
    assert again.json() == first.json()
    assert fault(door.post(path, other, repeat="key-1")) == (409, "conflict")
    assert door.get("/v1/state").json() == before
    assert door.post(path, other, repeat="key-2").status_code == 201


@pytest.mark.parametrize(("path", "body", "other"), CASES[:3])
def test_without_a_key_each_is_a_new_one(
    door: Door, path: str, body: dict[str, object], other: dict[str, object]
) -> None:
    first, second = door.post(path, body), door.post(path, body)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() != second.json()


@pytest.mark.parametrize(("path", "body", "other"), CASES)
@pytest.mark.parametrize("key", ["", "two words", "k" * 201, "schlüssel"])
def test_a_key_is_visible_ascii_of_some_length(
    door: Door, path: str, body: dict[str, object], other: dict[str, object], key: str
) -> None:
    before = door.get("/v1/state").json()
    refused = door.post(path, body, headers={"Idempotency-Key": key.encode("latin-1")})
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == "Idempotency-Key"
    assert door.get("/v1/state").json() == before
    assert door.post(path, body, repeat="!" + "~" * 199).status_code == 201


def test_keys_of_two_cascades_have_nothing_to_do_with_each_other(door: Door) -> None:
    door.post("/v1/cascades", {**SPEC, "name": "other"})
    one = door.post(DECISIONS, {"context": [0.2, 0.7]}, repeat="k")
    two = door.post("/v1/cascades/other/decisions", {"context": [0.1, 0.1]}, repeat="k")
    assert (one.status_code, two.status_code) == (201, 201)


def test_a_repeat_is_known_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as door:
        door.post("/v1/cascades", SPEC, repeat="make")
        door.post("/v1/cascades", REVEALING)
        first = [door.post(path, body, repeat="r").json() for path, body, _ in CASES[:1]]
    with opened(tmp_path) as door:
        for (path, body, other), before in zip(CASES[:1], first, strict=True):
            assert door.post(path, body, repeat="r").json() == before
            assert fault(door.post(path, other, repeat="r")) == (409, "conflict")
        assert door.post("/v1/cascades", SPEC, repeat="make").status_code == 200


def test_the_same_cascade_again_is_no_conflict_another_of_its_name_is(door: Door) -> None:
    assert door.post("/v1/cascades", SPEC).status_code == 200
    refused = door.post("/v1/cascades", {**SPEC, "tradeoff": 2})
    assert fault(refused) == (409, "conflict")
    assert refused.json()["error"]["field"] == "name"


# -- steps ---------------------------------------------------------------------------------------


def begun(door: Door) -> str:
    id_ = door.post("/v1/cascades/stages/rounds", {"context": [0.5]}).json()["id"]
    return f"/v1/cascades/stages/rounds/{id_}"


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        ({"arm": 1, "output": 1, "revealed": [0.1]}, (409, "conflict")),  # out of turn
        ({"arm": 3, "output": 1}, (422, "invalid")),  # no such arm
        ({"arm": 10**30, "output": 1}, (422, "invalid")),
        ({"arm": 0, "output": None, "revealed": [0.1]}, (422, "invalid")),
        ({"arm": 0, "output": 1}, (422, "invalid")),  # reveals too little
        ({"arm": 0, "output": 1, "revealed": [0.1, 0.2]}, (422, "invalid")),
        ({"arm": 0, "output": 1, "revealed": [7]}, (422, "invalid")),  # beyond the bound
        ({"arm": -1, "output": 1}, (422, "invalid")),
        ({"arm": 0}, (422, "invalid")),
    ],
)
def test_a_step_that_cannot_be_is_refused_and_changes_nothing(
    door: Door, step: dict[str, object], wanted: tuple[int, str]
) -> None:
    here = begun(door)
    before = door.get("/v1/state").json()
    assert fault(door.post(f"{here}/steps", step)) == wanted
    assert door.get("/v1/state").json() == before
    good = door.post(f"{here}/steps", {"arm": 0, "output": 1, "revealed": [0.1]})
    assert (good.status_code, good.json()["next"]) == (200, 1)


def test_a_step_that_contradicts_one_before_is_a_conflict(door: Door) -> None:
    here = begun(door)
    door.post(f"{here}/steps", {"arm": 0, "output": "yes", "revealed": [0.1]})
    for other in (
        {"arm": 0, "output": "no", "revealed": [0.1]},
        {"arm": 0, "output": "yes", "revealed": [0.2]},
        {"arm": 0, "output": "yes"},
    ):
        assert fault(door.post(f"{here}/steps", other)) == (409, "conflict")
    assert (
        door.post(f"{here}/steps", {"arm": 0, "output": "yes", "revealed": [0.1]}).json()["next"]
        == 1
    )


def test_decisions_and_rounds_do_not_mix(door: Door) -> None:
    assert fault(door.post("/v1/cascades/stages/decisions", {"context": [0.1, 0.2, 0.3]})) == (
        409,
        "conflict",
    )
    round_ = begun(door).rpartition("/")[2]
    assert fault(
        door.post(f"/v1/cascades/stages/decisions/{round_}/outputs", {"outputs": [1]})
    ) == (409, "conflict")
    decision = door.post(DECISIONS, {"context": [0.2, 0.7]}).json()["id"]
    for method, rest in (("GET", ""), ("POST", "/end")):
        assert fault(door.ask(method, f"/v1/cascades/triage/rounds/{decision}{rest}")) == (
            404,
            "unknown_round",
        )


def test_a_cascade_that_reveals_nothing_can_go_step_by_step_too(door: Door) -> None:
    id_ = door.post("/v1/cascades/triage/rounds", {"context": [0.2, 0.7]}).json()["id"]
    here = f"/v1/cascades/triage/rounds/{id_}/steps"
    for arm in range(3):
        last = door.post(here, {"arm": arm, "output": arm}).json()
    assert (last["status"], last["stop"]) == ("learned", 2)
