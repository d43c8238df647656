"""Both clients against the real service."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.client.rounds import AsyncOpenRound, Outcome
from tests.client.relay import losing_first_answer
from tests.service.harness import Served, keys_in, served

Connect = Callable[..., Callable[..., Any]]
CASCADE = sw.Cascade([0.01, 0.1, 0.2], names=["history", "glucose", "insulin"])
SETTINGS: dict[str, Any] = {"forced_rounds": 10, "sigma": 0.1}
WIDE = sw.Polynomial(degree=2)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A cascade's name of this test's own."""
    letters = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())
    return letters.removeprefix("test-").strip("-")[-60:].strip("-")


def test_a_whole_round_trip(service: Served, connect: Connect, name: str) -> None:
    ask = connect(service.url)
    made = ask("create", name, CASCADE, context=["age", "bmi"], features=WIDE, **SETTINGS)
    assert (made.status, made.rounds, made.spec.tradeoff) == ("active", 0, 1.0)
    assert made.spec.policy == {"kind": "uss-pd", **SETTINGS}
    assert ask("create", made.spec).created == made.created  # the same again is the same
    with pytest.raises(sw.ServiceError) as caught:
        ask("create", name, CASCADE, context=3)
    assert (caught.value.status, caught.value.code) == (409, "conflict")

    opened = ask("open", name, np.array([0.2, 0.7]), evidence=True)
    assert (opened.status, opened.next, opened.stop, opened.arm) == ("open", 0, 2, "insulin")
    assert opened.cost == pytest.approx(0.31)
    assert "insulin" in opened.reason
    by_name = ask("open", name, {"bmi": 0.7, "age": 0.2})
    assert ask("look_up", name, by_name.id).context == [0.2, 0.7]

    reported = ask("report", name, opened.id, ["ill", None, "well"])
    assert (reported.status, reported.next, reported.repeated) == ("open", 1, False)
    reported = ask("report", name, opened.id, {"glucose": "ill"})
    assert (reported.status, reported.next, reported.repeated) == ("learned", None, False)
    assert ask("report", name, opened.id, {"glucose": "ill"}).repeated
    with pytest.raises(sw.ServiceError) as caught:
        ask("report", name, opened.id, {"glucose": "well"})
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    assert ask("report", name, by_name.id, ["ill"], final=True).status == "learned"

    assert ask("label", name, opened.id, "ill").audited == 1
    view = ask("look_up", name, opened.id)
    assert view.outputs == {"history": "ill", "glucose": "ill", "insulin": "well"}
    assert view.audited

    many = ask("open_many", name, np.eye(2), evidence=True)
    assert len({one.id for one in many}) == 2
    assert [ask("look_up", name, one.id).context for one in many] == [[1, 0], [0, 1]]

    now = ask("cascade", name)
    assert (now.rounds, now.open, now.audited) == (4, 2, 1)
    assert name in [view.spec.name for view in ask("cascades")]
    assert ask("retire", name).status == "retired"
    assert ask("retire", name).status == "retired"
    with pytest.raises(sw.ServiceError) as caught:
        ask("open", name, [0.2, 0.7])
    assert (caught.value.status, caught.value.code) == (409, "retired")
    assert ask("ready")
    assert ask("state").hash == ask("state").hash


@pytest.mark.parametrize(
    ("method", "args", "status", "code"),
    [
        ("open", ["nobody", [0.5]], 404, "unknown_cascade"),
        ("open", ["known", [0.5, 0.5, 0.5]], 422, "invalid"),
        ("open", ["known", {"age": 0.5}], 422, "invalid"),
        ("report", ["known", "77-abcde", ["ill"]], 404, "unknown_round"),
        ("look_up", ["known", "such?"], 404, "unknown_round"),
    ],
)
def test_a_refusal_has_its_status_and_code(
    service: Served, connect: Connect, method: str, args: list[Any], status: int, code: str
) -> None:
    ask = connect(service.url)
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
    service: Served, connect: Connect, name: str
) -> None:
    cases = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    policy = sw.USSPD(CASCADE, WIDE, context_dim=2, **SETTINGS)
    wanted = list(sw.Runner(policy, stages()).run_many(cases))
    played = run_many(connect, service.url, name, cases, stages(), features=WIDE)
    assert [done.stop for done in played] == [done.stop for done in wanted]
    assert [done.answer for done in played] == [done.answer for done in wanted]
    assert len({done.stop for done in wanted}) > 1  # some stopped early
    view = connect(service.url)("cascade", name)
    assert (view.rounds, view.learned, view.open) == (60, 60, 0)


def test_stages_that_reveal_are_asked_step_by_step(
    service: Served, connect: Connect, name: str
) -> None:
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
    wanted = list(runner.run_many(cases))
    played = run_many(
        connect, service.url, name, cases, reveals, features=maps, known=1, full_depth_every=20
    )
    assert [done.stop for done in played] == [done.stop for done in wanted]
    assert [done.outputs for done in played] == [done.outputs for done in wanted]
    assert len({done.stop for done in wanted}) > 1


def run_many(
    connect: Connect,
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
    connect(url)("create", name, CASCADE, context=2, features=features, **{**SETTINGS, **settings})
    if connect.__name__ == "blocking":
        with sw.Client(url) as client:
            return [client.run(name, x[:known], arms, case=x) for x in cases]

    async def main() -> list[Outcome]:
        async with sw.AsyncClient(url) as client:
            return [await client.run(name, x[:known], arms, case=x) for x in cases]

    return asyncio.run(main())


def test_async_stages_are_awaited_or_refused(service: Served, name: str) -> None:
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


def ward(service: Served, name: str) -> sw.Client:
    client = sw.Client(service.url)
    client.create(name, CASCADE, context=2, features=REVEALED, full_depth_every=50)
    return client


def test_a_round_is_a_loop_over_arms(service: Served, name: str) -> None:
    with ward(service, name) as client:
        with client.round(name, [0.3]) as visit:
            seen: list[tuple[int, str]] = []
            for arm in visit:
                seen.append((arm, visit.answer.arm))
                visit.give("ill", revealed=[0.5] if arm == 1 else ())
        assert seen == [(0, "history"), (1, "glucose"), (2, "insulin")]
        assert (visit.answer.stop, visit.answer.arm) == (2, "insulin")
        assert visit.answer.cost == pytest.approx(0.31)
        assert client.look_up(name, visit.id).context == [0.3, 0.5]
        with pytest.raises(sw.InvalidOutputsError):
            visit.give("ill")


async def fail_at_the_second_arm(visit: AsyncOpenRound) -> None:
    async with visit:
        async for arm in visit:
            await visit.give(1 // (1 - arm))


def test_a_round_is_a_loop_over_arms_in_async_code(service: Served, name: str) -> None:
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
    assert (visit.answer.stop, visit.answer.arm) == (2, "insulin")
    assert broken.answer.stop == 0
    assert view.open == 0


def test_a_loop_that_gives_nothing_is_an_error(service: Served, name: str) -> None:
    with ward(service, name) as client:
        with (
            pytest.raises(sw.InvalidOutputsError),
            client.round(name, [0.3]) as visit,
        ):
            for _ in visit:
                pass
        with pytest.raises(sw.InvalidParameterError):
            _ = client.round(name, [0.3]).answer


def test_an_interrupt_does_not_wait_for_the_service(service: Served, name: str) -> None:
    with ward(service, name) as client:
        with pytest.raises(KeyboardInterrupt), client.round(name, [0.3]) as visit:
            raise KeyboardInterrupt
        assert client.look_up(name, visit.id).status == "open"


def test_one_client_serves_many_threads_and_tasks(service: Served, name: str) -> None:
    cases = np.random.default_rng(3).uniform(-1, 1, (40, 2))
    with sw.Client(service.url) as client:
        client.create(name, CASCADE, context=2)
        with ThreadPoolExecutor(8) as pool:
            rounds = list(pool.map(lambda x: client.open(name, x), cases))
    ids = {opened.id for opened in rounds}

    async def main() -> list[Any]:
        async with sw.AsyncClient(service.url) as client:
            return await asyncio.gather(*(client.open(name, x) for x in cases))

    ids |= {opened.id for opened in asyncio.run(main())}
    assert len(ids) == 80


def test_a_request_whose_answer_is_lost_counts_once(
    service: Served, connect: Connect, name: str
) -> None:
    """The service carries it out, its answer does not arrive, and the client sends it again."""
    ask = connect(service.url)
    ask("create", name, CASCADE, context=2)
    with losing_first_answer(service.url) as relay:
        opened = connect(relay.url)("open", name, [0.2, 0.7])
    lost, *_, arrived = relay.answers
    assert lost["id"] == arrived["id"] == opened.id
    with losing_first_answer(service.url) as relay:
        reported = connect(relay.url)("report", name, opened.id, ["ill", "ill", "well"])
    assert (reported.status, reported.repeated) == ("learned", True)  # the first try counted
    view = ask("cascade", name)
    assert (view.rounds, view.learned) == (1, 1)


def test_keys_and_their_scopes(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, keys = keys_in(tmp_path)
    monkeypatch.setenv("STOPWISE_KEY", keys["decide"])
    with served(tmp_path, keys=file) as service:
        connect(service.url, key=keys["admin"])("create", "triage", CASCADE, context=2)
        assert connect(service.url)("open", "triage", [0.2, 0.7]).stop == 2
        for key, status in ((keys["decide"], 403), ("wrong", 401)):
            with pytest.raises(sw.ServiceError) as caught:
                connect(service.url, key=key)("create", "other", CASCADE, context=2)
            assert caught.value.status == status
            assert key not in str(caught.value)
