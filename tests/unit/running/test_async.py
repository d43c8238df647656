"""Async stages: real event loops, real cancellations; the loop is never blocked."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage

CASCADE = sw.Cascade([0.02, 0.1, 0.2], names=["rule", "model", "expert"])
CASES = np.random.default_rng(6).uniform(-1, 1, (200, 2))


def says(*weights: float) -> Callable[[Any], bool]:
    return lambda x: bool(np.dot(weights, x) > 0)


def awaited(stage: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    async def run(case: Any) -> Any:
        await asyncio.sleep(0)
        return stage(case)

    return run


PLAIN = [says(1, 0), says(1, 0.5), says(1, 1)]
MIXED = [PLAIN[0], awaited(PLAIN[1]), awaited(PLAIN[2])]


def learner(**settings: Any) -> sw.USSPD:
    return sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, **{"forced_rounds": 30, **settings})


def frozen(policy: sw.Policy) -> dict[str, bytes]:
    return {part: array.tobytes() for part, array in policy.state().items()}


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


# ---------------------------------------------------------------------------------- one round


def test_async_and_plain_stages_give_what_plain_ones_do() -> None:
    policy, twin = learner(), learner()
    runner = Runner(policy, MIXED)

    async def all_in_turn() -> list[sw.Round]:
        return [await runner.arun(x) for x in CASES]

    rounds = asyncio.run(all_in_turn())
    wanted = list(Runner(twin, PLAIN).run_many(CASES))
    assert [(r.outputs, r.stop, r.context) for r in rounds] == [
        (r.outputs, r.stop, r.context) for r in wanted
    ]
    assert {r.stop for r in rounds} == {0, 1, 2}
    assert frozen(policy) == frozen(twin)


def test_run_sends_to_arun() -> None:
    policy = learner()
    with pytest.raises(sw.InvalidParameterError, match=r"'model' is async.*await runner\.arun"):
        Runner(policy, MIXED).run(CASES[0])
    assert policy.rounds == 0


def test_a_plain_function_that_hands_on_a_coroutine_is_async_after_all() -> None:
    policy, before = learner(), frozen(learner())
    handing_on: list[Callable[[Any], Any]] = [PLAIN[0], lambda x: MIXED[1](x), PLAIN[2]]
    runner = Runner(policy, handing_on)
    with pytest.raises(sw.InvalidParameterError, match=r"'model' is async.*await runner\.arun"):
        runner.run(CASES[0])  # and no warning that something was never awaited
    assert policy.rounds == 0
    assert before.keys() == frozen(policy).keys()
    assert asyncio.run(runner.arun(CASES[0])).stop == 2


def test_a_plain_stage_does_not_block_the_loop() -> None:
    go = threading.Event()

    async def main() -> sw.Round:
        waiting = Runner(sw.FixedDepth(CASCADE, depth=0), [lambda x: go.wait(60), *PLAIN[1:]])
        under_way = asyncio.create_task(waiting.arun([0, 0]))
        await asyncio.sleep(0)
        go.set()  # only a loop that goes on gets here
        return await under_way

    assert asyncio.run(main()).answer is True


def test_a_plain_stage_sees_the_context_variables_of_its_caller() -> None:
    request = contextvars.ContextVar[str]("request")

    async def main() -> sw.Round:
        request.set("r-12")
        stages: list[Any] = [lambda x: request.get(), *PLAIN[1:]]
        return await Runner(sw.FixedDepth(CASCADE, depth=0), stages).arun([0, 0])

    assert asyncio.run(main()).answer == "r-12"


# ------------------------------------------------------------------------------------- failures


async def hang(case: Any) -> None:
    await asyncio.sleep(3600)


async def broken(case: Any) -> None:
    raise ConnectionError("refused")


async def own_timeout(case: Any) -> None:
    raise TimeoutError("the read timed out")


FAILING: list[tuple[Any, sw.Failure]] = [
    (Stage(hang, timeout=0.02), sw.Failure(1, "timeout", "no answer within 0.02 s")),
    (
        Stage(lambda x: time.sleep(30), timeout=0.02),
        sw.Failure(1, "timeout", "no answer within 0.02 s"),
    ),
    (broken, sw.Failure(1, "error", "ConnectionError: refused")),
    (own_timeout, sw.Failure(1, "timeout", "the read timed out")),
    (Stage(own_timeout, timeout=60), sw.Failure(1, "timeout", "the read timed out")),
    (lambda x: 1 / 0, sw.Failure(1, "error", "ZeroDivisionError: division by zero")),
]


@pytest.mark.parametrize(("failing", "failure"), FAILING)
def test_a_failure_ends_the_round_and_teaches_what_was_answered(
    failing: Any, failure: sw.Failure
) -> None:
    policy, twin = learner(), learner()
    runner = Runner(policy, [MIXED[0], failing, MIXED[2]])
    done = asyncio.run(runner.arun(CASES[0]))
    assert (done.failure, done.stop, len(done.outputs)) == (failure, 0, 1)
    decision = twin.decide(CASES[0])
    twin.observe(CASES[0], [PLAIN[0](CASES[0])], rule_stop=decision.rule_stop)
    assert frozen(policy) == frozen(twin)


def test_a_plain_stage_that_raises_stop_iteration_does_not_hang_the_loop() -> None:
    nothing: list[int] = []
    runner = Runner(sw.FixedDepth(CASCADE), [lambda x: next(iter(nothing)), *PLAIN[1:]])

    async def main() -> sw.Round:
        async with asyncio.timeout(60):
            return await runner.arun([0, 0])

    done = asyncio.run(main())
    assert done.failure is not None
    assert "StopIteration" in done.failure.message


def test_a_late_async_stage_is_cancelled() -> None:
    cancelled: list[str] = []

    async def slow(case: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise

    runner = Runner(sw.FixedDepth(CASCADE), [slow, *PLAIN[1:]], timeout=0.02)
    assert asyncio.run(runner.arun([0, 0])).failure is not None
    assert cancelled == ["yes"]


@pytest.mark.parametrize("plain", [False, True])
def test_a_cancelled_round_goes_through_and_nothing_is_learned(plain: bool) -> None:
    policy, twin = learner(), learner()
    asked, release = threading.Event(), threading.Event()

    def stuck(case: Any) -> None:
        asked.set()
        release.wait(60)

    async def stuck_async(case: Any) -> None:
        asked.set()
        await asyncio.sleep(3600)

    async def main() -> None:
        runner = Runner(policy, [MIXED[0], stuck if plain else stuck_async, MIXED[2]])
        under_way = asyncio.create_task(runner.arun(CASES[0]))
        await soon(asked.is_set)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        release.set()

    asyncio.run(main())
    twin.decide(CASES[0])
    assert frozen(policy) == frozen(twin)


# ----------------------------------------------------------------------------------- many rounds


def gather(rounds: Any) -> Awaitable[list[sw.Round]]:
    async def collect() -> list[sw.Round]:
        return [done async for done in rounds]

    return collect()


@pytest.mark.parametrize("n", [0, 1, 3, 50])
def test_many_rounds_are_all_run_once(n: int) -> None:
    policy = learner()
    stages = [lambda case, stage=stage: stage(case[1]) for stage in MIXED]
    runner = Runner(policy, stages, context=lambda case: case[1])

    async def main() -> list[sw.Round]:
        cases = enumerate(CASES[:n])
        return await gather(runner.arun_many(cases, id_of=lambda case: str(case[0])))

    rounds = asyncio.run(main())
    assert sorted(int(done.id) for done in rounds) == list(range(n))
    assert all(done.context == tuple(CASES[int(done.id)].tolist()) for done in rounds)
    assert policy.rounds == n


def test_as_many_rounds_as_asked_for_are_under_way() -> None:
    now, most = 0, 0

    async def main() -> list[sw.Round]:
        together = asyncio.Barrier(4)  # opens for four at once only

        async def meet(case: Any) -> int:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await together.wait()
            now -= 1
            return 1

        runner = Runner(sw.FixedDepth(CASCADE, depth=0), [meet, *PLAIN[1:]])
        async with asyncio.timeout(60):
            return await gather(runner.arun_many([[0, 0]] * 12, concurrency=4))

    assert len(asyncio.run(main())) == 12
    assert most == 4


def test_rounds_are_yielded_as_they_end() -> None:
    async def main() -> list[str]:
        first_may_end = asyncio.Event()

        async def stage(case: str) -> str:
            if case == "slow":
                await first_may_end.wait()
            return case

        runner = Runner(sw.FixedDepth(CASCADE, depth=0), [stage, stage, stage])
        order: list[str] = []
        async with asyncio.timeout(60):
            async for done in runner.arun_many(["slow", "quick", "quicker"], id_of=lambda c: c):
                order.append(done.id)
                if len(order) == 2:
                    first_may_end.set()
        return order

    assert asyncio.run(main())[-1] == "slow"


def test_leaving_early_cancels_what_is_under_way() -> None:
    policy = sw.FixedDepth(CASCADE, depth=0)
    cancelled: list[int] = []

    async def stage(case: int) -> int:
        try:
            await asyncio.sleep(0 if case == 0 else 3600)
        except asyncio.CancelledError:
            cancelled.append(case)
            raise
        return case

    async def main() -> None:
        many = Runner(policy, [stage] * 3).arun_many(range(100), concurrency=5)
        async for done in many:
            assert done.answer == 0
            break
        await many.aclose()  # pyright: ignore[reportAttributeAccessIssue]

    asyncio.run(main())
    assert sorted(cancelled) == [1, 2, 3, 4]
    assert policy.rounds == 1


def test_a_case_that_is_refused_stops_the_rest() -> None:
    policy = learner()

    async def main() -> None:
        cases = [CASES[0], [1.0, float("nan")], *CASES[1:50]]
        await gather(Runner(policy, MIXED).arun_many(cases, concurrency=2))

    with pytest.raises(sw.InvalidContextError, match="coordinate 1"):
        asyncio.run(main())
    assert policy.rounds < 50


@pytest.mark.parametrize("concurrency", [0, -1])
def test_no_concurrency_is_refused(concurrency: int) -> None:
    many = Runner(learner(), MIXED).arun_many([], concurrency=concurrency)
    with pytest.raises(sw.InvalidParameterError, match="concurrency"):
        asyncio.run(gather(many))  # pyright: ignore[reportArgumentType]


def test_the_policy_is_called_in_the_thread_of_the_loop_only() -> None:
    threads: set[int] = set()

    class Watched(sw.FixedDepth):
        def decide(self, x: Any) -> sw.Decision:
            threads.add(threading.get_ident())
            return super().decide(x)

        def observe(self, x: Any, outputs: Any, **more: Any) -> None:
            threads.add(threading.get_ident())
            super().observe(x, outputs, **more)

    async def main() -> int:
        await gather(Runner(Watched(CASCADE), PLAIN).arun_many(CASES[:20]))
        return threading.get_ident()

    assert {asyncio.run(main())} == threads


@pytest.mark.parametrize("concurrency", [0, -1, 2.5, True, "8", None])
def test_a_concurrency_that_cannot_be_is_refused(concurrency: Any) -> None:
    async def go() -> None:
        async for _ in Runner(learner(), PLAIN).arun_many(CASES, concurrency=concurrency):
            pytest.fail("a round was run")

    with pytest.raises(sw.InvalidParameterError, match="concurrency must be a whole number"):
        asyncio.run(go())


class Remote:
    async def predict(self, table: Any) -> Any:
        await asyncio.sleep(0)
        return np.array([row[0] > 0 for row in table])


class Sly:
    """Gives a coroutine without saying so."""

    def predict(self, table: Any) -> Any:
        return Remote().predict(table)


def test_an_estimator_may_predict_async() -> None:
    runner = Runner(learner(), [Remote(), PLAIN[1], PLAIN[2]])
    done = asyncio.run(runner.arun([0.5, 0.5]))
    assert done.outputs[0] is True
    with pytest.raises(sw.InvalidParameterError, match="is async"):
        runner.run([0.5, 0.5])
    failed = Runner(learner(), [Sly(), PLAIN[1], PLAIN[2]]).run([0.5, 0.5])
    assert failed.failure is not None
    assert "declare it with `async def`" in failed.failure.message
