"""Outputs as clients send them: late, twice, in parts, out of order, wrong, too late."""

from typing import Any

import pytest

from tests.service.harness import SPEC, Served, fault

ROUNDS = "/v1/cascades/triage/rounds"


def opened(running: Served, name: str = "triage", context: tuple[float, ...] = (0.2, 0.7)) -> str:
    answer = running.post(f"/v1/cascades/{name}/rounds", {"context": list(context)})
    assert answer.status_code == 201
    return f"/v1/cascades/{name}/rounds/{answer.json()['id']}"


def report(running: Served, here: str, outputs: object, **more: object) -> dict[str, Any]:
    answer = running.post(f"{here}/outputs", {"outputs": outputs, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def nested(depth: int) -> list[object]:
    return [nested(depth - 1)] if depth else []


def state(running: Served) -> str:
    return running.get("/v1/state").json()["hash"]


def test_outputs_may_come_in_parts_and_in_any_order(running: Served) -> None:
    here = opened(running)
    last = report(running, here, {"insulin": "ill"})
    assert (last["status"], last["stop"], last["next"]) == ("open", 2, 0)
    first = report(running, here, ["healthy"])
    assert (first["status"], first["next"]) == ("open", 1)
    middle = report(running, here, [None, "healthy", None])
    assert (middle["status"], "next" in middle, "repeated" in middle) == ("learned", False, False)
    assert running.get(here).json()["outputs"] == {
        "history": "healthy",
        "glucose": "healthy",
        "insulin": "ill",
    }


@pytest.mark.parametrize("first", [["healthy", 1], ["healthy", 1, "ill"]])
@pytest.mark.parametrize(
    "again",
    [
        {"outputs": ["healthy", 1]},
        {"outputs": ["healthy"]},
        {"outputs": {"glucose": 1.0}},  # 1 and 1.0 are one number
        {"outputs": []},
    ],
)
def test_the_same_again_changes_nothing(
    running: Served, first: list[object], again: dict[str, object]
) -> None:
    here = opened(running)
    before = report(running, here, first)
    digest = state(running)
    assert report(running, here, **again) == {**before, "repeated": True}
    if before["status"] == "learned":
        assert report(running, here, first, final=True) == {**before, "repeated": True}
    assert state(running) == digest


@pytest.mark.parametrize(
    "other", [["ill"], {"glucose": True}, ["healthy", 1, None], ["ill", None, "new"]]
)
def test_a_contradiction_is_a_conflict_and_the_first_output_counts(
    running: Served, other: object
) -> None:
    here = opened(running)
    report(running, here, ["healthy", "1"])
    before = state(running)
    refused = running.post(f"{here}/outputs", {"outputs": other})
    assert fault(refused) == (409, "conflict")
    assert refused.json()["error"]["field"].startswith("outputs")
    assert state(running) == before
    assert running.get(here).json()["outputs"] == {"history": "healthy", "glucose": "1"}


def test_final_learns_from_the_arms_before_the_first_missing_one(running: Served) -> None:
    here = opened(running)
    body = {"outputs": {"history": 1, "insulin": 2}, "final": True}
    ended = report(running, here, **body)
    assert (ended["status"], ended["stop"]) == ("learned", 2)  # as it was decided
    assert running.get(here).json()["outputs"] == {"history": 1}
    assert report(running, here, **body)["repeated"]
    late = running.post(f"{here}/outputs", {"outputs": {"glucose": 3}})
    assert fault(late) == (409, "conflict")


def test_an_output_of_an_arm_beyond_the_stop_is_refused(running: Served) -> None:
    shallow = {**SPEC, "name": "first", "policy": {"kind": "fixed-depth", "depth": 0}}
    running.post("/v1/cascades", shallow)
    here = opened(running, "first")
    assert fault(running.post(f"{here}/outputs", {"outputs": [1, 2]})) == (409, "conflict")
    assert report(running, here, [1])["status"] == "learned"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"outputs": {"x-ray": 1}}, "outputs"),
        ({"outputs": [1, 2, 3, 4]}, "outputs"),
        ({"outputs": [nested(40)]}, "outputs[0]"),
        ({"outputs": [1], "revealed": [0.1]}, "revealed"),  # the whole context is known
    ],
)
def test_outputs_that_no_arm_can_have_are_refused(
    running: Served, body: dict[str, object], field: str
) -> None:
    refused = running.post(f"{opened(running)}/outputs", body)
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == field


def test_any_json_value_is_an_output(running: Served) -> None:
    here = opened(running)
    report(running, here, [{"b": [1, None, "ä\u0000"], "a": -0.0}, False, 10**40])
    assert running.get(here).json()["outputs"] == {
        "history": {"a": 0, "b": [1, None, "ä\u0000"]},
        "glucose": False,
        "insulin": 10**40,
    }


@pytest.mark.parametrize(
    ("large", "same", "other"),
    [
        ("x" * 5000, "x" * 5000, "x" * 4999 + "y"),
        ([1.0] * 2000, [1] * 2000, [1] * 1999 + [2]),
        ({"a": 1, "b": "x" * 2000}, {"b": "x" * 2000, "a": 1.0}, {"a": 2, "b": "x" * 2000}),
    ],
)
def test_of_a_large_output_a_hash_is_kept_and_equality_still_decides(
    running: Served, large: object, same: object, other: object
) -> None:
    here = opened(running)
    report(running, here, [large, same, other])
    outputs = running.get(here).json()["outputs"]
    assert all(set(one) == {"blake2b", "bytes"} for one in outputs.values())
    assert outputs["history"] == outputs["glucose"] != outputs["insulin"]
    assert outputs["history"]["bytes"] > 1024
    assert report(running, here, {"history": same})["repeated"]
    refused = running.post(f"{here}/outputs", {"outputs": {"history": other}})
    assert fault(refused) == (409, "conflict")
    assert running.post(f"{here}/label", {"label": large}).json()["repeated"] is False
    assert running.post(f"{here}/label", {"label": same}).json()["repeated"] is True
    assert fault(running.post(f"{here}/label", {"label": other})) == (409, "conflict")
    # The first two arms agree; each of them disagrees with the third.
    assert running.service.state.cascades["triage"].counts.differed_total == [0, 1, 1]
    small = opened(running)
    report(running, small, ["x" * 1022])  # 1,024 bytes with its quotes: kept as it is
    assert running.get(small).json()["outputs"] == {"history": "x" * 1022}


def test_a_round_that_waited_too_long_is_gone(running: Served) -> None:
    running.post("/v1/cascades", {**SPEC, "name": "few", "keep_open": 2})
    oldest, *others = [opened(running, "few") for _ in range(3)]
    shown = running.get(oldest).json()
    assert (shown["status"], shown["next"]) == ("expired", None)
    assert fault(running.post(f"{oldest}/outputs", {"outputs": [1]})) == (410, "gone")
    for here in others:
        assert report(running, here, [1, 1, 1])["status"] == "learned"
    assert fault(running.post(f"{oldest}/label", {"label": 1})) == (409, "conflict")


def test_a_label_is_for_a_learned_round_and_given_once(running: Served) -> None:
    here = opened(running)
    assert fault(running.post(f"{here}/label", {"label": "ill"})) == (409, "conflict")
    report(running, here, ["ill", "ill", "healthy"])
    assert running.post(f"{here}/label", {"label": "ill"}).json()["repeated"] is False
    before = state(running)
    assert running.post(f"{here}/label", {"label": "ill"}).json()["repeated"] is True
    assert fault(running.post(f"{here}/label", {"label": "healthy"})) == (409, "conflict")
    refused = running.post(f"{here}/label", {"label": None})
    assert fault(refused) == (422, "invalid")
    assert refused.json()["error"]["field"] == "label"
    assert state(running) == before


# -- stages that reveal the context ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"outputs": {"model": 1}, "revealed": [0.1]}, (409, "conflict")),  # out of turn
        ({"outputs": [1, 1]}, (409, "conflict")),  # two at once
        ({"outputs": [1, 1], "revealed": [0.1]}, (422, "invalid")),
        ({"outputs": {"nobody": 1}, "revealed": [0.1]}, (422, "invalid")),
        ({"outputs": [], "revealed": [0.1]}, (422, "invalid")),  # revealed by no arm
        ({"outputs": [1]}, (422, "invalid")),  # reveals too little
        ({"outputs": [1], "revealed": [0.1, 0.2]}, (422, "invalid")),
        ({"outputs": [1], "revealed": [7]}, (422, "invalid")),  # beyond the bound
        ({"outputs": [1], "revealed": ["x"]}, (422, "invalid")),
    ],
)
def test_an_output_of_a_stage_that_cannot_be_is_refused_and_changes_nothing(
    running: Served, body: dict[str, object], expected: tuple[int, str]
) -> None:
    here = opened(running, "stages", (0.5,))
    before = state(running)
    assert fault(running.post(f"{here}/outputs", body)) == expected
    assert state(running) == before
    assert report(running, here, [1], revealed=[0.1])["next"] == 1


def test_a_batch_of_more_rounds_than_may_be_open_is_refused(running: Served) -> None:
    assert running.post("/v1/cascades", SPEC | {"name": "few", "keep_open": 2}).is_success
    answer = running.post("/v1/cascades/few/rounds:batch", {"contexts": [[0.2, 0.7]] * 3})
    assert fault(answer) == (422, "invalid")
    assert running.get("/v1/cascades/few").json()["rounds"] == 0


def test_ids_of_another_cascade_are_unknown(running: Served) -> None:
    running.post("/v1/cascades", {**SPEC, "name": "other"})
    id_ = opened(running).rpartition("/")[2]
    opened(running, "other")
    here = f"/v1/cascades/other/rounds/{id_}"
    assert fault(running.get(here)) == (404, "unknown_round")
    refused = running.post(f"{here}/outputs", {"outputs": [1, 1, 1]})
    assert fault(refused) == (404, "unknown_round")
