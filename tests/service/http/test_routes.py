"""What each route does when all is well."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from stopwise.service import messages
from stopwise.service.http.routes import ROUTES
from stopwise.service.state import State
from stopwise.version import __version__
from tests.service.http.door import REVEALING, SPEC, Door, fault, opened

DECISIONS = "/v1/cascades/triage/decisions"


def test_a_cascade_is_created_listed_shown_and_retired(tmp_path: Path) -> None:
    with opened(tmp_path) as door:
        assert door.get("/v1/cascades").json() == {"cascades": []}
        made = door.post("/v1/cascades", SPEC)
        assert made.status_code == 201
        view = made.json()
        assert view["status"] == "active"
        assert view["spec"]["arms"] == SPEC["arms"]
        assert view["spec"]["policy"] == {"kind": "uss-pd"}  # what was left out is shown
        assert view["n_features"] == 3
        assert view["mean_cost"] is None
        assert door.get("/v1/cascades/triage").json() == view
        assert door.get("/v1/cascades").json() == {"cascades": [view]}
        retired = door.post("/v1/cascades/triage/retire")
        assert retired.status_code == 200
        assert retired.json() == {**view, "status": "retired"}
        assert door.post("/v1/cascades/triage/retire").json() == retired.json()  # again: the same


def test_a_decision_is_taken_told_looked_up_and_audited(door: Door) -> None:
    answer = door.post(DECISIONS, {"context": [0.2, 0.7]})
    assert answer.status_code == 201
    decision = answer.json()
    assert (decision["stop"], decision["arm"], decision["cost"]) == (2, "insulin", 0.5)  # forced
    assert set(decision) == {"id", "stop", "arm", "cost"}  # evidence is for those who ask
    here = f"{DECISIONS}/{decision['id']}"
    shown = door.get(here).json()
    assert shown["status"] == "open"
    assert shown["context"] == [0.2, 0.7]
    told = door.post(f"{here}/outputs", {"outputs": ["well", "ill", "ill"]})
    assert told.status_code == 200
    assert told.json() == {
        "id": decision["id"],
        "status": "learned",
        "missing": [],
        "repeated": False,
    }
    shown = door.get(here).json()
    assert shown["status"] == "learned"
    assert shown["outputs"] == {"history": "well", "glucose": "ill", "insulin": "ill"}
    assert shown["audited"] is False
    label = door.post(f"{here}/label", {"label": "ill"})
    assert label.json() == {"id": decision["id"], "audited": 1, "repeated": False}
    assert door.get(here).json()["audited"] is True
    view = door.get("/v1/cascades/triage").json()
    assert (view["decisions"], view["open"], view["learned"], view["audited"]) == (1, 0, 1, 1)
    assert view["stops"] == [0, 0, 1]
    assert view["mean_cost"] == 0.5


def test_evidence_is_given_to_those_who_ask(door: Door) -> None:
    for _ in range(60):  # beyond the forced rounds, so that there is something to tell
        made = door.post(DECISIONS, {"context": [0.2, 0.7]}).json()
        door.post(f"{DECISIONS}/{made['id']}/outputs", {"outputs": ["a"] * (made["stop"] + 1)})
    told = door.post(DECISIONS, {"context": {"bmi": 0.7, "age": 0.2}, "evidence": True}).json()
    pairs = [(one["first"], one["second"]) for one in told["evidence"]]
    assert pairs[:2] == [("history", "glucose"), ("history", "insulin")]
    assert told["reason"]
    gaps = {(one["first"], one["second"]): one["gap"] for one in told["evidence"]}
    assert gaps["history", "insulin"] == pytest.approx(0.49)


def test_names_and_order_mean_the_same_context(door: Door) -> None:
    by_name = door.post(DECISIONS, {"context": {"bmi": 0.7, "age": 0.2}}).json()
    shown = door.get(f"{DECISIONS}/{by_name['id']}").json()
    assert shown["context"] == [0.2, 0.7]


def test_a_batch_decides_as_many_in_order(door: Door) -> None:
    answer = door.post(
        f"{DECISIONS}:batch", {"contexts": [[0.1, 0.2], {"age": 0.3, "bmi": 0.4}], "evidence": True}
    )
    assert answer.status_code == 201
    decisions = answer.json()["decisions"]
    contexts = [door.get(f"{DECISIONS}/{one['id']}").json()["context"] for one in decisions]
    assert contexts == [[0.1, 0.2], [0.3, 0.4]]
    assert all(one["evidence"] == [] or one["reason"] for one in decisions)


def test_a_round_goes_step_by_step(door: Door) -> None:
    begun = door.post("/v1/cascades/stages/rounds", {"context": [0.5]})
    assert begun.status_code == 201
    round_ = begun.json()
    assert (round_["next"], round_["arm"], round_["stop"]) == (0, "rule", None)
    here = f"/v1/cascades/stages/rounds/{round_['id']}"
    assert door.get(here).json() == round_
    for arm, revealed in enumerate([[0.1], [0.2], []]):
        step = {"arm": arm, "output": "yes", "revealed": revealed}
        answer = door.post(f"{here}/steps", step)
        assert answer.status_code == 200
        again = door.post(f"{here}/steps", step)
        assert again.json() == answer.json()  # the same step again changes nothing
    last = answer.json()
    assert (last["status"], last["next"], last["arm"], last["stop"]) == (
        "learned",
        None,
        "person",
        2,
    )
    assert last["cost"] == pytest.approx(0.71)
    assert door.get(here).json() == last


def test_a_round_whose_stage_failed_ends_early(door: Door) -> None:
    id_ = door.post("/v1/cascades/stages/rounds", {"context": [0.5]}).json()["id"]
    here = f"/v1/cascades/stages/rounds/{id_}"
    door.post(f"{here}/steps", {"arm": 0, "output": 1, "revealed": [0.1]})
    ended = door.post(f"{here}/end")
    assert ended.status_code == 200
    assert (ended.json()["status"], ended.json()["stop"]) == ("learned", 0)
    assert door.post(f"{here}/end", {}).json() == ended.json()
    assert fault(door.post(f"{here}/steps", {"arm": 1, "output": 1, "revealed": [0.1]})) == (
        409,
        "conflict",
    )
    assert door.get("/v1/cascades/stages").json()["learned"] == 1


def test_the_state_hash_changes_with_what_happens_and_with_nothing_else(door: Door) -> None:
    before = door.get("/v1/state").json()
    assert before["position"] == 2
    for path in ("/v1/cascades", "/v1/cascades/triage", "/healthz", "/metrics", "/"):
        door.get(path)
    door.post(DECISIONS, {"context": [0.2]})  # refused
    assert door.get("/v1/state").json() == before
    door.post(DECISIONS, {"context": [0.2, 0.7]})
    after = door.get("/v1/state").json()
    assert after["position"] == 3
    assert after["log"] != before["log"]
    assert after["hash"] != before["hash"]


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as door:
        door.post("/v1/cascades", SPEC)
        id_ = door.post(DECISIONS, {"context": [0.2, 0.7]}, repeat="one").json()["id"]
        door.post(f"{DECISIONS}/{id_}/outputs", {"outputs": ["a", "b", "b"]})
        door.post("/v1/cascades", REVEALING)
        round_ = door.post("/v1/cascades/stages/rounds", {"context": [0.5]}).json()
        state = door.get("/v1/state").json()
        views = door.get("/v1/cascades").json()
    with opened(tmp_path) as door:
        assert door.get("/v1/state").json() == state
        assert door.get("/v1/cascades").json() == views
        assert door.get(f"/v1/cascades/stages/rounds/{round_['id']}").json() == round_
        assert door.post(DECISIONS, {"context": [0.2, 0.7]}, repeat="one").json()["id"] == id_


def test_health_metrics_and_the_document(door: Door) -> None:
    assert door.get("/healthz").json() == {"status": "alive"}
    assert door.get("/readyz").json() == {"status": "ready"}
    metrics = door.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'stopwise_decisions_total{arm="history",cascade="triage"} 0.0' in metrics.text
    paper = door.get("/openapi.json")
    assert paper.headers["content-type"] == "application/json"
    assert paper.json()["info"]["version"] == __version__


def test_head_is_get_without_the_body(door: Door) -> None:
    for path in ("/v1/cascades", "/healthz", "/openapi.json", "/v1/cascades/nobody"):
        whole, head = door.get(path), door.ask("HEAD", path)
        assert head.status_code == whole.status_code
        assert head.content == b""
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_options_tells_the_methods(door: Door) -> None:
    allowed = {
        "/v1/cascades": "GET, POST, OPTIONS, HEAD",
        "/v1/cascades/triage/decisions": "POST, OPTIONS",
        "/healthz": "GET, OPTIONS, HEAD",
    }
    for path, methods in allowed.items():
        answer = door.ask("OPTIONS", path)
        assert (answer.status_code, answer.headers["allow"]) == (204, methods)


def test_answers_hold_what_their_types_say(door: Door) -> None:
    """Every struct that a route gives is strict about what it holds."""
    given = {kind for route in ROUTES for kind, _ in route.gives.values()}
    known = [getattr(messages, name) for name in dir(messages)]
    assert {kind for kind in given if kind in known} >= {
        messages.CascadeView,
        messages.DecisionAnswer,
        messages.RoundAnswer,
        messages.StateAnswer,
    }
    for name in ("triage", "stages"):
        msgspec.json.decode(
            door.get(f"/v1/cascades/{name}").content, type=messages.CascadeView, strict=True
        )


def test_the_state_is_digested_once_however_often_one_asks(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    compute = State.hash

    def counted(state: State) -> str:
        computed.append(state.position)
        return compute(state)

    monkeypatch.setattr(State, "hash", counted)

    async def often() -> list[tuple[int, dict[str, str], bytes]]:
        return await asyncio.gather(*(door.raw("GET", "/v1/state") for _ in range(20)))

    first = {body for _, _, body in door.run(often())}
    assert (len(first), len(computed)) == (1, 1)
    door.post("/v1/cascades/triage/decisions", {"context": [0.1, 0.2]})
    second = {body for _, _, body in door.run(often())}
    assert (len(second), len(computed)) == (1, 2)
    assert first != second
