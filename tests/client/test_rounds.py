"""Rounds arm by arm and as a whole: which requests they send, to a server with a script."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import stopwise as sw
from tests.client.scripted import Answer, Scripted, refuse, serving

Loop = Callable[..., Any]
NAMES = ["history", "glucose", "insulin"]


def answer(status: str = "open", **fields: Any) -> Answer:
    return Answer({"id": "0-a", "status": status, "arm": "history", "cost": 0.0, **fields})


WHOLE = [answer(stop=2, next=0), answer("learned", stop=2)]
STAGED = [
    answer(next=0),
    answer(next=1, arm="glucose"),
    answer("learned", stop=1, arm="glucose"),
]


def view(**features: Any) -> Answer:
    arms = [{"name": name, "cost": 0.1} for name in NAMES]
    spec = {"name": "triage", "arms": arms, "context": 2, "features": features}
    counts = dict.fromkeys(("created", "n_features", "rounds", "open", "learned", "audited"), 0)
    return Answer(
        {"spec": spec, "status": "active", **counts, "stops": [0, 0, 0], "mean_cost": None}
    )


def reports(server: Scripted) -> list[dict[str, Any]]:
    return [seen.body for seen in server.seen if seen.path.endswith("/rounds/0-a/outputs")]


def blocking(url: str, give: Callable[[int], Any], leave_at: int = 9) -> Any:
    with sw.Client(url, deadline=0.5) as client, client.round("triage", [0.5]) as visit:
        for arm in visit:
            if arm == leave_at:
                break
            output, *revealed = give(arm)
            visit.give(output, revealed)
    return visit


def awaiting(url: str, give: Callable[[int], Any], leave_at: int = 9) -> Any:
    async def main() -> Any:
        async with (
            sw.AsyncClient(url, deadline=0.5) as client,
            client.round("triage", [0.5]) as visit,
        ):
            async for arm in visit:
                if arm == leave_at:
                    break
                output, *revealed = give(arm)
                await visit.give(output, revealed)
        return visit

    return asyncio.run(main())


@pytest.fixture(params=[blocking, awaiting])
def loop(request: pytest.FixtureRequest) -> Loop:
    return request.param


def given(outputs: Any, revealed: Any = (), final: bool = False) -> Any:
    return {"outputs": outputs, "revealed": list(revealed), "final": final}


def test_outputs_of_a_whole_context_are_reported_once(loop: Loop) -> None:
    with serving(*WHOLE) as server:
        visit = loop(server.url, lambda arm: [f"out {arm}"])
    assert reports(server) == [given(["out 0", "out 1", "out 2"])]
    assert (visit.id, visit.answer.status, visit.answer.stop) == ("0-a", "learned", 2)


def test_outputs_of_a_staged_round_are_reported_arm_by_arm(loop: Loop) -> None:
    with serving(*STAGED) as server:
        visit = loop(server.url, lambda arm: ["ill", 0.5] if arm else ["well"])
    assert reports(server) == [given({"history": "well"}), given({"glucose": "ill"}, [0.5])]
    assert (visit.answer.stop, visit.answer.arm) == (1, "glucose")


def test_a_round_opened_again_goes_on_where_outputs_are_missing(loop: Loop) -> None:
    with serving(answer(stop=2, next=1), answer("learned", stop=2)) as server:
        loop(server.url, lambda arm: [arm])
    assert reports(server) == [given([None, 1, 2])]
    with serving(answer("learned", stop=2)) as server:
        loop(server.url, lambda arm: pytest.fail("nothing is to run"))
    assert reports(server) == []


@pytest.mark.parametrize(
    ("script", "outputs"), [(WHOLE, ["well"]), ([*STAGED[:2], answer("learned")], {})]
)
def test_a_round_left_early_is_ended(loop: Loop, script: list[Answer], outputs: Any) -> None:
    with serving(*script) as server:
        loop(server.url, lambda arm: ["well"], leave_at=1)
    assert reports(server)[-1] == given(outputs, final=True)
    with serving(*script) as server, pytest.raises(ZeroDivisionError):
        loop(server.url, lambda arm: [1 // (1 - arm) and "well"])
    assert reports(server)[-1] == given(outputs, final=True)


def test_an_error_within_the_loop_is_not_replaced_by_one_of_the_service(loop: Loop) -> None:
    script = [answer(stop=2, next=0), refuse(404, "unknown_round")]
    with serving(*script) as server, pytest.raises(ZeroDivisionError) as caught:
        loop(server.url, lambda arm: 1 / 0)
    assert "could not be ended" in caught.value.__notes__[0]
    with serving(*script) as server, pytest.raises(sw.ServiceError):
        loop(server.url, lambda arm: ["well"], leave_at=0)


REFUSED = [STAGED[0], refuse(422, "invalid", field="revealed"), answer("learned")]


def test_a_round_whose_outputs_are_refused_is_ended(loop: Loop) -> None:
    with serving(*REFUSED) as server, pytest.raises(sw.ServiceError) as caught:
        loop(server.url, lambda arm: ["well", 1.0])
    assert caught.value.field == "revealed"
    assert reports(server)[1:] == [given({}, final=True)]


def test_nothing_is_revealed_where_the_whole_context_is_known(loop: Loop) -> None:
    with serving(*WHOLE) as server, pytest.raises(sw.InvalidContextError):
        loop(server.url, lambda arm: ["well", 1.0])
    assert reports(server) == [given([], final=True)]


@pytest.mark.parametrize("output", [None, float("nan"), {1}])
def test_an_output_that_cannot_be_sent_is_refused_here(loop: Loop, output: Any) -> None:
    with serving(*WHOLE) as server, pytest.raises(sw.InvalidOutputsError):
        loop(server.url, lambda arm: [output])
    assert reports(server) == [given([], final=True)]


# ------------------------------------------------------------------------------------------- run


def stages(*reveal: int) -> list[Any]:
    return [
        sw.Stage(
            lambda case, arm=arm: {"arm": arm, "case": case},
            canonical=lambda answer: f"out {answer['arm']}",
            reveals=(lambda answer: [0.25]) if arm in reveal else None,
        )
        for arm in range(3)
    ]


def test_run_follows_the_stop_of_a_whole_context(connect: Loop) -> None:
    with serving(view(), *WHOLE) as server:
        done = connect(server.url)("run", "triage", [0.5], stages(), case="a case")
    assert reports(server) == [given(["out 0", "out 1", "out 2"])]
    assert (done.stop, done.answer) == (2, {"arm": 2, "case": "a case"})
    assert done.outputs == ("out 0", "out 1", "out 2")


def test_run_follows_next_where_stages_reveal(connect: Loop) -> None:
    with serving(view(kind="per_stage", sees=[1, 2]), *STAGED) as server:
        done = connect(server.url)("run", "triage", [0.5], stages(1))
    assert reports(server) == [given({"history": "out 0"}), given({"glucose": "out 1"}, [0.25])]
    assert (done.stop, done.outputs) == (1, ("out 0", "out 1"))


@pytest.mark.parametrize(
    ("script", "outputs"),
    [([view(), *WHOLE], ["out 0"]), ([view(sees=[1, 2]), *STAGED[:2], answer("learned")], {})],
)
def test_a_stage_that_fails_ends_the_round(
    connect: Loop, script: list[Answer], outputs: Any
) -> None:
    broken = [stages()[0], lambda case: 1 / 0, stages()[2]]
    with serving(*script) as server:
        done = connect(server.url)("run", "triage", [0.5], broken)
    assert reports(server)[-1] == given(outputs, final=True)
    assert done.failure is not None
    assert (done.stop, done.outputs, done.failure.arm) == (0, ("out 0",), 1)


def test_stages_that_do_not_fit_open_no_round(connect: Loop) -> None:
    wrong: list[list[Any]] = [
        stages()[:2],
        [*stages()[:2], sw.Stage(str, name="history")],
        [sw.Stage(str, cost=1), *stages()[1:]],
        stages(0),
    ]
    with serving(view()) as server:
        for arms in wrong:
            with pytest.raises(sw.InvalidParameterError):
                connect(server.url)("run", "triage", [0.5], arms)
    assert {seen.path for seen in server.seen} == {"/v1/cascades/triage"}


def test_the_newest_answer_is_kept_if_it_cannot_be_reported(connect: Loop) -> None:
    script = [view(sees=[1, 2]), *STAGED[:2], refuse(503, "unavailable")]
    arms = [lambda case: "one", lambda case: "two", lambda case: "three"]
    with serving(*script) as server, pytest.raises(sw.ServiceError) as caught:
        connect(server.url, deadline=0.3)("run", "triage", [0.5], arms)
    assert caught.value.code == "unavailable"
    assert any("'two'" in note for note in caught.value.__notes__)


def test_run_ends_a_round_whose_outputs_are_refused(connect: Loop) -> None:
    with (
        serving(view(kind="per_stage", sees=[1, 2]), *REFUSED) as server,
        pytest.raises(sw.ServiceError) as caught,
    ):
        connect(server.url)("run", "triage", [0.5], stages(0))
    assert caught.value.status == 422
    assert reports(server)[1:] == [given({}, final=True)]
