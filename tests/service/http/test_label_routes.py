"""Labels: requests, and reports through the API and the dashboard."""

import re

from tests.service.harness import SPEC, Served

LABELLED = {**SPEC, "name": "asks", "policy": {"kind": "uss-laplace", "labels": 12}}
PAGE, ROUNDS = "/cascades/asks/labels", "/v1/cascades/asks/rounds"


def play(running: Served, *outputs: str) -> str:
    """Play a round to its end; return its id."""
    opened = running.post(ROUNDS, {"context": [0.1, 0.4]}).json()
    report = running.post(f"{ROUNDS}/{opened['id']}/outputs", {"outputs": list(outputs)}).json()
    assert report["status"] == "learned"
    assert report.get("wants_label", False) == (len(set(outputs)) > 1)
    return opened["id"]


def test_requested_labels_are_listed_and_can_be_reported(running: Served) -> None:
    assert running.post("/v1/cascades", LABELLED).status_code == 201
    assert "Nothing to label" in running.get(PAGE).text
    play(running, "well", "well", "well")
    first, second = (play(running, "well", "ill", "<i>ill</i>") for _ in range(2))
    listed = running.get("/v1/cascades/asks/label-requests").json()
    assert listed["wanted"] == 2
    assert [round_["id"] for round_ in listed["rounds"]] == [first, second]
    assert listed["rounds"][0]["outputs"] == {
        "history": "well",
        "glucose": "ill",
        "insulin": "<i>ill</i>",
    }
    assert listed["rounds"][0]["context"] == [0.1, 0.4]
    assert listed["rounds"][0]["probability"] == 1.0  # the first requests are certain
    page = running.get(PAGE).text
    assert re.findall(r'data-round="([^"]+)" data-answer="([^"]+)"', page)[:2] == [
        (first, "&#34;well&#34;"),
        (first, "&#34;ill&#34;"),
    ]
    assert "<i>ill</i>" not in page  # escaped
    assert "2 labels requested" in running.get("/cascades/asks").text
    assert running.post(f"{PAGE}/{first}", {"label": "ill"}).json()["labelled"] == 1
    answered = running.post(f"{ROUNDS}/{second}/label", {"label": "well"}).json()
    assert answered == {"id": second, "labelled": 2, "repeated": False}
    assert running.get("/v1/cascades/asks/label-requests").json() == {"wanted": 0, "rounds": []}
    policy = running.service.state.cascades["asks"].policy
    assert (policy.labels.requested, policy.labels.received) == (2, 2)  # pyright: ignore[reportAttributeAccessIssue] (of this kind of policy)


def test_the_page_rejects_invalid_and_cross_site_labels(running: Served) -> None:
    running.post("/v1/cascades", LABELLED)
    requested = play(running, "well", "ill", "ill")
    for id_, body, status in (("0-00000", {"label": 1}, 404), (requested, {}, 422)):
        assert running.post(f"{PAGE}/{id_}", body).status_code == status
    elsewhere = {"sec-fetch-site": "cross-site"}
    refused = running.post(f"{PAGE}/{requested}", {"label": 1}, headers=elsewhere)
    assert refused.status_code == 403
    assert running.get("/v1/cascades/asks/label-requests").json()["wanted"] == 1


def test_a_label_by_arm_is_stored_once_and_cannot_be_changed(running: Served) -> None:
    running.post("/v1/cascades", LABELLED)
    first, second, third = (play(running, "well", "ill", "very ill") for _ in range(3))
    right = {"history": False, "glucose": True, "insulin": True}
    labelled = running.post(f"{ROUNDS}/{first}/label", {"right": right})
    assert labelled.json() == {"id": first, "labelled": 1, "repeated": False}
    again = running.post(f"{ROUNDS}/{first}/label", {"right": dict(reversed(right.items()))})
    assert again.json() == {"id": first, "labelled": 1, "repeated": True}
    for other in ({"right": {**right, "history": True}}, {"label": "ill"}):
        refused = running.post(f"{ROUNDS}/{first}/label", other)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert running.post(f"{ROUNDS}/{second}/label", {"label": "ill"}).json()["labelled"] == 2
    page = running.get(PAGE).text
    assert third in page
    assert page.count("data-arms=") == 3
    assert running.post(f"{PAGE}/{third}", {"right": dict.fromkeys(right, False)}).is_success
    policy = running.service.state.cascades["asks"].policy
    assert policy.labels.received == 3  # pyright: ignore[reportAttributeAccessIssue] (of this kind of policy)
    assert running.get(f"{ROUNDS}/{first}").json()["labelled"]


def test_invalid_labels_by_arm_are_rejected(running: Served) -> None:
    running.post("/v1/cascades", LABELLED)
    opened = running.post(ROUNDS, {"context": [0.1, 0.4]}).json()
    body = {"outputs": ["well", "ill"], "final": True}
    running.post(f"{ROUNDS}/{opened['id']}/outputs", body)
    path = f"{ROUNDS}/{opened['id']}/label"
    ran = "history, glucose"
    for content, status, message in (
        ({"label": "ill", "right": {"history": True, "glucose": True}}, 422, "not both"),
        ({"right": {"history": True, "glucosé": True}}, 422, "unknown arm 'glucosé'"),
        ({"right": {"history": True}}, 409, f"each arm that answered ({ran})"),
        ({"right": {"history": True, "glucose": False, "insulin": False}}, 409, ran),
        ({"right": {"history": 1, "glucose": False}}, 422, "must be true or false"),
        ({"right": [True, False]}, 422, "object"),
        ({"right": None}, 422, "null"),
        ({}, 422, "label (the right answer) or right"),
    ):
        refused = running.post(path, content)
        assert refused.status_code == status, content
        assert message in refused.json()["error"]["message"], content
    assert running.post(path, {"right": {"history": False, "glucose": True}}).is_success


def test_a_label_by_arm_resets_the_count_of_unmatched_labels(running: Served) -> None:
    running.post("/v1/cascades", {**LABELLED, "policy": {"kind": "uss-laplace", "labels": 99}})
    rounds = [play(running, "well", "ill", "ill") for _ in range(12)]
    answers = [
        running.post(f"{ROUNDS}/{id_}/label", {"label": "ILL"}).json() for id_ in rounds[:10]
    ]
    assert "match no arm" in answers[-1]["warning"]
    right = {"history": False, "glucose": False, "insulin": False}
    assert "warning" not in running.post(f"{ROUNDS}/{rounds[10]}/label", {"right": right}).json()
    assert "warning" not in running.post(f"{ROUNDS}/{rounds[11]}/label", {"label": "ILL"}).json()
