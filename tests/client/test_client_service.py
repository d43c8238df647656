"""Both clients against a real service."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import stopwise as sw
from stopwise.client.rounds import Outcome
from tests.client.scripted import Drop, Forward, serving
from tests.service.harness import Served

Connect = Callable[..., Callable[..., Any]]
CASCADE = sw.Cascade([0.01, 0.1, 0.2], names=["history", "glucose", "insulin"])
SETTINGS: dict[str, Any] = {"forced_rounds": 10, "sigma": 0.1}
USS_PD: dict[str, Any] = {"policy": "uss-pd"}
WIDE = sw.Polynomial(degree=2)


@pytest.fixture
def name() -> str:
    """A unique name for a cascade."""
    return uuid4().hex


def test_every_client_method_works_against_a_service(
    service: Served, connect: Connect, name: str
) -> None:
    ask = connect(service.url)
    context = ["age", "bmi"]
    created = ask("create", name, CASCADE, context=context, features=WIDE, **USS_PD, **SETTINGS)
    assert (created.status, created.rounds, created.spec.tradeoff) == ("active", 0, 1.0)
    assert created.spec.policy == {"kind": "uss-pd", **SETTINGS}
    assert ask("create", created.spec).created == created.created  # creating it again

    opened = ask("open", name, {"bmi": np.float32(0.75), "age": 0.2}, evidence=True)
    assert (opened.status, opened.next, opened.stop, opened.arm) == ("open", 0, 2, "insulin")
    assert opened.cost == pytest.approx(0.31)
    assert "insulin" in opened.reason
    reported = ask("report", name, opened.id, ["ill", None, "well"])
    assert (reported.status, reported.next, reported.repeated) == ("open", 1, False)
    reported = ask("report", name, opened.id, {"glucose": "ill"})
    assert (reported.status, reported.next, reported.repeated) == ("learned", None, False)
    assert ask("label", name, opened.id, "ill").labelled == 1
    view = ask("look_up", name, opened.id)
    assert (view.context, view.labelled) == ([0.2, 0.75], True)
    assert view.outputs == {"history": "ill", "glucose": "ill", "insulin": "well"}

    many = ask("open_many", name, np.eye(2), evidence=True)
    assert [ask("look_up", name, opened.id).context for opened in many] == [[1, 0], [0, 1]]
    assert ask("report", name, many[0].id, ["ill"], final=True).status == "learned"
    assert ask("label", name, many[0].id, right={"history": np.True_}).labelled == 2
    assert ask("label", name, many[0].id, right={"history": True}).repeated
    now = ask("cascade", name)
    assert (now.rounds, now.open, now.labelled) == (3, 1, 2)
    assert name in [view.spec.name for view in ask("cascades")]
    assert ask("retire", name).status == "retired"
    assert ask("ready")
    assert len(ask("state").hash) == 64


def stages() -> list[Any]:
    """Return three tests that agree if the first number is large."""
    return [
        lambda x: "ill" if x[0] > 0 else "well",
        lambda x: "ill" if x[0] + 0.3 * x[1] > 0 else "well",
        lambda x: "ill" if x[0] + 0.5 * x[1] ** 3 > 0 else "well",
    ]


def revealing() -> list[Any]:
    history, glucose, insulin = stages()
    second = sw.Stage(
        lambda x: {"result": glucose(x), "value": x[1]},
        canonical=lambda answer: answer["result"],
        reveals=lambda answer: [answer["value"]],
    )
    return [history, second, insulin]


STEPS = sw.PerStage([sw.Polynomial(degree=1), sw.Polynomial(degree=2)])


@pytest.mark.parametrize(
    ("features", "arms", "context_dim", "options"),
    [(WIDE, stages(), 2, {}), (STEPS, revealing(), 1, {"reveals": [0, 1], "explore": 0.05})],
    ids=["complete", "revealed"],
)
def test_run_gives_the_rounds_of_a_runner(
    service: Served,
    connect: Connect,
    name: str,
    features: Any,
    arms: Any,
    context_dim: int,
    options: dict[str, Any],
) -> None:
    cases = np.random.default_rng(context_dim).uniform(-1, 1, (40, 2))
    settings = SETTINGS | options
    policy = sw.USSPD(CASCADE, features, context_dim=context_dim, **settings)
    runner = sw.Runner(policy, arms, context=lambda x: x[:context_dim])
    expected = [(done.stop, done.answer, done.outputs) for done in runner.run_many(cases)]
    ask = connect(service.url)
    ask("create", name, CASCADE, context=context_dim, features=features, **USS_PD, **settings)
    outcomes = [ask("run", name, x[:context_dim], arms, case=x) for x in cases]
    assert [(done.stop, done.answer, done.outputs) for done in outcomes] == expected
    assert len({stop for stop, *_ in expected}) > 1  # the stops vary
    view = connect(service.url)("cascade", name)
    assert (view.rounds, view.learned, view.open) == (40, 40, 0)


def test_async_stages_require_an_async_client(service: Served, name: str) -> None:
    async def insulin(x: Any) -> str:
        await asyncio.sleep(0)
        return "ill"

    def returns_a_coroutine(x: Any) -> Any:
        return insulin(x)

    async def main() -> Outcome:
        async with sw.AsyncClient(service.url) as client:
            await client.create(name, CASCADE, context=2)
            return await client.run(name, [0.1, 0.2], [*stages()[:2], insulin])

    assert asyncio.run(main()).outputs == ("ill", "ill", "ill")
    with sw.Client(service.url) as client:
        for last in (insulin, returns_a_coroutine):
            with pytest.raises(sw.errors.InvalidParameterError, match="AsyncClient"):
                client.run(name, [0.1, 0.2], [*stages()[:2], last])


def test_threads_and_tasks_share_a_client(service: Served, name: str) -> None:
    cases = np.random.default_rng(3).uniform(-1, 1, (40, 2))
    with sw.Client(service.url) as client:
        client.create(name, CASCADE, context=2)
        with ThreadPoolExecutor(8) as pool:
            rounds = list(pool.map(lambda x: client.open(name, x), cases))

    async def main() -> list[Any]:
        async with sw.AsyncClient(service.url) as client:
            return await asyncio.gather(*(client.open(name, x) for x in cases))

    assert len({opened.id for opened in rounds + asyncio.run(main())}) == 80


def test_a_request_with_a_lost_response_is_executed_once(
    service: Served, connect: Connect, name: str
) -> None:
    """The service executes it, the response is lost, and the client retries."""
    ask = connect(service.url)
    ask("create", name, CASCADE, context=2)
    script = Drop(service.url), Forward(service.url)
    with serving(*script) as server:
        opened = connect(server.url)("open", name, [0.2, 0.7])
    lost, *_, received = server.forwarded
    assert lost["id"] == received["id"] == opened.id
    with serving(*script) as server:
        reported = connect(server.url)("report", name, opened.id, ["ill", "ill", "well"])
    assert (reported.status, reported.repeated) == ("learned", True)  # the first try counted
    view = ask("cascade", name)
    assert (view.rounds, view.learned) == (1, 1)
