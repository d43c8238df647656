"""Failures of any kind: a policy learns exactly the answered prefix of a round."""

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
STAGED: dict[str, Any] = {"forced_rounds": 4, "explore": 0.3}  # arm 1 reveals a number
# Outcomes of a stage: an answer, or a kind of failure.
outcomes = st.integers(0, 2) | st.sampled_from(["raises", "interrupted", "nan", "unhashable"])
number = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])
case = st.tuples(st.tuples(number, number), st.tuples(*[outcomes] * ARMS))


def policies() -> list[Any]:
    return [
        sw.USSPD(CASCADE, sw.Polynomial(degree=2), 2, forced_rounds=4),
        sw.USSPD(CASCADE, sw.Identity(), 2, forced_rounds=4, explore=0.3, seed=2),
        sw.USSPDRidge(CASCADE, sw.Identity(), 2, lam=0.5, S=0.5),
        sw.Thompson(CASCADE, sw.Identity(), 2, forced_rounds=4, seed=1),
        sw.USSUCB(CASCADE, a=0.1),
        sw.USSTS(CASCADE, seed=3),
        sw.RandomDepth(CASCADE, seed=4),
        sw.USSPD(CASCADE, sw.Polynomial(degree=1), 1, reveals=[0, 1], **STAGED),
    ]


kinds = st.integers(0, len(policies()) - 1)


def stage(arm: int, staged: bool) -> Stage:
    def run(case: Any) -> Any:
        x, plan = case
        outcome = plan[arm]
        if outcome in ("raises", "interrupted"):
            raise ConnectionError("no answer") if outcome == "raises" else KeyboardInterrupt
        return {"nan": float("nan"), "unhashable": []}.get(outcome, outcome), x

    def reveals(answer: Any) -> list[float]:
        outcome, x = answer
        return [x[1]] * outcome  # the right number of values only for answer 1

    return Stage(run, canonical=lambda a: a[0], reveals=reveals if staged and arm == 1 else None)


@given(cases=st.lists(case, max_size=12), kind=kinds, asynchronous=st.booleans())
def test_a_policy_learns_the_answered_prefix_of_a_failed_round(
    cases: list[Any], kind: int, asynchronous: bool
) -> None:
    """An interrupted round is not learned, but its decision counts."""
    policy, twin = policies()[kind], policies()[kind]
    staged = policy.reveals is not None
    n_initial = 1 if staged else 2
    stages = [stage(arm, staged) for arm in range(ARMS)]
    runner = Runner(policy, stages, context=lambda case: case[0][:n_initial])
    for x, plan in cases:
        current = twin.start(x[:n_initial])
        while (arm := current.next()) is not None and isinstance(plan[arm], int):
            if staged and arm == 1 and plan[arm] != 1:
                break
            current.give(plan[arm], x[1:] if staged and arm == 1 else ())
        if arm is not None and plan[arm] == "interrupted":
            with pytest.raises(KeyboardInterrupt):
                runner.run((x, plan))
            assert policy.rounds == twin.rounds
            continue
        current.learn()
        answered = len(current.outputs)
        record = asyncio.run(runner.arun((x, plan))) if asynchronous else runner.run((x, plan))
        assert record.outputs == plan[:answered]
        assert record.stop == (answered - 1 if answered else None)
        assert (record.context, record.rule_stop) == (current.context, current.rule_stop)
        assert (record.failure.arm if record.failure else None) == arm
    assert frozen(policy) == frozen(twin)
