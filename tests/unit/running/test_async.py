"""Async stages: the event loop, concurrency, cancellation and failures."""

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import stopwise as sw
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage
from tests.unit.running.test_runner import CASCADE, CASES, STAGES, InMemory, frozen, learner


def awaited(stage: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    async def run(case: Any) -> Any:
        await asyncio.sleep(0)
        return stage(case)

    return run


MIXED = [STAGES[0], awaited(STAGES[1]), awaited(STAGES[2])]


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def test_async_stages_give_the_same_rounds_as_plain_ones() -> None:
    policy, twin = learner(), learner()
    runner = Runner(policy, MIXED)

    async def run_sequentially() -> list[sw.Round]:
        return [await runner.arun(x) for x in CASES]

    rounds = asyncio.run(run_sequentially())
    expected = list(Runner(twin, STAGES).run_many(CASES))
    assert [(r.outputs, r.stop, r.context) for r in rounds] == [
        (r.outputs, r.stop, r.context) for r in expected
    ]
    assert {r.stop for r in rounds} == {0, 1, 2}
    assert frozen(policy) == frozen(twin)


def test_a_plain_function_that_returns_a_coroutine_is_async() -> None:
    policy = learner()
    stages: list[Callable[[Any], Any]] = [STAGES[0], lambda x: MIXED[1](x), STAGES[2]]
    runner = Runner(policy, stages)
    with pytest.raises(
        sw.errors.InvalidParameterError, match=r"'model' is async.*await runner\.arun"
    ):
        runner.run(CASES[0])  # without a warning about a coroutine that was never awaited
    with pytest.raises(
        sw.errors.InvalidParameterError, match=r"'model' is async.*await runner\.arun"
    ):
        Runner(policy, MIXED).run(CASES[0])
    assert policy.rounds == 0
    assert asyncio.run(runner.arun(CASES[0])).stop == 2


def test_a_plain_stage_does_not_block_the_loop() -> None:
    go, request = threading.Event(), contextvars.ContextVar[str]("request")

    async def main() -> sw.Round:
        request.set("r-12")  # context variables are visible in the stage
        first = lambda x: go.wait(60) and request.get()  # noqa: E731
        waiting = Runner(sw.FixedDepth(CASCADE, depth=0), [first, *STAGES[1:]])
        task = asyncio.create_task(waiting.arun([0, 0]))
        await asyncio.sleep(0)
        go.set()  # reached only if the loop is not blocked
        return await task

    assert asyncio.run(main()).answer == "r-12"


CANCELLED: list[Any] = []


async def hang(case: Any) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append(case)
        raise


async def broken(case: Any) -> None:
    raise ConnectionError("refused")


def raise_cancelled(case: Any) -> None:
    raise concurrent.futures.CancelledError  # by a pool inside the stage


async def own_timeout(case: Any) -> None:
    raise TimeoutError("the read timed out")


@pytest.mark.parametrize(
    ("failing", "kind", "message"),
    [
        (Stage(hang, timeout=0.02), "timeout", "no answer within 0.02 s"),
        (
            Stage(lambda x: threading.Event().wait(30), timeout=0.02),
            "timeout",
            "no answer within 0.02 s",
        ),
        (broken, "error", "ConnectionError: refused"),
        (Stage(own_timeout, timeout=60), "timeout", "the read timed out"),
        (lambda x: next(iter(())), "error", "RuntimeError: the stage raised StopIteration"),
        (raise_cancelled, "error", "RuntimeError: the stage raised CancelledError"),
    ],
)
def test_a_failure_ends_the_round_with_the_answers_so_far(
    failing: Any, kind: Any, message: str
) -> None:
    async def main() -> sw.Round:
        async with asyncio.timeout(60):
            return await Runner(learner(), [MIXED[0], failing, MIXED[2]]).arun(CASES[0])

    CANCELLED.clear()
    done = asyncio.run(main())
    assert (done.failure, done.stop) == (sw.Failure(1, kind, message), 0)
    assert len(CANCELLED) == (isinstance(failing, Stage) and failing.run is hang)


@pytest.mark.parametrize("plain", [False, True])
def test_cancellation_propagates_without_learning(plain: bool) -> None:
    policy, twin = learner(), learner()
    called, release = threading.Event(), threading.Event()

    def stuck(case: Any) -> None:
        called.set()
        release.wait(60)

    async def stuck_async(case: Any) -> None:
        called.set()
        await asyncio.sleep(3600)

    async def main() -> None:
        runner = Runner(policy, [MIXED[0], stuck if plain else stuck_async, MIXED[2]])
        task = asyncio.create_task(runner.arun(CASES[0]))
        await soon(called.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()

    asyncio.run(main())
    twin.decide(CASES[0])
    assert frozen(policy) == frozen(twin)


async def gather(rounds: AsyncIterator[sw.Round]) -> list[sw.Round]:
    return [done async for done in rounds]


def test_each_case_is_run_once_until_an_invalid_one() -> None:
    policy = learner()
    stages = [lambda case, stage=stage: stage(case[1]) for stage in MIXED]
    runner = Runner(policy, stages, context=lambda case: case[1])

    def run(cases: Any) -> list[sw.Round]:
        return asyncio.run(gather(runner.arun_many(cases, id_of=lambda case: str(case[0]))))

    assert run([]) == []
    rounds = run(enumerate(CASES[:50]))
    assert sorted(int(done.id) for done in rounds) == list(range(50))
    assert all(done.context == tuple(CASES[int(done.id)].tolist()) for done in rounds)
    assert policy.rounds == 50
    cases = [CASES[0], [1.0, float("nan")], *CASES[1:200]]
    with pytest.raises(sw.errors.InvalidContextError, match=r"case 2 .*coordinate 1"):
        run(enumerate(cases))
    assert policy.rounds < 250


def test_concurrency_is_the_number_of_running_rounds() -> None:
    running, peak = 0, 0

    async def main() -> list[sw.Round]:
        together = asyncio.Barrier(4)  # opens only for four at once

        async def meet(case: Any) -> int:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await together.wait()
            running -= 1
            return 1

        runner = Runner(sw.FixedDepth(CASCADE, depth=0), [meet, *STAGES[1:]])
        async with asyncio.timeout(60):
            return await gather(runner.arun_many([[0, 0]] * 12, concurrency=4))

    assert len(asyncio.run(main())) == 12
    assert peak == 4


@pytest.mark.parametrize("together", [False, True])
def test_rounds_are_yielded_in_the_order_in_which_they_end(together: bool) -> None:
    log, order = InMemory(), [3, 0, 4, 1, 2, 5]

    async def main() -> list[sw.Round]:
        turns = [asyncio.Event() for _ in order]

        async def stage(case: int) -> int:
            await turns[case].wait()
            return case

        runner = Runner(sw.FixedDepth(CASCADE, depth=0), [stage, *STAGES[1:]], log=log)
        waiting = asyncio.create_task(gather(runner.arun_many(range(6))))
        for n, case in enumerate(order, 1):
            turns[case].set()
            await soon(lambda n=n: together or len(log.rounds) == n)
        return await waiting

    rounds = asyncio.run(main())
    assert rounds == log.rounds
    assert together or [done.answer for done in rounds] == order


def test_leaving_early_cancels_running_rounds() -> None:
    policy = sw.FixedDepth(CASCADE, depth=0)

    async def stage(case: int) -> int:
        if case > 0:
            await hang(case)
        return case

    async def main() -> None:
        many = Runner(policy, [stage] * 3).arun_many(range(100), concurrency=5)
        async for done in many:
            assert done.answer == 0
            break
        await many.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    CANCELLED.clear()
    asyncio.run(main())
    assert sorted(CANCELLED) == [1, 2, 3, 4]
    assert policy.rounds == 1


def test_the_policy_is_called_only_in_the_thread_of_the_loop() -> None:
    threads: set[int] = set()

    class ThreadRecorder(sw.Policy):
        def decide(self, x: Any) -> sw.Decision:
            threads.add(threading.get_ident())
            return self.cascade.decision(2)

        def learn(self, observation: sw.Observation) -> None:
            threads.add(threading.get_ident())

    async def main() -> int:
        await gather(Runner(ThreadRecorder(CASCADE), STAGES).arun_many(CASES[:20]))
        return threading.get_ident()

    assert {asyncio.run(main())} == threads


def test_an_invalid_concurrency_is_rejected() -> None:
    many = Runner(learner(), STAGES).arun_many(CASES, concurrency=0)
    with pytest.raises(sw.errors.InvalidParameterError, match="concurrency must be an integer"):
        asyncio.run(gather(many))
