"""What each route does when all is well."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stopwise.service.state import State
from stopwise.version import __version__
from tests.service.harness import REVEALING, SPEC, Served, fault, served

ROUNDS = "/v1/cascades/triage/rounds"
STAGED = "/v1/cascades/stages/rounds"
CONTEXT = {"context": [0.2, 0.7]}


def test_a_cascade_is_created_listed_shown_and_retired(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        assert running.get("/v1/cascades").json() == {"cascades": []}
        made = running.post("/v1/cascades", SPEC)
        assert made.status_code == 201
        view = made.json()
        assert view["status"] == "active"
        assert view["spec"]["arms"] == SPEC["arms"]
        assert view["spec"]["policy"] == {"kind": "uss-pd"}  # what was left out is shown
        assert view["n_features"] == 3
        assert view["mean_cost"] is None
        assert running.get("/v1/cascades/triage").json() == view
        assert running.get("/v1/cascades").json() == {"cascades": [view]}
        retired = running.post("/v1/cascades/triage/retire")
        assert retired.status_code == 200
        assert retired.json() == {**view, "status": "retired"}
        assert running.post("/v1/cascades/triage/retire").json() == retired.json()


def test_a_round_is_opened_reported_looked_up_and_labelled(running: Served) -> None:
    answer = running.post(ROUNDS, CONTEXT)
    assert answer.status_code == 201
    opened = answer.json()
    id_ = opened["id"]
    decided = {"id": id_, "arm": "insulin", "cost": 0.5, "stop": 2}  # the last arm: it explores
    assert opened == {**decided, "status": "open", "next": 0}
    here = f"{ROUNDS}/{id_}"
    shown = running.get(here).json()
    assert (shown["status"], shown["context"], shown["outputs"]) == ("open", [0.2, 0.7], {})
    reported = running.post(f"{here}/outputs", {"outputs": ["healthy", "ill", "ill"]})
    assert reported.status_code == 200
    assert reported.json() == {**decided, "status": "learned"}
    shown = running.get(here).json()
    assert {name: shown[name] for name in decided} == decided
    assert (shown["status"], shown["next"], shown["audited"]) == ("learned", None, False)
    assert shown["outputs"] == {"history": "healthy", "glucose": "ill", "insulin": "ill"}
    label = running.post(f"{here}/label", {"label": "ill"})
    assert label.json() == {"id": id_, "audited": 1, "repeated": False}
    assert running.get(here).json()["audited"] is True
    view = running.get("/v1/cascades/triage").json()
    assert (view["rounds"], view["open"], view["learned"], view["audited"]) == (1, 0, 1, 1)
    assert (view["stops"], view["mean_cost"]) == ([0, 0, 1], 0.5)


def test_evidence_is_given_to_those_who_ask(running: Served) -> None:
    for _ in range(60):  # beyond the forced rounds, so that there is something to explain
        one = running.post(ROUNDS, CONTEXT).json()
        running.post(f"{ROUNDS}/{one['id']}/outputs", {"outputs": ["a"] * (one["stop"] + 1)})
    assert "evidence" not in one
    one = running.post(ROUNDS, {"context": {"bmi": 0.7, "age": 0.2}, "evidence": True}).json()
    gaps = {(pair["first"], pair["second"]): pair["gap"] for pair in one["evidence"]}
    assert list(gaps)[:2] == [("history", "glucose"), ("history", "insulin")]
    assert gaps["history", "insulin"] == pytest.approx(0.49)
    assert one["reason"]


def test_a_batch_opens_as_many_rounds_in_order(running: Served) -> None:
    contexts = [[0.1, 0.2], {"bmi": 0.4, "age": 0.3}]  # in order, and by name
    answer = running.post(f"{ROUNDS}:batch", {"contexts": contexts, "evidence": True})
    assert answer.status_code == 201
    rounds = answer.json()["rounds"]
    shown = [running.get(f"{ROUNDS}/{one['id']}").json()["context"] for one in rounds]
    assert shown == [[0.1, 0.2], [0.3, 0.4]]
    assert all("evidence" in one for one in rounds)


def test_where_stages_reveal_the_context_arms_are_reported_one_by_one(running: Served) -> None:
    answer = running.post(STAGED, {"context": [0.5]})
    assert answer.status_code == 201
    one = answer.json()
    assert one == {"id": one["id"], "status": "open", "arm": "rule", "cost": 0.0, "next": 0}
    here = f"{STAGED}/{one['id']}"
    for arm, (name, revealed) in enumerate([("rule", [0.1]), ("model", [0.2]), ("person", [])]):
        shown = running.get(here).json()
        assert {key: shown[key] for key in one if key != "repeated"} == one
        body = {"outputs": {name: "yes"}, "revealed": revealed}
        one = running.post(f"{here}/outputs", body).json()
        again = running.post(f"{here}/outputs", body).json()
        assert again == {**one, "repeated": True}
        assert one.get("next") == (None if arm == 2 else arm + 1)
    assert (one["status"], one["stop"], one["arm"]) == ("learned", 2, "person")
    assert one["cost"] == pytest.approx(0.71)
    assert running.get(here).json()["context"] == [0.5, 0.1, 0.2]


@pytest.mark.parametrize("answered", [0, 1])
def test_a_round_whose_stage_failed_ends_early(running: Served, answered: int) -> None:
    here = f"{STAGED}/{running.post(STAGED, {'context': [0.5]}).json()['id']}/outputs"
    if answered:
        running.post(here, {"outputs": [1], "revealed": [0.1]})
    ended = running.post(here, {"outputs": [], "final": True})
    assert (ended.status_code, ended.json()["status"]) == (200, "learned")
    assert ended.json().get("stop") == (0 if answered else None)
    assert ended.json()["arm"] == ("rule" if answered else "")
    again = running.post(here, {"outputs": {}, "final": True}).json()
    assert again == {**ended.json(), "repeated": True}
    late = {"outputs": {"model" if answered else "rule": 1}, "revealed": [0.1]}
    assert fault(running.post(here, late)) == (409, "conflict")
    assert running.get("/v1/cascades/stages").json()["learned"] == 1


def test_the_state_hash_is_computed_once_for_many_who_ask(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    compute = State.hash

    def counted(state: State) -> str:
        computed.append(state.position)
        return compute(state)

    monkeypatch.setattr(State, "hash", counted)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            found = {one.text for one in pool.map(running.get, ["/v1/state"] * 20)}
            assert len(found) == 1
            running.post(ROUNDS, CONTEXT)
    assert computed == [2, 3]


def test_after_a_restart_everything_answered_is_there(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        running.post("/v1/cascades", SPEC)
        id_ = running.post(ROUNDS, CONTEXT, repeat="one").json()["id"]
        running.post(f"{ROUNDS}/{id_}/outputs", {"outputs": ["a", "b", "b"]})
        running.post("/v1/cascades", REVEALING)
        staged = f"{STAGED}/{running.post(STAGED, {'context': [0.5]}).json()['id']}"
        running.post(f"{staged}/outputs", {"outputs": ["a"], "revealed": [0.1]})
        places = ("/v1/state", "/v1/cascades", f"{ROUNDS}/{id_}", staged)
        before = [running.get(place).json() for place in places]
    with served(tmp_path) as running:
        assert [running.get(place).json() for place in places] == before
        assert running.post(ROUNDS, CONTEXT, repeat="one").json()["id"] == id_
        last = {"outputs": {"model": "a"}, "revealed": [0.2]}
        assert running.post(f"{staged}/outputs", last).json()["next"] == 2


def test_health_metrics_and_the_openapi_document(running: Served) -> None:
    assert running.get("/healthz").json() == {"status": "alive"}
    assert running.get("/readyz").json() == {"status": "ready"}
    metrics = running.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "stopwise_ready 1.0" in metrics.text
    document = running.get("/openapi.json")
    assert document.headers["content-type"] == "application/json"
    assert document.json()["info"]["version"] == __version__


def test_head_is_get_without_the_body(running: Served) -> None:
    for path in ("/v1/cascades", "/healthz", "/openapi.json", "/v1/cascades/nobody"):
        whole, head = running.get(path), running.ask("HEAD", path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_options_names_the_methods(running: Served) -> None:
    allowed = {
        "/v1/cascades": {"GET", "POST", "OPTIONS", "HEAD"},
        ROUNDS: {"POST", "OPTIONS"},
        "/healthz": {"GET", "OPTIONS", "HEAD"},
    }
    for path, methods in allowed.items():
        answer = running.ask("OPTIONS", path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert set(answer.headers["allow"].split(", ")) == methods
