"""Tests of user-defined policies at every entry point."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.policies.batch import decide_batch, explore_many, should_stop_many
from stopwise.research.experiments.simulate import measure
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.spec import build
from tests.helpers.own_policies import Averaging, Cautious, Shallow

N = 60
COSTS = (0.05, 0.15, 0.2)
CASCADE = sw.Cascade(COSTS, names=["one", "two", "three"])
BATCH = research.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    N, np.random.default_rng(3)
)
assert BATCH.outputs is not None
assert BATCH.labels is not None
OUTPUTS, LABELS = BATCH.outputs, BATCH.labels
DIFFER = np.stack([OUTPUTS[:, i] != OUTPUTS[:, j] for i, j in CASCADE.pairs()], axis=1)
RECORD = sw.RecordedRounds(
    BATCH.contexts, DIFFER.astype(np.uint8), np.full(N, 3), np.zeros(N, dtype=np.bool_)
)


# -- built-in policies are final ----------------------------------------------------------------


@pytest.mark.parametrize("name", sw.POLICIES)
def test_a_built_in_policy_cannot_be_subclassed(name: str) -> None:
    kind = sw.POLICIES[name]
    with pytest.raises(
        sw.errors.FinalPolicyError,
        match=f"Mine cannot subclass {kind.__name__}.*subclass Policy and delegate",
    ):
        type("Mine", (kind,), {})
    with pytest.raises(TypeError):
        type("Mixed", (type("Mixin", (), {}), kind), {})


def test_an_own_policy_can_be_subclassed() -> None:
    class Deeper(Shallow):
        def decide(self, x: Any) -> sw.Decision:
            return self.cascade.decision(1)

    assert Deeper(CASCADE).run(BATCH.contexts, OUTPUTS).tolist() == [1] * N


# -- every entry point --------------------------------------------------------------------------


def by_steps(policy: Any) -> list[int]:
    stops: list[int] = []
    for t in range(N):
        current = policy.start(BATCH.contexts[t])
        while (arm := current.next()) is not None:
            current.give(int(OUTPUTS[t, arm]))
            current = policy.resume(current.state())
        current.learn()
        stops.append(current.decision.stop)
    return stops


def by_runner(policy: Any) -> list[int | None]:
    stages = [lambda t, arm=arm: int(OUTPUTS[t, arm]) for arm in range(3)]
    runner = sw.Runner(policy, stages, context=lambda t: BATCH.contexts[t])
    return [result.stop for result in runner.run_many(range(N))]


def by_decide_and_observe(policy: Any) -> list[int]:
    stops: list[int] = []
    for t in range(N):
        decision = policy.decide(BATCH.contexts[t])
        stops.append(decision.stop)
        outputs = OUTPUTS[t, : decision.stop + 1].tolist()
        policy.observe(BATCH.contexts[t], outputs, rule_stop=decision.rule_stop)
    return stops


LEARNING: dict[str, Callable[[Any], Any]] = {
    "run": lambda p: p.run(BATCH.contexts, OUTPUTS),
    "run by differ": lambda p: p.run(BATCH.contexts, differ=DIFFER),
    "run_recorded": lambda p: p.run_recorded(RECORD),
    "measure": lambda p: measure(p, BATCH).stops,
    "runner": by_runner,
    "steps": by_steps,
}


@pytest.mark.parametrize("entry", LEARNING)
@pytest.mark.parametrize(
    "make",
    [lambda: Averaging(CASCADE), lambda: Cautious(Averaging(CASCADE))],
    ids=["policy", "wrapped policy"],
)
def test_entry_points_make_the_same_decisions_and_learn_the_same(
    entry: str, make: Callable[[], Any]
) -> None:
    expected, policy = make(), make()
    assert list(LEARNING[entry](policy)) == by_decide_and_observe(expected)
    state, other = (getattr(p, "inner", p).state() for p in (policy, expected))
    for name, array in state.items():
        np.testing.assert_array_equal(array, other[name])


def test_an_observation_contains_exactly_what_was_revealed() -> None:
    for play in LEARNING.values():
        policy = Shallow(CASCADE)
        stops = list(play(policy))
        assert len(policy.seen) == N
        assert set(stops) == {0, 2}
        for t, observation in enumerate(policy.seen):
            n = stops[t] + 1
            assert (observation.stop, observation.rule_stop) == (stops[t], stops[t])
            np.testing.assert_array_equal(observation.context, BATCH.contexts[t])
            assert observation.differ.shape == (n, n)
            for i, j in CASCADE.pairs():
                if j < n:
                    assert observation.differ[i, j] == (OUTPUTS[t, i] != OUTPUTS[t, j])


def test_a_record_is_played_only_up_to_its_last_answer() -> None:
    random = np.random.default_rng(0)
    answered, failed = random.integers(0, 4, N), random.random(N) < 0.3
    policy = Shallow(CASCADE)
    record = sw.RecordedRounds(BATCH.contexts, DIFFER.astype(np.uint8), answered, failed)
    stops = policy.run_recorded(record)
    expected: list[tuple[int, int]] = []
    for t, stop in enumerate(stops.tolist()):
        end = min(stop, int(answered[t]) - 1) if failed[t] else stop
        if 0 <= end < answered[t]:
            expected.append((t, end))
    for observation, (t, end) in zip(policy.seen, expected, strict=True):
        assert observation.stop == end
        np.testing.assert_array_equal(observation.context, BATCH.contexts[t])


def test_a_warm_start_learns_without_deciding() -> None:
    policy = Shallow(CASCADE)
    policy.observe_many(RECORD, np.arange(N) % 3)
    assert [observation.stop for observation in policy.seen] == [t % 3 for t in range(N)]


def test_batch_decisions_equal_single_decisions() -> None:
    policy = Averaging(CASCADE, explore=0.5)
    stops, rule_stops = decide_batch(policy, BATCH.contexts)
    decisions = [policy.decide(x) for x in BATCH.contexts]
    assert stops.tolist() == [decision.stop for decision in decisions]
    assert rule_stops.tolist() == [decision.rule_stop for decision in decisions]
    assert policy.decide_many(BATCH.contexts).tolist() == rule_stops.tolist()
    should_stop = should_stop_many(Shallow(CASCADE), RECORD)
    assert should_stop.all()
    assert not explore_many(policy, 5).any()


def test_the_service_uses_an_own_policy() -> None:
    spec = CascadeSpec("tests", [Arm(f"arm {k}", c) for k, c in enumerate(COSTS)], context=2)
    policy = Averaging(CASCADE, explore=0)
    event, _ = ServedCascade(0, spec, 0.0, policy).open(BATCH.contexts.tolist(), 0.0, 1)
    assert event is not None
    assert list(event.stops) == policy.decide_many(BATCH.contexts).tolist()


def test_a_registered_policy_is_available_in_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = [Arm("small", 0.1), Arm("large", 0.3)]
    spec = CascadeSpec("tests", arms, context=2, policy={"kind": "averaging", "explore": 0.2})
    with pytest.raises(RequestError, match="unknown policy 'averaging'; choose from uss-laplace"):
        build(spec)
    monkeypatch.setitem(sw.POLICIES, "averaging", Averaging)
    policy = build(spec)
    assert isinstance(policy, Averaging)
    assert policy.explore == 0.2
    wrong = CascadeSpec("tests", arms, context=2, policy={"kind": "averaging", "exploer": 0.2})
    with pytest.raises(
        RequestError, match=r"unknown parameter of averaging; did you mean 'explore'"
    ):
        build(wrong)


def test_replay_plays_an_own_policy(tmp_path: Path) -> None:
    rows = np.column_stack([BATCH.contexts, OUTPUTS]).tolist()
    lines = ["a,b,one,two,three", *(",".join(map(repr, row)) for row in rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = sw.Log(
        tmp_path / "log.csv", sw.Columns(context=("a", "b"), outputs=("one", "two", "three"))
    )
    result = sw.replay(log, CASCADE, (Averaging(CASCADE, explore=0),))
    (replayed,) = result.policies
    shares = [round(share.value * N) for share in replayed.depths]
    stops = by_decide_and_observe(Averaging(CASCADE, explore=0))
    assert shares == np.bincount(stops, minlength=3).tolist()


def test_an_own_policy_plays_an_experiment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sw.POLICIES, "averaging", Averaging)
    spec = research.PolicySpec("averaging", {"explore": 0.0})
    policy: Any = spec.build(CASCADE, context_dim=2, seed=4)
    assert (policy.explore, policy.features.context_dim) == (0.0, 2)
    assert measure(policy, BATCH).stops.shape == (N,)


# -- labels, files and mistakes -----------------------------------------------------------------


def test_requested_labels_of_an_own_policy_are_learned() -> None:
    options = {"labels": 20, "explore": 0.0}
    runs = [Averaging(CASCADE, **options), Averaging(CASCADE, **options)]
    runs[0].run(BATCH.contexts, OUTPUTS, labels=LABELS)
    for t in range(N):
        current = runs[1].start(BATCH.contexts[t])
        while (arm := current.next()) is not None:
            current.give(int(OUTPUTS[t, arm]))
        current.learn()
        if current.wants_label:
            runs[1].label(current, int(LABELS[t]))
    gained = [policy.state()["gained"] for policy in runs]
    np.testing.assert_array_equal(gained[0], gained[1])
    assert gained[0].max() > 1


def test_a_policy_without_labels_rejects_them() -> None:
    policy = Shallow(CASCADE)
    assert not policy.learns_from_labels
    current = policy.start([0.5, 0.5])
    current.next()
    current.give(1)
    current.learn()
    with pytest.raises(sw.errors.LabelsNotSupportedError, match="Shallow does not learn"):
        policy.label(current, 1)
    with pytest.raises(
        sw.errors.InvalidParameterError,
        match="this Shallow does not request labels; use USSLaplace",
    ):
        policy.run(BATCH.contexts, OUTPUTS, labels=LABELS)


def test_a_registered_policy_is_saved_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, path = Averaging(CASCADE, sw.Polynomial(1), explore=0.3), tmp_path / "policy"
    by_decide_and_observe(policy)
    with pytest.raises(
        sw.errors.PersistenceError, match="not registered under the name 'averaging'"
    ):
        policy.save(path)
    monkeypatch.setitem(sw.POLICIES, "averaging", Averaging)
    policy.save(path)
    loaded = sw.load(path)
    assert isinstance(loaded, Averaging)
    assert repr(loaded) == repr(policy)
    assert by_decide_and_observe(loaded) == by_decide_and_observe(policy)
    monkeypatch.delitem(sw.POLICIES, "averaging")
    with pytest.raises(sw.errors.CorruptFileError, match="register your own policies"):
        sw.load(path)


def test_a_policy_without_state_cannot_be_saved(tmp_path: Path) -> None:
    policy = Shallow(CASCADE)
    for call in (policy.state, lambda: policy.restore({})):
        with pytest.raises(sw.errors.PersistenceError, match="implement state and restore"):
            call()
    with pytest.raises(sw.errors.PersistenceError):
        policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_a_stop_out_of_range_is_rejected() -> None:
    class Lost(Shallow):
        def decide(self, x: Any) -> sw.Decision:
            return sw.Decision(3, "nowhere", 1.0)

    with pytest.raises(sw.errors.InvalidStopError):
        Lost(CASCADE).run(BATCH.contexts, OUTPUTS)


def test_an_invalid_context_is_rejected_before_any_round_is_played() -> None:
    contexts, policy = BATCH.contexts.copy(), Averaging(CASCADE)
    contexts[-1, 0] = np.nan
    before = copy.deepcopy(policy.state())
    with pytest.raises(sw.errors.InvalidContextError, match=f"row {N - 1}"):
        policy.run(contexts, OUTPUTS)
    for name, array in policy.state().items():
        np.testing.assert_array_equal(array, before[name])
