"""Requests of `run`, against a scripted server."""

from collections.abc import Callable
from typing import Any

import pytest

import stopwise as sw
from tests.client.scripted import NO_RETRIES, Answer, ScriptedServer, refuse, serving, view

Connect = Callable[..., Any]


def answer(status: str = "open", **fields: Any) -> Answer:
    return Answer({"id": "0-a", "status": status, "arm": "history", "cost": 0.0, **fields})


# Responses for a complete context, and for a context that stages reveal.
COMPLETE = [view(), answer(stop=2, next=0), answer("learned", stop=2)]
STAGED = [
    view(kind="uss-laplace", reveals=[1, 1]),
    answer(next=0),
    answer(next=1, arm="glucose"),
    answer("learned", stop=1, arm="glucose"),
]


def reports(server: ScriptedServer) -> list[dict[str, Any]]:
    return [
        request.body for request in server.requests if request.path.endswith("/rounds/0-a/outputs")
    ]


def report_body(outputs: Any, revealed: Any = (), final: bool = False) -> Any:
    return {"outputs": outputs, "revealed": list(revealed), "final": final}


def stages(*reveal: int) -> list[Any]:
    return [
        sw.Stage(
            lambda case, arm=arm: {"arm": arm, "case": case},
            canonical=lambda answer: f"out {answer['arm']}",
            reveals=(lambda answer: [0.25]) if arm in reveal else None,
        )
        for arm in range(3)
    ]


@pytest.mark.parametrize("fails", [lambda case: 1 / 0, lambda case: float("nan")])
@pytest.mark.parametrize(
    ("script", "outputs"), [(COMPLETE, ["out 0"]), ([*STAGED[:3], answer("learned")], {})]
)
def test_a_failed_stage_ends_the_round(
    connect: Connect, script: list[Answer], outputs: Any, fails: Any
) -> None:
    with serving(*script) as server:
        arms = [stages()[0], fails, stages()[2]]
        done = connect(server.url)("run", "triage", [0.5], arms, case="a case")
    assert reports(server)[-1] == report_body(outputs, final=True)
    assert done.answer == {"arm": 0, "case": "a case"}
    assert (done.stop, done.outputs, done.failure.arm) == (0, ("out 0",), 1)
    with serving(*COMPLETE) as server:
        done = connect(server.url)("run", "triage", [0.5], [fails, *stages()[1:]])
    assert reports(server) == [report_body([], final=True)]
    assert (done.stop, done.answer, done.outputs) == (None, None, ())


def test_invalid_stages_are_rejected_before_opening_a_round(connect: Connect) -> None:
    wrong: list[list[Any]] = [
        stages()[:2],
        [*stages()[:2], sw.Stage(str, name="history")],
        [sw.Stage(str, cost=1), *stages()[1:]],
        stages(0),
    ]
    with serving(view()) as server:
        for arms in wrong:
            with pytest.raises(sw.errors.InvalidParameterError):
                connect(server.url)("run", "triage", [0.5], arms)
    assert {request.path for request in server.requests} == {"/v1/cascades/triage"}


def test_an_unreported_answer_is_in_a_note_of_the_error(connect: Connect) -> None:
    script = [*STAGED[:3], refuse(503, "unavailable")]
    arms = [lambda case: "one", lambda case: "two", lambda case: "three"]
    with serving(*script) as server, pytest.raises(sw.errors.ServiceError) as caught:
        connect(server.url, rng=NO_RETRIES)("run", "triage", [0.5], arms)
    assert caught.value.code == "unavailable"
    assert any("'two'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("end", [answer("learned"), refuse(404, "unknown_round")])
def test_a_round_with_rejected_outputs_is_ended(connect: Connect, end: Answer) -> None:
    script = [*STAGED[:2], refuse(422, "invalid", field="revealed"), end]
    with serving(*script) as server, pytest.raises(sw.errors.ServiceError) as caught:
        connect(server.url)("run", "triage", [0.5], stages(0))
    assert (caught.value.status, caught.value.field) == (422, "revealed")
    assert reports(server)[1:] == [report_body({}, final=True)]
    notes = " ".join(caught.value.__notes__)
    assert ("Ending the round failed" in notes) == (end.status == 404)
