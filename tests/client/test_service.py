"""Both clients against the real service, in a process of its own."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.client.playing import Outcome
from stopwise.client.rounds import AsyncOpenRound
from tests.client.faces import FACES
from tests.client.processes import Process
from tests.client.relay import relaying

Face = Callable[..., Callable[..., Any]]
CASCADE = sw.Cascade([0.01, 0.1, 0.2], names=["history", "glucose", "insulin"])
SETTINGS: dict[str, Any] = {"forced_rounds": 10, "sigma": 0.1}
WIDE = sw.Polynomial(degree=2)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A cascade's name of this test's own."""
    letters = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())
    return letters.removeprefix("test-").strip("-")[-60:].strip("-")


def test_a_whole_round_trip(service: Process, face: Face, name: str) -> None:
    ask = face(service.url)
    made = ask("create", name, CASCADE, context=["age", "bmi"], features=WIDE, **SETTINGS)
    assert (made.status, made.decisions, made.spec.tradeoff) == ("active", 0, 1.0)
    assert made.spec.policy == {"kind": "uss-pd", **SETTINGS}
    assert ask("create", made.spec).created == made.created  # the same again is the same
    with pytest.raises(sw.ServiceError) as caught:
        ask("create", name, CASCADE, context=3)
    assert (caught.value.status, caught.value.code) == (409, "conflict")

    decision = ask("decide", name, np.array([0.2, 0.7]), evidence=True)
    assert (decision.stop, decision.arm) == (2, "insulin")
    assert decision.cost == pytest.approx(0.31)
    assert "insulin" in decision.reason
    by_name = ask("decide", name, {"bmi": 0.7, "age": 0.2})
    assert ask("decision", name, by_name.id).context == [0.2, 0.7]

    told = ask("outputs", name, decision.id, ["ill", None, "well"])
    assert (told.status, told.missing, told.repeated) == ("open", ["glucose"], False)
    told = ask("outputs", name, decision.id, {"glucose": "ill"})
    assert (told.status, told.missing, told.repeated) == ("learned", [], False)
    assert ask("outputs", name, decision.id, {"glucose": "ill"}).repeated
    with pytest.raises(sw.ServiceError) as caught:
        ask("outputs", name, decision.id, {"glucose": "well"})
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    assert ask("outputs", name, by_name.id, ["ill"], final=True).status == "learned"

    assert ask("label", name, decision.id, "ill").audited == 1
    view = ask("decision", name, decision.id)
    assert view.outputs == {"history": "ill", "glucose": "ill", "insulin": "well"}
    assert view.audited

    many = ask("decide_many", name, np.eye(2), evidence=True)
    assert len({one.id for one in many}) == 2
    assert [ask("decision", name, one.id).context for one in many] == [[1, 0], [0, 1]]

    now = ask("cascade", name)
    assert (now.decisions, now.open, now.audited) == (4, 2, 1)
    assert name in [view.spec.name for view in ask("cascades")]
    assert ask("retire", name).status == "retired"
    assert ask("retire", name).status == "retired"
    with pytest.raises(sw.ServiceError) as caught:
        ask("decide", name, [0.2, 0.7])
    assert (caught.value.status, caught.value.code) == (409, "retired")
    assert ask("ready")
    assert ask("state").hash == ask("state").hash


@pytest.mark.parametrize(
    ("method", "args", "status", "code"),
    [
        ("cascade", ["nobody"], 404, "unknown_cascade"),
        ("decide", ["nobody", [0.5]], 404, "unknown_cascade"),
        ("decide", ["known", [0.5, 0.5, 0.5]], 422, "invalid"),
        ("decide", ["known", [5.0, 0.0]], 422, "invalid"),
        ("decide", ["known", {"age": 0.5}], 422, "invalid"),
        ("outputs", ["known", "77-abcde", ["ill"]], 404, "unknown_decision"),
        (
            "decision",
            [
                "known",
                "such?",
            ],
            404,
            "unknown_decision",
        ),
        ("step", ["known", "77-abcde", 0, "ill"], 404, "unknown_round"),
        ("round_answer", ["known", "77-abcde"], 404, "unknown_round"),
    ],
)
def test_a_refusal_has_its_status_and_code(
    service: Process, face: Face, method: str, args: list[Any], status: int, code: str
) -> None:
    ask = face(service.url)
    ask("create", "known", CASCADE, context=["age", "bmi"])
    with pytest.raises(sw.ServiceError) as caught:
        ask(method, *args)
    assert (caught.value.status, caught.value.code) == (status, code)


def stages() -> list[Callable[[Any], str]]:
    """Three tests that agree where the first number is large."""
    return [
        lambda x: "ill" if x[0] > 0 else "well",
        lambda x: "ill" if x[0] + 0.3 * x[1] > 0 else "well",
        lambda x: "ill" if x[0] + 0.5 * x[1] ** 3 > 0 else "well",
    ]


def test_rounds_run_through_the_service_are_those_of_a_runner(
    service: Process, face: Face, name: str
) -> None:
    cases = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    policy = sw.USSPD(CASCADE, WIDE, context_dim=2, **SETTINGS)
    wanted = sw.Runner(policy, stages()).run_many(cases)
    played = run_many(face, service.url, name, cases, stages(), features=WIDE)
    assert [done.stop for done in played] == [done.stop for done in wanted]
    assert [done.answer for done in played] == [done.answer for done in wanted]
    assert len({done.stop for done in wanted}) > 1  # some stopped early
    view = face(service.url)("cascade", name)
    assert (view.decisions, view.learned, view.open) == (60, 60, 0)


def test_stages_that_reveal_are_asked_step_by_step(service: Process, face: Face, name: str) -> None:
    cases = np.random.default_rng(2).uniform(-1, 1, (60, 2))
    history, glucose, insulin = stages()
    reveals = [
        history,
        sw.Stage(
            lambda x: {"says": glucose(x), "value": x[1]},
            canonical=lambda answer: answer["says"],
            reveals=lambda answer: [answer["value"]],
        ),
        insulin,
    ]
    maps = sw.PerStage([sw.Polynomial(degree=1), sw.Polynomial(degree=2)], sees=[1, 2])
    settings = {**SETTINGS, "full_depth_every": 20}
    policy = sw.USSPD(CASCADE, maps, context_dim=2, **settings)
    runner = sw.Runner(policy, reveals, context=lambda x: x[:1])
    wanted = runner.run_many(cases)
    played = run_many(
        face, service.url, name, cases, reveals, features=maps, known=1, full_depth_every=20
    )
    assert [done.stop for done in played] == [done.stop for done in wanted]
    assert [done.outputs for done in played] == [done.outputs for done in wanted]
    assert len({done.stop for done in wanted}) > 1


def run_many(
    face: Face,
    url: str,
    name: str,
    cases: np.ndarray[Any, Any],
    arms: list[Any],
    *,
    features: Any,
    known: int = 2,
    **settings: Any,
) -> list[Outcome]:
    """Run cases one by one, all through one client."""
    face(url)("create", name, CASCADE, context=2, features=features, **{**SETTINGS, **settings})
    if face.__name__ == "blocking":
        with sw.Client(url) as client:
            return [client.run(name, x[:known], arms, case=x) for x in cases]

    async def main() -> list[Outcome]:
        async with sw.AsyncClient(url) as client:
            return [await client.run(name, x[:known], arms, case=x) for x in cases]

    return asyncio.run(main())


def test_a_stage_that_fails_ends_the_round(service: Process, face: Face, name: str) -> None:
    def broken(x: Any) -> str:
        raise ConnectionError("no route")

    ask = face(service.url)
    ask("create", name, CASCADE, context=2, **SETTINGS)
    done = ask("run", name, [0.1, 0.2], [*stages()[:2], broken])
    assert (done.stop, done.answer) == (1, "ill")
    assert done.failure == sw.Failure(2, "error", "ConnectionError: no route")
    assert ask("decision", name, done.id).outputs == {"history": "ill", "glucose": "ill"}

    late = sw.Stage(lambda x: threading.Event().wait(5), timeout=0.05)
    done = ask("run", name, [0.1, 0.2], [late, *stages()[1:]])
    assert done.failure == sw.Failure(0, "timeout", "no answer within 0.05 s")
    assert (done.stop, done.answer) == (-1, None)
    assert ask("decision", name, done.id).status != "open"

    done = ask("run", name, [0.1, 0.2], [stages()[0], lambda x: float("nan"), stages()[2]])
    assert done.failure is not None
    assert (done.stop, done.failure.arm) == (0, 1)
    assert ask("cascade", name).open == 0


def test_stages_must_fit_the_cascade(service: Process, face: Face, name: str) -> None:
    ask = face(service.url)
    ask("create", name, CASCADE, context=2)
    with pytest.raises(sw.InvalidParameterError, match="2 stages for a cascade of 3 arms"):
        ask("run", name, [0.1, 0.2], stages()[:2])
    with pytest.raises(sw.InvalidParameterError, match="in the order"):
        ask("run", name, [0.1, 0.2], [*stages()[:2], sw.Stage(stages()[2], name="history")])
    assert ask("cascade", name).decisions == 0  # nothing was asked


def test_async_stages_are_awaited_or_refused(service: Process, name: str) -> None:
    async def insulin(x: Any) -> str:
        await asyncio.sleep(0)
        return "ill"

    def handed_on(x: Any) -> Any:
        return insulin(x)

    async def main() -> Outcome:
        async with sw.AsyncClient(service.url) as client:
            await client.create(name, CASCADE, context=2)
            return await client.run(name, [0.1, 0.2], [*stages()[:2], insulin])

    assert asyncio.run(main()).outputs == ("ill", "ill", "ill")
    with sw.Client(service.url) as client:
        for last in (insulin, handed_on):
            with pytest.raises(sw.InvalidParameterError, match="AsyncClient"):
                client.run(name, [0.1, 0.2], [*stages()[:2], last])


REVEALED = sw.PerStage([sw.Polynomial(degree=1), sw.Polynomial(degree=1)], sees=[1, 2])


def ward(service: Process, name: str) -> sw.Client:
    client = sw.Client(service.url)
    client.create(name, CASCADE, context=2, features=REVEALED, full_depth_every=50)
    return client


def test_a_round_step_by_step(service: Process, face: Face, name: str) -> None:
    ask = face(service.url)
    ask("create", name, CASCADE, context=2, features=REVEALED, full_depth_every=50)
    begun = ask("start_round", name, [0.3])
    assert (begun.status, begun.next, begun.arm, begun.cost) == ("open", 0, "history", 0)
    went_on = ask("step", name, begun.id, 0, "ill")
    assert ask("step", name, begun.id, 0, "ill") == went_on  # a repeat does no harm
    with pytest.raises(sw.ServiceError) as caught:
        ask("step", name, begun.id, 0, "well")
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    assert ask("step", name, begun.id, 1, "ill", revealed=np.array([0.5])).next == 2
    ended = ask("end_round", name, begun.id)
    assert (ended.status, ended.next, ended.stop, ended.arm) == ("learned", None, 1, "glucose")
    assert ask("end_round", name, begun.id) == ended
    assert ask("round_answer", name, begun.id) == ended


def test_a_round_is_a_loop_over_arms(service: Process, name: str) -> None:
    with ward(service, name) as client:
        with client.round(name, [0.3]) as visit:
            seen: list[tuple[int, str | None]] = []
            for arm in visit:
                seen.append((arm, visit.arm))
                visit.give("ill", revealed=[0.5] if arm == 1 else ())
        assert seen == [(0, "history"), (1, "glucose"), (2, "insulin")]
        assert (visit.stop, visit.arm, visit.cost) == (2, "insulin", pytest.approx(0.31))
        assert client.round_answer(name, visit.id) == visit.answer
        assert client.decision(name, visit.id).context == [0.3, 0.5]
        with pytest.raises(sw.InvalidOutputsError, match="has ended"):
            visit.give("ill")


async def fail_at_the_second_arm(visit: AsyncOpenRound) -> None:
    async with visit:
        async for arm in visit:
            await visit.give(1 // (1 - arm))


def test_a_round_is_a_loop_over_arms_in_async_code(service: Process, name: str) -> None:
    async def main() -> Any:
        async with sw.AsyncClient(service.url) as client:
            await client.create(name, CASCADE, context=2, features=REVEALED, full_depth_every=50)
            async with client.round(name, [0.3]) as visit:
                async for arm in visit:
                    await visit.give("ill", revealed=[0.5] if arm == 1 else ())
            broken = client.round(name, [0.3])
            with pytest.raises(ZeroDivisionError):
                await fail_at_the_second_arm(broken)
            async with client.round(name, [0.3]) as left:
                pass
            assert left.answer.next is None
            return visit, broken, await client.cascade(name)

    visit, broken, view = asyncio.run(main())
    assert (visit.stop, visit.arm) == (2, "insulin")
    assert broken.stop == 0
    assert view.open == 0


def test_leaving_a_round_ends_it(service: Process, name: str) -> None:
    with ward(service, name) as client:
        with pytest.raises(ZeroDivisionError), client.round(name, [0.3]) as broken:  # noqa: PT012 (leaving is what is tested)
            for arm in broken:
                broken.give(1 // (1 - arm))
        assert broken.stop == 0
        with client.round(name, [0.3]) as left:
            for _ in left:
                break
        assert left.answer.next is None
        with client.round(name, [0.3]) as ended:
            for arm in ended:
                if arm == 1:
                    ended.end()
                else:
                    ended.give("ill")
        assert ended.stop == 0
        assert client.cascade(name).open == 0


def test_a_loop_that_gives_nothing_is_told_so(service: Process, name: str) -> None:
    with ward(service, name) as client:
        with (
            pytest.raises(sw.InvalidOutputsError, match=r"arm 0 .* has not answered"),
            client.round(name, [0.3]) as visit,
        ):
            for _ in visit:
                pass
        with pytest.raises(sw.InvalidParameterError, match="with"):
            _ = client.round(name, [0.3]).stop


def test_an_interrupt_does_not_wait_for_the_service(service: Process, name: str) -> None:
    with ward(service, name) as client:
        with pytest.raises(KeyboardInterrupt), client.round(name, [0.3]) as visit:
            raise KeyboardInterrupt
        assert client.round_answer(name, visit.id).status == "open"


def test_one_client_serves_many_threads_and_tasks(service: Process, name: str) -> None:
    cases = np.random.default_rng(3).uniform(-1, 1, (40, 2))
    with sw.Client(service.url) as client:
        client.create(name, CASCADE, context=2)
        with ThreadPoolExecutor(8) as pool:
            decisions = list(pool.map(lambda x: client.decide(name, x), cases))
    ids = {decision.id for decision in decisions}

    async def main() -> list[Any]:
        async with sw.AsyncClient(service.url) as client:
            return await asyncio.gather(*(client.decide(name, x) for x in cases))

    ids |= {decision.id for decision in asyncio.run(main())}
    assert len(ids) == 80


def test_a_decision_survives_that_its_answer_is_lost_with_the_service(
    service: Process, face: Face, name: str
) -> None:
    """The service decides, is killed (-9) before its answer arrives, and starts again."""
    ask = face(service.url)
    ask("create", name, CASCADE, context=2)
    with relaying(service.url, instead_of_first_answer=service.die_and_rise) as relay:
        decision = face(relay.url, deadline=300)("decide", name, [0.2, 0.7])
    lost, *_, arrived = relay.answers
    assert lost["id"] == arrived["id"] == decision.id
    view = ask("cascade", name)
    assert (view.decisions, view.open) == (1, 1)
    assert ask("decision", name, decision.id).context == [0.2, 0.7]


def test_outputs_survive_that_their_answer_is_lost_with_the_service(
    service: Process, name: str
) -> None:
    with sw.Client(service.url) as client:
        client.create(name, CASCADE, context=2)
        decision = client.decide(name, [0.2, 0.7])
        with (
            relaying(service.url, instead_of_first_answer=service.die_and_rise) as relay,
            sw.Client(relay.url, deadline=300) as through,
        ):
            told = through.outputs(name, decision.id, ["ill", "ill", "well"])
        assert (told.status, told.repeated) == ("learned", True)  # it was heard the first time
        view = client.cascade(name)
        assert (view.decisions, view.learned) == (1, 1)


def test_keys_and_their_scopes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.jsonl"
    admin, asker = (made_key(keys, scope) for scope in ("admin", "decide"))
    monkeypatch.setenv("STOPWISE_KEY", asker)
    with Process(tmp_path / "keyed.db", "--keys", str(keys)) as service:
        for face in FACES.values():
            face(service.url, key=admin)("create", "triage", CASCADE, context=2)
            assert face(service.url)("decide", "triage", [0.2, 0.7]).stop == 2
            for key, status, code in [
                (asker, 403, "forbidden"),
                ("wrong", 401, "unauthorized"),
            ]:
                with pytest.raises(sw.ServiceError) as caught:
                    face(service.url, key=key)("create", "other", CASCADE, context=2)
                assert (caught.value.status, caught.value.code) == (status, code)
                assert key not in str(caught.value)


def made_key(keys: Path, scope: str) -> str:
    made = subprocess.run(
        [
            *(sys.executable, "-m", "stopwise", "keys", "add"),
            *("--name", scope, "--scope", scope, "--keys", str(keys)),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.split()[-1]
