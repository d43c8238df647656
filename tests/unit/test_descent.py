"""Rounds taken step by step: the same decisions, the same learning, arm by arm."""

from typing import Any

import numpy as np
import pytest

import stopwise as sw

CASCADE = sw.Cascade([0.02, 0.1, 0.15], names=["rule", "model", "expert"])
WORLD = sw.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    400, np.random.default_rng(5)
)
NAMES = [name for name, kind in sw.POLICIES.items() if not kind.needs_truth]


def outputs() -> Any:
    assert WORLD.outputs is not None
    return WORLD.outputs


def assert_same_state(one: sw.Policy, other: sw.Policy) -> None:
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    for part in mine:
        np.testing.assert_array_equal(mine[part], theirs[part], err_msg=part)


def down(descent: sw.Descent, t: int) -> list[int]:
    """Run a round; return the arms that were asked."""
    asked: list[int] = []
    while (arm := descent.next()) is not None:
        asked.append(arm)
        descent.give(int(outputs()[t, arm]))
    descent.learn()
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_step_by_step_is_decide_and_observe(name: str) -> None:
    step, whole = (sw.make(name, CASCADE, context_dim=2) for _ in range(2))
    for t in range(300):
        x = WORLD.contexts[t]
        descent = step.start(x)
        asked = down(descent, t)
        decision = whole.decide(x)
        whole.observe(x, outputs()[t, : decision.stop + 1].tolist())
        assert descent.decision == decision
        assert asked == list(range(decision.stop + 1))
    assert_same_state(step, whole)


@pytest.mark.parametrize("name", NAMES)
def test_a_round_cut_short_teaches_what_was_answered(name: str) -> None:
    step, whole = (sw.make(name, CASCADE, context_dim=2) for _ in range(2))
    for t in range(80):
        x = WORLD.contexts[t]
        descent, decision = step.start(x), whole.decide(x)
        answered = min(t % 3, decision.stop + 1)
        for _ in range(answered):
            arm = descent.next()
            assert arm is not None
            descent.give(int(outputs()[t, arm]))
        descent.learn()
        if answered:
            whole.observe(x, outputs()[t, :answered].tolist())
    assert_same_state(step, whole)


def test_rounds_may_overlap() -> None:
    policy = sw.USSPD(CASCADE, context_dim=2, forced_rounds=3)
    under_way = [policy.start(WORLD.contexts[t]) for t in range(5)]
    for t in reversed(range(5)):
        down(under_way[t], t)
    assert policy.rounds == 5


class TestMisuse:
    def descent(self) -> sw.Descent:
        return sw.USSPD(CASCADE, context_dim=2).start([0.1, 0.2])

    def test_an_answer_that_nobody_asked_for(self) -> None:
        with pytest.raises(sw.InvalidOutputsError, match="next"):
            self.descent().give(1)

    def test_an_output_that_cannot_be_compared(self) -> None:
        descent = self.descent()
        descent.next()
        with pytest.raises(sw.InvalidOutputsError, match="hashable"):
            descent.give([1])  # pyright: ignore[reportArgumentType] (the point)
        with pytest.raises(sw.InvalidOutputsError, match="NaN"):
            descent.give(float("nan"))
        descent.give(1)  # nothing was taken in before
        assert descent.outputs == [1]

    def test_learning_twice(self) -> None:
        descent = self.descent()
        descent.next()
        descent.give(1)
        descent.learn()
        with pytest.raises(sw.InvalidOutputsError, match="already"):
            descent.learn()

    def test_revealing_to_features_that_see_everything_from_the_start(self) -> None:
        descent = self.descent()
        descent.next()
        with pytest.raises(sw.InvalidContextError, match="sees"):
            descent.give(1, [0.5])

    def test_asking_twice_names_the_same_arm(self) -> None:
        descent = self.descent()
        assert descent.next() == 0
        assert descent.next() == 0

    def test_a_policy_that_needs_the_truth(self) -> None:
        with pytest.raises(sw.TruthRequiredError):
            sw.Oracle(CASCADE).start([0.1, 0.2])


# --------------------------------------------------------------- context revealed along the way

SEES = [1, 2]
MAPS = [sw.Polynomial(degree=1), sw.Polynomial(degree=2)]


def staged(name: str = "uss-pd", **parameters: Any) -> Any:
    features = sw.PerStage(MAPS, sees=SEES)
    return sw.make(name, CASCADE, features=features, context_dim=2, **parameters)


def down_revealing(policy: Any, t: int) -> sw.Descent:
    """Run a round whose second stage reveals the second coordinate."""
    x = WORLD.contexts[t]
    descent = policy.start(x[:1])
    while (arm := descent.next()) is not None:
        descent.give(int(outputs()[t, arm]), x[1:] if arm == 1 else ())
    descent.learn()
    return descent


STAGED = {
    "uss-pd": {"forced_rounds": 20, "sigma": 0.02},
    "uss-pd-ridge": {"sigma": 0.02, "S": 0.1},
    "thompson": {"seed": 3},
    "by chance": {"forced_rounds": 20, "sigma": 0.02, "full_depth_every": 10, "seed": 2},
}


@pytest.mark.parametrize("case", STAGED)
def test_revealed_step_by_step_or_known_beforehand_is_the_same(case: str) -> None:
    name = case if case in sw.POLICIES else "uss-pd"
    live, whole, recorded = (staged(name, **STAGED[case]) for _ in range(3))
    descents = [down_revealing(live, t) for t in range(400)]
    stops = [d.decision.stop for d in descents if d.decision is not None]
    assert len(set(stops)) > 1
    assert stops == whole.run(WORLD.contexts, outputs()).tolist()
    assert_same_state(live, whole)

    # a record of the live run, which knows no more than it did, repeats it
    pairs = CASCADE.pairs()
    reach = np.array(stops)
    contexts = np.where(np.arange(2)[None, :] <= reach[:, None], WORLD.contexts, 0.0)
    differ = np.array([[outputs()[t, i] != outputs()[t, j] for i, j in pairs] for t in range(400)])
    for k, (_, j) in enumerate(pairs):
        differ[reach < j, k] = False
    rounds = sw.Rounds(contexts, differ.astype(np.uint8), reach, np.zeros(400, dtype=np.bool_))
    assert recorded.replay(rounds).tolist() == stops
    assert_same_state(live, recorded)


def test_what_is_known_late_cannot_influence_an_early_stop() -> None:
    dear = sw.Cascade([0.02, 0.6, 0.5])
    features = sw.PerStage(MAPS, sees=SEES)
    policy = sw.USSPD(dear, features=features, context_dim=2, forced_rounds=20, sigma=0.02)
    for t in range(300):
        down_revealing(policy, t)
    early = [t for t in range(300) if policy.decide(WORLD.contexts[t]).stop == 0]
    assert early
    for t in early:
        assert policy.decide([WORLD.contexts[t, 0], -WORLD.contexts[t, 1]]).stop == 0


def test_a_descent_knows_what_was_revealed() -> None:
    descent = staged().start([0.5])
    assert descent.context == (0.5,)
    descent.next()
    descent.give(1)
    descent.next()
    descent.give(1, [0.25])
    assert descent.context == (0.5, 0.25)


class TestRevealing:
    def test_too_little_or_too_much(self) -> None:
        descent = staged().start([0.5])
        descent.next()
        with pytest.raises(sw.InvalidContextError, match=r"arm 0 .* 1 number"):
            descent.give(1, [0.1])
        descent.give(1)
        descent.next()
        with pytest.raises(sw.InvalidContextError, match=r"arm 1 .* 2 numbers"):
            descent.give(1)
        with pytest.raises(sw.InvalidContextError, match="finite"):
            descent.give(1, [float("nan")])
        assert descent.context == (0.5,)

    def test_a_start_that_knows_more_than_the_first_stage_sees(self) -> None:
        with pytest.raises(sw.InvalidContextError, match="at most 1"):
            staged().start([0.5, 0.5])

    def test_evidence_speaks_of_arms_whose_features_are_known(self) -> None:
        policy = staged(forced_rounds=5)
        for t in range(40):
            descent = down_revealing(policy, t)
            assert descent.decision is not None
            assert all(e.first <= descent.decision.wanted for e in descent.decision.evidence)


def test_features_say_what_is_wrong_with_what_stages_see() -> None:
    with pytest.raises(sw.InvalidParameterError, match="none smaller"):
        sw.PerStage(MAPS, sees=[2, 1])
    with pytest.raises(sw.InvalidParameterError, match="context_dim must be 2"):
        sw.USSPD(CASCADE, features=sw.PerStage(MAPS, sees=SEES), context_dim=3)


def test_staged_policies_are_saved_whole(tmp_path: Any) -> None:
    policy = staged(forced_rounds=20, sigma=0.02, full_depth_every=5, seed=9)
    for t in range(200):
        down_revealing(policy, t)
    policy.save(tmp_path / "p")
    again: Any = sw.load(tmp_path / "p")
    for t in range(200, 400):
        one, other = down_revealing(policy, t), down_revealing(again, t)
        assert one.decision == other.decision
    assert_same_state(policy, again)


def test_chance_is_told_in_words() -> None:
    policy = staged(forced_rounds=5, sigma=0.001, full_depth_every=2, seed=1)
    said = {str(down_revealing(policy, t).decision) for t in range(200)}
    assert any("sent on by chance; the rule would have stopped at arm" in s for s in said)
