"""Outputs as the world sends them: late, twice, in parts, out of order, wrong, too late."""

import pytest

from tests.service.http.door import SPEC, Door, fault

DECISIONS = "/v1/cascades/triage/decisions"


def decided(door: Door, name: str = "triage", context: tuple[float, ...] = (0.2, 0.7)) -> str:
    answer = door.post(f"/v1/cascades/{name}/decisions", {"context": list(context)})
    assert answer.status_code == 201
    return f"/v1/cascades/{name}/decisions/{answer.json()['id']}"


def nested(depth: int) -> list[object]:
    return [nested(depth - 1)] if depth else []


def state(door: Door) -> str:
    return door.get("/v1/state").json()["hash"]


def test_parts_in_any_order_amount_to_the_whole(door: Door) -> None:
    here = decided(door)
    last = door.post(f"{here}/outputs", {"outputs": {"insulin": "ill"}}).json()
    assert (last["status"], last["missing"]) == ("open", ["history", "glucose"])
    first = door.post(f"{here}/outputs", {"outputs": ["well"]}).json()
    assert (first["status"], first["missing"]) == ("open", ["glucose"])
    middle = door.post(f"{here}/outputs", {"outputs": [None, "well", None]}).json()
    assert (middle["status"], middle["missing"], middle["repeated"]) == ("learned", [], False)
    assert door.get(here).json()["outputs"] == {
        "history": "well",
        "glucose": "well",
        "insulin": "ill",
    }


def test_the_order_in_which_rounds_are_told_is_free(door: Door) -> None:
    places = [decided(door) for _ in range(3)]
    for here in reversed(places):
        told = door.post(f"{here}/outputs", {"outputs": ["a", "a", "b"]}).json()
        assert told["status"] == "learned"
    assert door.get("/v1/cascades/triage").json()["learned"] == 3


@pytest.mark.parametrize(
    "again",
    [
        {"outputs": ["well", 1, "ill"]},
        {"outputs": ["well"]},
        {"outputs": {"glucose": 1.0}},  # 1 and 1.0 are one number
        {"outputs": []},
        {"outputs": ["well", 1, "ill"], "final": True},
    ],
)
def test_telling_it_again_changes_nothing(door: Door, again: dict[str, object]) -> None:
    here = decided(door)
    door.post(f"{here}/outputs", {"outputs": ["well", 1, "ill"]})
    before = state(door)
    answer = door.post(f"{here}/outputs", again)
    assert (answer.status_code, answer.json()["repeated"]) == (200, True)
    assert answer.json()["status"] == "learned"
    assert state(door) == before


def test_a_part_told_again_while_open_changes_nothing(door: Door) -> None:
    here = decided(door)
    door.post(f"{here}/outputs", {"outputs": ["well"]})
    before = state(door)
    answer = door.post(f"{here}/outputs", {"outputs": {"history": "well"}}).json()
    assert (answer["repeated"], answer["missing"]) == (True, ["glucose", "insulin"])
    assert state(door) == before


@pytest.mark.parametrize(
    "other", [{"outputs": ["ill"]}, {"outputs": {"glucose": True}}, {"outputs": ["well", 1, None]}]
)
def test_a_contradiction_is_a_conflict_and_the_first_stays(
    door: Door, other: dict[str, object]
) -> None:
    here = decided(door)
    door.post(f"{here}/outputs", {"outputs": ["well", "1"]})
    before = state(door)
    refused = door.post(f"{here}/outputs", other)
    assert fault(refused) == (409, "conflict")
    assert refused.json()["error"]["field"].startswith("outputs")
    assert state(door) == before


def test_a_contradiction_refuses_the_new_beside_it(door: Door) -> None:
    here = decided(door)
    door.post(f"{here}/outputs", {"outputs": ["well"]})
    assert fault(door.post(f"{here}/outputs", {"outputs": ["ill", "ill"]})) == (409, "conflict")
    assert door.get(here).json()["outputs"] == {"history": "well"}


def test_final_learns_from_the_arms_before_the_first_missing_one(door: Door) -> None:
    here = decided(door)
    told = door.post(f"{here}/outputs", {"outputs": {"history": 1, "insulin": 2}, "final": True})
    assert told.json()["status"] == "learned"
    assert door.get(here).json()["outputs"] == {"history": 1}
    assert fault(door.post(f"{here}/outputs", {"outputs": {"glucose": 3}})) == (409, "conflict")


def test_an_arm_beyond_the_stop_may_not_speak(door: Door) -> None:
    door.post(
        "/v1/cascades", {**SPEC, "name": "first", "policy": {"kind": "fixed-depth", "depth": 0}}
    )
    here = decided(door, "first")
    assert fault(door.post(f"{here}/outputs", {"outputs": [1, 2]})) == (409, "conflict")
    assert door.post(f"{here}/outputs", {"outputs": [1]}).json()["status"] == "learned"


@pytest.mark.parametrize(
    ("outputs", "field"),
    [
        ({"x-ray": 1}, "outputs"),
        ([1, 2, 3, 4], "outputs"),
        ([nested(40)], "outputs[0]"),
    ],
)
def test_what_no_arm_could_say_is_refused(door: Door, outputs: object, field: str) -> None:
    here = decided(door)
    refused = door.post(f"{here}/outputs", {"outputs": outputs})
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == field


def test_any_json_value_is_an_output(door: Door) -> None:
    here = decided(door)
    outputs = [{"b": [1, None, "ä\u0000"], "a": -0.0}, False, 10**40]
    assert door.post(f"{here}/outputs", {"outputs": outputs}).json()["status"] == "learned"
    assert door.get(here).json()["outputs"] == {
        "history": {"a": 0, "b": [1, None, "ä\u0000"]},
        "glucose": False,
        "insulin": 10**40,
    }


def test_what_waited_too_long_is_gone(door: Door) -> None:
    door.post("/v1/cascades", {**SPEC, "name": "few", "keep_open": 2})
    oldest, *others = [decided(door, "few") for _ in range(3)]
    assert door.get(oldest).json()["status"] == "expired"
    assert fault(door.post(f"{oldest}/outputs", {"outputs": [1]})) == (410, "gone")
    for here in others:
        assert door.post(f"{here}/outputs", {"outputs": [1, 1, 1]}).json()["status"] == "learned"
    assert fault(door.post(f"{oldest}/label", {"label": 1})) == (409, "conflict")


def test_outputs_may_come_after_the_cascade_was_retired(door: Door) -> None:
    here = decided(door)
    door.post("/v1/cascades/triage/retire")
    assert fault(door.post(DECISIONS, {"context": [0.2, 0.7]})) == (409, "retired")
    assert fault(door.post(f"{DECISIONS}:batch", {"contexts": [[0.2, 0.7]]})) == (409, "retired")
    assert fault(door.post("/v1/cascades/triage/rounds", {"context": [0.2, 0.7]})) == (
        409,
        "retired",
    )
    assert door.post(f"{here}/outputs", {"outputs": [1, 2, 3]}).json()["status"] == "learned"
    assert door.post(f"{here}/label", {"label": 3}).json()["audited"] == 1


def test_a_label_is_for_what_was_learned_and_said_once(door: Door) -> None:
    here = decided(door)
    assert fault(door.post(f"{here}/label", {"label": "ill"})) == (409, "conflict")
    door.post(f"{here}/outputs", {"outputs": ["ill", "ill", "well"]})
    assert door.post(f"{here}/label", {"label": "ill"}).json()["repeated"] is False
    before = state(door)
    assert door.post(f"{here}/label", {"label": "ill"}).json()["repeated"] is True
    assert fault(door.post(f"{here}/label", {"label": "well"})) == (409, "conflict")
    refused = door.post(f"{here}/label", {"label": None})
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == "label"
    assert state(door) == before


def test_ids_of_another_cascade_are_unknown(door: Door) -> None:
    door.post("/v1/cascades", {**SPEC, "name": "other"})
    id_ = decided(door).rpartition("/")[2]
    decided(door, "other")
    assert fault(door.get(f"/v1/cascades/other/decisions/{id_}")) == (404, "unknown_decision")
    assert fault(
        door.post(f"/v1/cascades/other/decisions/{id_}/outputs", {"outputs": [1, 1, 1]})
    ) == (404, "unknown_decision")
