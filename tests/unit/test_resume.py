"""Rounds that outlive their process, and decisions by the batch: the same as one by one."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.policies.persistence import decode, encode

CASCADE = sw.Cascade([0.05, 0.4, 0.4])


def revealing(**more: Any) -> sw.USSPD:
    features = sw.PerStage([sw.Polynomial(degree=1), sw.Polynomial(degree=1)], sees=[2, 3])
    return sw.USSPD(CASCADE, features=features, context_dim=3, forced_rounds=20, **more)


SEES: dict[str, Any] = {"features": sw.Polynomial(degree=1), "context_dim": 3}
POLICIES: dict[str, Callable[[], sw.Policy]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, forced_rounds=20, **SEES),
    "chance": lambda: sw.USSPD(CASCADE, forced_rounds=20, full_depth_every=4, **SEES),
    "ridge": lambda: sw.USSPDRidge(CASCADE, full_depth_every=7, **SEES),
    "thompson": lambda: sw.Thompson(CASCADE, forced_rounds=20, **SEES),
    "uss-ucb": lambda: sw.USSUCB(CASCADE),
    "uss-ts": lambda: sw.USSTS(CASCADE, seed=5),
    "random": lambda: sw.RandomDepth(CASCADE, seed=5),
}


def same(a: sw.Policy, b: sw.Policy) -> bool:
    one, two = a.state(), b.state()
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)


def taught(policy: sw.Policy, rounds: int = 120) -> sw.Policy:
    rng = np.random.default_rng(3)
    for x in rng.uniform(-1, 1, (rounds, 3)):
        decision = policy.decide(x)
        said = [bool(x[0] + part > 0) for part in (0.0, 0.1 * x[1], 0.2 * x[2])]
        policy.observe(x, said[: decision.stop + 1], wanted=decision.wanted)
    return policy


@pytest.mark.parametrize("name", POLICIES)
def test_a_batch_decides_as_one_by_one_and_leaves_the_same_bits(name: str) -> None:
    one, all_ = taught(POLICIES[name]()), taught(POLICIES[name]())
    X = np.random.default_rng(9).uniform(-1, 1, (200, 3))
    decisions = [one.decide(x) for x in X]
    stops, wanted = all_.decide_batch(X)
    assert stops.tolist() == [decision.stop for decision in decisions]
    assert wanted.tolist() == [decision.wanted for decision in decisions]
    assert same(one, all_)
    if name == "chance":
        assert (stops != wanted).any()


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_as_bytes_goes_on_bit_for_bit(name: str) -> None:
    policy = taught(POLICIES[name]())
    copy = decode(encode(policy))
    assert same(taught(policy), taught(copy))


def played(policy: sw.Policy, x: list[float], *, interrupt: bool, staged: bool) -> list[object]:
    """Play one round, carried through its state as JSON between any two calls, or not."""
    descent = policy.start(x[:2] if staged else x)
    told: list[object] = []
    while True:
        if interrupt:
            descent = policy.resume(msgspec.json.decode(msgspec.json.encode(descent.state())))
        arm = descent.next()
        if arm is None:
            break
        if interrupt:
            descent = policy.resume(msgspec.json.decode(msgspec.json.encode(descent.state())))
        descent.give("yes" if x[arm] > 0 else "no", x[2:] if staged and arm == 1 else ())
        told.append(descent.outputs[-1])
    if interrupt:
        descent = policy.resume(descent.state())
    assert descent.decision is not None
    assert descent.decision.stop == len(told) - 1
    descent.learn()
    return [*told, descent.wanted, descent.context]


@pytest.mark.parametrize("staged", [False, True])
def test_a_round_under_way_survives_its_process(staged: bool) -> None:
    def make() -> sw.Policy:
        if staged:
            return revealing(full_depth_every=4)
        return sw.USSPD(CASCADE, forced_rounds=20, full_depth_every=4, **SEES)

    whole, broken = make(), make()
    rng = np.random.default_rng(4)
    ends: set[int] = set()
    for x in rng.uniform(-1, 1, (300, 3)).tolist():
        x[1] = abs(x[0])  # arms 0 and 1 mostly agree, so that some rounds end early
        expected = played(whole, x, interrupt=False, staged=staged)
        assert played(broken, x, interrupt=True, staged=staged) == expected
        ends.add(len(expected))
    assert same(whole, broken)
    assert len(ends) > 1


def test_a_round_follows_the_record_where_the_rule_says_otherwise() -> None:
    policy = sw.FixedDepth(CASCADE, depth=0)
    descent = policy.start([0.0])
    assert descent.next() == 0
    descent.give("yes")
    assert descent.next() is None
    descent.follow(ended=False)
    descent.give("no")
    assert descent.outputs == ["yes", "no"]
    descent.follow(ended=True)
    assert descent.decision is not None
    assert descent.next() is None
