"""Tests of rounds that are decided step by step."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from tests.helpers.archive import assert_same

CASCADE = sw.Cascade([0.02, 0.1, 0.15], names=["rule", "model", "expert"])
WORLD = research.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    300, np.random.default_rng(5)
)
assert WORLD.outputs is not None
OUTPUTS = WORLD.outputs
NAMES = list(sw.POLICIES)
MAPS = [sw.Polynomial(degree=1), sw.Polynomial(degree=2)]


def staged(name: str = "uss-pd", cascade: sw.Cascade = CASCADE, **parameters: Any) -> Any:
    options = {"features": sw.PerStage(MAPS), "context_dim": 1, "reveals": [0, 1]}
    return sw.make(name, cascade, **options, **parameters)


def play(policy: Any, t: int, *, interrupted: bool = False) -> sw.RoundInProgress:
    """Play a round; with ``reveals``, its second stage reveals the second coordinate.

    If interrupted, the round is saved as JSON and resumed between calls.
    """
    x = WORLD.contexts[t]
    current = policy.start(x[:1] if policy.reveals is not None else x)

    def resumed(current: sw.RoundInProgress) -> sw.RoundInProgress:
        if not interrupted:
            return current
        return policy.resume(msgspec.json.decode(msgspec.json.encode(current.state())))

    current = resumed(current)
    while (arm := current.next()) is not None:
        current = resumed(current)
        reveals = policy.reveals is not None and arm == 1
        current.give(int(OUTPUTS[t, arm]), x[1:].tolist() if reveals else ())
        current = resumed(current)
    current = resumed(current)
    current.learn()
    return current


@pytest.mark.parametrize("name", [*NAMES, "exploring"])
def test_step_by_step_equals_decide_and_observe(name: str) -> None:
    def make() -> sw.Policy:
        if name == "exploring":
            return sw.USSPD(CASCADE, MAPS[0], 2, forced_rounds=5, sigma=0.002, explore=0.5)
        return sw.make(name, CASCADE, context_dim=2)

    stepwise, at_once = make(), make()
    explored = 0
    for t in range(120):
        x = WORLD.contexts[t]
        current, decision = stepwise.start(x), at_once.decide(x)
        answered = decision.stop + 1 if t % 4 else min(t % 3, decision.stop + 1)  # some end early
        for arm in range(answered):
            assert current.next() == current.next() == arm
            current.give(int(OUTPUTS[t, arm]))
        if t % 4:
            assert current.next() is None
            assert current.decision == decision
        current.learn()
        if answered:
            rule_stop = min(decision.rule_stop, answered - 1)
            explored += rule_stop < answered - 1
            at_once.observe(x, OUTPUTS[t, :answered].tolist(), rule_stop=rule_stop)
    assert_same(stepwise.state(), at_once.state())
    assert (explored > 0) == (name in ("exploring", "uss-anchor"))


def test_calls_in_the_wrong_order_and_invalid_outputs_are_rejected() -> None:
    policy = sw.USSPD(CASCADE, context_dim=2)
    current, other = policy.start([0.1, 0.2]), policy.start([0.3, 0.4])
    with pytest.raises(sw.errors.InvalidOutputsError, match="next"):
        current.give(1)
    current.next()
    for output in ([1], float("nan")):
        with pytest.raises(sw.errors.InvalidOutputsError):
            current.give(output)  # pyright: ignore[reportArgumentType] (intentionally invalid)
    with pytest.raises(sw.errors.InvalidContextError, match="reveals="):
        current.give(1, [0.5])
    current.give(1)
    assert current.outputs == [1]
    current.learn()
    with pytest.raises(sw.errors.InvalidOutputsError):
        current.learn()
    assert other.next() == 0  # rounds may overlap
    other.give(0)
    other.learn()
    assert policy.rounds == 2


EXPLORING = {"forced_rounds": 20, "sigma": 0.02, "explore": 0.2, "seed": 2}


@pytest.mark.parametrize(
    "policies",
    [lambda: sw.USSPD(CASCADE, MAPS[0], 2, **EXPLORING), lambda: staged(**EXPLORING)],
    ids=["complete context", "revealed context"],
)
def test_a_round_in_progress_can_be_saved_and_resumed(policies: Any) -> None:
    policy, twin = policies(), policies()
    stops: set[int] = set()
    for t in range(250):
        expected, resumed = play(policy, t), play(twin, t, interrupted=True)
        assert resumed.decision is not None
        assert resumed.decision == expected.decision
        assert (resumed.outputs, resumed.context) == (expected.outputs, expected.context)
        assert resumed.rule_stop == expected.rule_stop
        stops.add(resumed.decision.stop)
    assert_same(policy.state(), twin.state())
    assert len(stops) > 1


def test_follow_overrides_the_stop_of_the_rule() -> None:
    current = sw.FixedDepth(CASCADE, depth=0).start([0.0])
    current.next()
    current.give("yes")
    assert current.next() is None
    current.follow(ended=False)
    current.give("no")
    current.follow(ended=True)
    assert (current.outputs, current.next()) == (["yes", "no"], None)
    assert current.decision is not None


# ------------------------------------------------------------------------- revealed context


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("uss-pd", {"forced_rounds": 20, "sigma": 0.02}),
        ("uss-pd-ridge", {"sigma": 0.02, "S": 0.1}),
        ("thompson", {"seed": 3}),
        ("uss-laplace", {}),
        ("uss-anchor", {"seed": 2}),
        ("uss-pd", EXPLORING),
    ],
)
def test_revealed_context_gives_the_same_result_step_by_step_and_recorded(
    name: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    live, batch, recorded = (staged(name, **parameters) for _ in range(3))
    rounds = [play(live, t) for t in range(300)]
    stops = np.array([r.decision.stop for r in rounds if r.decision is not None])
    assert len(set(stops)) > 1
    assert batch.run(WORLD.contexts[:150], OUTPUTS[:150]).tolist() == stops[:150].tolist()
    batch.save(tmp_path / "policy")
    batch = sw.load(tmp_path / "policy")
    assert batch.run(WORLD.contexts[150:], OUTPUTS[150:]).tolist() == stops[150:].tolist()
    assert_same(live.state(), batch.state())

    # A record of what the live run revealed is played with the same result.
    contexts = np.where(np.arange(2) <= stops[:, None], WORLD.contexts, 0.0)
    differ = np.stack(
        [(OUTPUTS[:, i] != OUTPUTS[:, j]) & (stops >= j) for i, j in CASCADE.pairs()], axis=1
    )
    failed = np.zeros(300, dtype=np.bool_)
    record = sw.RecordedRounds(contexts, differ.astype(np.uint8), stops + 1, failed)
    np.testing.assert_array_equal(recorded.run_recorded(record), stops)
    assert_same(live.state(), recorded.state())


def test_the_number_of_revealed_values_is_checked() -> None:
    policy = staged(forced_rounds=5)
    with pytest.raises(
        sw.errors.InvalidContextError, match="before the first arm must have 1 values"
    ):
        policy.start([0.5, 0.5])
    current = policy.start([0.5])
    for revealed, invalid in (([], [[0.1]]), ([0.25], [[], [float("nan")], [0.1, 0.2]])):
        current.next()
        for values in invalid:
            with pytest.raises(sw.errors.InvalidContextError, match="reveal"):
                current.give(1, values)
        assert current.context == (0.5,)
        current.give(1, revealed)
    assert current.context == (0.5, 0.25)


def test_an_early_stop_uses_and_reports_only_revealed_context() -> None:
    cascade = sw.Cascade([0.02, 0.3, 0.3])
    policy = staged(cascade=cascade, forced_rounds=20, sigma=0.02, explore=0.25, seed=1)
    explored = 0
    for t in range(300):
        decision = play(policy, t).decision
        assert decision is not None
        assert all(e.first <= decision.rule_stop for e in decision.evidence)
        if decision.rule_stop < decision.stop:
            explored += 1
            assert f"the rule stopped at arm {decision.rule_stop}" in str(decision)
    assert 10 < explored < 150
    early = 0
    for x, outputs in zip(WORLD.contexts[:, None], OUTPUTS[:, None], strict=True):
        stop, other = (copy.deepcopy(policy).run(x * [1, s], outputs)[0] for s in (1, -1))
        early += stop == 0  # before the second coordinate is revealed
        assert (stop == 0) == (other == 0)
    assert 0 < early < 300


def test_a_learned_round_cannot_be_learned_again_after_resuming() -> None:
    policy = sw.USSPD(CASCADE, context_dim=2)
    current = policy.start([0.1, 0.2])
    current.next()
    current.give(1)
    current.learn()
    with pytest.raises(sw.errors.InvalidOutputsError, match=r"learn\(\) may be called only once"):
        policy.resume(current.state()).learn()


def test_resume_rejects_a_context_that_is_invalid_for_the_features() -> None:
    wide = sw.USSPD(CASCADE, sw.Identity(bound=9), 2)
    current = wide.start([5.0, 0.0])
    current.next()
    current.give(1)
    with pytest.raises(ValueError, match="invalid for the features"):
        sw.USSPD(CASCADE, sw.Identity(), 2).resume(current.state())
