"""Whatever fails wherever, a policy is what the answered prefixes make of it."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stopwise as sw
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage
from tests.unit.running.test_runner import frozen

ARMS = 3
CASCADE = sw.Cascade([0.05, 0.1, 0.15])
# What a stage does with a case: answer something, or one of the ways not to.
outcomes = st.integers(0, 2) | st.sampled_from(["raises", "interrupted", "nan", "unhashable"])
number = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])
case = st.tuples(st.tuples(number, number), st.tuples(*[outcomes] * ARMS))


def policies() -> list[sw.Policy]:
    return [
        sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, forced_rounds=4),
        sw.USSPD(CASCADE, sw.Identity(), 2, forced_rounds=4, full_depth_every=3, seed=2),
        sw.USSPDRidge(CASCADE, sw.Identity(), 2, lam=0.5, S=0.5),
        sw.Thompson(CASCADE, sw.Identity(), 2, forced_rounds=4, seed=1),
        sw.USSUCB(CASCADE, a=0.1),
        sw.USSTS(CASCADE, seed=3),
        sw.RandomDepth(CASCADE, seed=4),
    ]


kinds = st.integers(0, len(policies()) - 1)


def stage(arm: int) -> Any:
    def run(case: Any) -> Any:
        outcome = case[1][arm]
        if outcome in ("raises", "interrupted"):
            raise ConnectionError("no answer") if outcome == "raises" else KeyboardInterrupt
        return {"nan": float("nan"), "unhashable": []}.get(outcome, outcome)

    return run


@given(cases=st.lists(case, max_size=12), kind=kinds, looped=st.booleans())
def test_failures_anywhere_leave_what_the_answered_prefixes_teach(
    cases: list[Any], kind: int, looped: bool
) -> None:
    """An interrupted round teaches nothing, but has been decided."""
    policy, twin = policies()[kind], policies()[kind]
    runner = Runner(policy, [stage(arm) for arm in range(ARMS)], context=lambda case: case[0])
    for x, plan in cases:
        decision = twin.decide(x)
        answered = 0
        while answered <= decision.stop and isinstance(plan[answered], int):
            answered += 1
        if answered <= decision.stop and plan[answered] == "interrupted":
            with pytest.raises(KeyboardInterrupt):
                runner.run((x, plan))
            assert policy.rounds == twin.rounds
            continue
        if answered:
            twin.observe(x, plan[:answered], rule_stop=decision.rule_stop)

        done = asyncio.run(runner.arun((x, plan))) if looped else runner.run((x, plan))
        assert done.outputs == plan[:answered]
        assert done.stop == (answered - 1 if answered else None)
        assert done.rule_stop == decision.rule_stop
        assert (done.failure is None) == (answered == decision.stop + 1)
        if done.failure is not None:
            assert done.failure.arm == answered
    assert frozen(policy) == frozen(twin)


@given(
    contexts=st.lists(st.lists(number, min_size=4, max_size=4), min_size=1, max_size=12),
    broken=st.sets(st.tuples(st.integers(0, 24), st.integers(0, 1))),
)
def test_a_revelation_that_fails_leaves_what_the_answered_prefixes_teach(
    contexts: list[list[float]], broken: set[tuple[int, int]]
) -> None:
    def learner() -> sw.USSPD:
        features = sw.PerStage([sw.Polynomial(degree=1)] * 2, sees=[2, 4])
        return sw.USSPD(CASCADE, features, 4, forced_rounds=4)

    def reveals(arm: int) -> Any:
        def revealed(answer: tuple[int, int]) -> list[float]:
            t, _ = answer
            given = contexts[t][1:2] if arm == 0 else contexts[t][2:]
            return [*given, 0.5] if (t, arm) in broken else given  # one too many

        return revealed

    def says(t: int, arm: int) -> int:
        return int(sum(contexts[t][: arm + 2]) > 0)

    policy, twin = learner(), learner()
    stages = [
        Stage(
            lambda t, arm=arm: (t, says(t, arm)),
            canonical=lambda answer: answer[1],
            reveals=reveals(arm),
        )
        for arm in range(ARMS)
    ]
    runner = Runner(policy, stages, context=lambda t: contexts[t][:1])
    for t, x in enumerate(contexts):
        done = runner.run(t)
        descent = twin.start(x[:1])
        while (arm := descent.next()) is not None and (t, arm) not in broken:
            descent.give(says(t, arm), (x[1:2], x[2:], ())[arm])
        descent.learn()
        assert done.outputs == tuple(descent.outputs)
        assert done.context == descent.context
        assert (done.failure is None) == (arm is None)
    assert frozen(policy) == frozen(twin)
