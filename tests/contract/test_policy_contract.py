"""Contract tests for every registered policy."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise import research
from stopwise.policies.batch import CHUNK, decide_batch
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.validation import MAX_ARMS
from tests.helpers import archive
from tests.helpers.archive import assert_same

State = dict[str, NDArray[Any]]

CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
WORLD = research.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    300, np.random.default_rng(11)
)
USS_PD = {"features": sw.Polynomial(degree=1), "forced_rounds": 20, "sigma": 0.002}
OPTIONS: dict[str, dict[str, Any]] = {
    "uss-pd": USS_PD,
    "uss-pd, exploring": USS_PD | {"explore": 0.4},
    "uss-pd-ridge": USS_PD | {"lam": 0.5, "S": 0.1, "transitive": True},
    "thompson": {"forced_rounds": 20, "seed": np.int64(3)},
    "uss-anchor": {"explore": 0},
    "uss-ucb": {"a": 0.1},
    "uss-ts": {"seed": 4},
    "random-depth": {"seed": 5},
    "fixed-depth": {"depth": 1},
}
NAMES = list(sw.POLICIES)
CASES = [*NAMES, "uss-pd, exploring"]
every_policy = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize("name", CASES)


def make(name: str, cascade: sw.Cascade = CASCADE) -> Any:
    kind = name.partition(",")[0]
    return sw.make(kind, cascade, context_dim=2, **OPTIONS.get(name, {}))


def is_random(policy: sw.Policy) -> bool:
    if isinstance(policy, PairwisePolicy):
        return (
            isinstance(policy, sw.Thompson)
            or policy.options.explored(policy.rule.always_explores) > 0
        )
    return not {"random", "decisions"}.isdisjoint(policy.state())


def observe(policy: Any, t: int, stop: int, batch: research.Batch = WORLD, **more: Any) -> None:
    assert batch.outputs is not None
    policy.observe(batch.contexts[t], batch.outputs[t, : stop + 1].tolist(), **more)


def live(policy: Any, start: int, end: int, batch: research.Batch = WORLD) -> list[int]:
    """Play rounds with decide and observe, or observe_disagreements if outputs are unknown."""
    stops: list[int] = []
    for t in range(start, end):
        decision = policy.decide(batch.contexts[t])
        stop, rule_stop = decision.stop, decision.rule_stop
        assert type(stop) is int
        assert 0 <= rule_stop <= stop < policy.cascade.n_arms
        assert decision.arm == policy.cascade.names[stop]
        assert decision.cost == policy.cascade.cumulative[stop]
        stops.append(stop)
        if batch.differ is None:
            explored = {"rule_stop": rule_stop} if rule_stop < stop else {}
            observe(policy, t, stop, batch, **explored)
        else:
            bits = zip(policy.cascade.pairs(), batch.differ[t].tolist(), strict=True)
            pairs = {pair: bool(differ) for pair, differ in bits if pair[1] <= stop}
            policy.observe_disagreements(batch.contexts[t], stop, pairs)
    return stops


def at_once(policy: Any, batch: research.Batch, start: int, end: int) -> list[int]:
    """Play the same rounds with run."""
    window = slice(start, end)
    if batch.differ is None:
        assert batch.outputs is not None
        stops = policy.run(batch.contexts[window], batch.outputs[window])
    else:
        stops = policy.run(batch.contexts[window], differ=batch.differ[window])
    assert stops.dtype == np.int64
    return stops.tolist()


def learned(policy: sw.Policy) -> State:
    """Return the learned state without random state and caches."""
    if isinstance(policy, PairwisePolicy):
        return archive.learned(policy)
    state = policy.state()
    return {name: array for name, array in state.items() if name not in {"random", "decisions"}}


# ----------------------------------------------------------------------------------- one round


@every_case
def test_decide_is_reproducible_and_learns_nothing(name: str) -> None:
    policy, twin = make(name), make(name)
    assert live(policy, 0, 40) == live(twin, 0, 40)
    for t in range(40, 60):
        before = copy.deepcopy(policy)
        x = WORLD.contexts[t]
        decision = policy.decide(x)
        assert decision == before.decide(x)  # even if it is random: the state is the same
        if not is_random(policy):
            assert decision == policy.decide(x)
    assert_same(learned(policy), learned(twin))
    if not is_random(policy):
        assert live(policy, 60, 120) == live(twin, 60, 120)


OUTPUT_PAIRS: list[tuple[Any, Any]] = [
    *(("spam", "ham"), (7, 8), ((1, "a"), (1, "b")), (True, False), (0, None)),
    *((np.float64(0.5), np.float64(0.25)), (np.str_("spam"), np.str_("ham"))),
]


@every_policy
def test_outputs_may_be_any_hashable_values(name: str) -> None:
    states: list[State] = []
    for yes, no in OUTPUT_PAIRS:
        policy = make(name)
        for outputs in ([yes, no, yes], [yes, yes, no], [no, no], [yes]):
            values = iter(outputs) if yes is True else outputs  # iterators are accepted too
            policy.observe([0.5, -0.5], values)
        states.append(policy.state())
    for other in states[1:]:
        assert_same(states[0], other)


@every_policy
def test_outputs_and_disagreements_give_the_same_state(name: str) -> None:
    by_outputs, by_mapping, by_table = make(name), make(name), make(name)
    assert WORLD.outputs is not None
    for t in range(30):
        stop, outputs = t % 3, WORLD.outputs[t]
        observe(by_outputs, t, stop)
        differ = outputs[:, None] != outputs[None, :]
        pairs = {(i, j): bool(differ[i, j]) for j in range(stop + 1) for i in range(j)}
        by_mapping.observe_disagreements(WORLD.contexts[t], stop, pairs)
        by_table.observe_disagreements(WORLD.contexts[t], stop, differ)
    assert_same(by_outputs.state(), by_mapping.state())
    assert_same(by_outputs.state(), by_table.state())


# --------------------------------------------------------------------------------- many rounds


@every_case
def test_batch_decisions_equal_single_decisions(name: str) -> None:
    policy = make(name)
    live(policy, 0, 60)
    X = WORLD.contexts[60:160]
    single, many = copy.deepcopy(policy), copy.deepcopy(policy)
    decisions = [single.decide(x) for x in X]
    stops, rule_stops = decide_batch(policy, X)
    assert stops.tolist() == [decision.stop for decision in decisions]
    assert rule_stops.tolist() == [decision.rule_stop for decision in decisions]
    assert_same(single.state(), policy.state())
    assert many.decide_many(X).tolist() == rule_stops.tolist()
    if "exploring" in name:
        assert (stops != rule_stops).any()
    else:
        assert_same(single.state(), many.state())


def some_rounds(cascade: sw.Cascade, kind: str, n: int = 160) -> research.Batch:
    """Return rounds with outputs or disagreements, and an unrelated truth."""
    n_arms = cascade.n_arms
    rng = np.random.default_rng([1, n_arms])
    labels = rng.integers(2, size=n)
    outputs = labels[:, None] ^ (rng.random((n, n_arms)) < rng.uniform(0.02, 0.12, n_arms))
    differ = np.stack([outputs[:, i] != outputs[:, j] for i, j in cascade.pairs()], axis=1)
    return research.Batch(
        rng.uniform(-1, 1, (n, 2)),
        disagreement=rng.uniform(0.0, 0.4, (n, n_arms, n_arms)),
        optimal=rng.integers(n_arms, size=n),
        margins=np.zeros(n),
        outputs=outputs if kind == "outputs" else None,
        differ=differ.astype(np.uint8) if kind == "disagreements" else None,
        labels=labels,
    )


@pytest.mark.parametrize("n_arms", [2, 3, 5])
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "outputs") for name in CASES] + [(name, "disagreements") for name in NAMES],
)
def test_run_equals_single_rounds(name: str, kind: str, n_arms: int) -> None:
    cascade = sw.Cascade(np.linspace(0.1, 0.25, n_arms))
    batch = some_rounds(cascade, kind)
    single, complete, split, mixed = (make(name, cascade) for _ in range(4))
    stops = live(single, 0, 160, batch)
    assert at_once(complete, batch, 0, 160) + at_once(complete, batch, 160, 160) == stops
    assert at_once(split, batch, 0, 71) + at_once(split, batch, 71, 160) == stops
    if not mixed.uses_context:  # any sequence of the right length is accepted
        batch = msgspec.structs.replace(batch, contexts=[None] * 160)  # pyright: ignore[reportArgumentType]
    assert at_once(mixed, batch, 0, 110) + live(mixed, 110, 160, batch) == stops
    for other in (complete, split, mixed):
        assert other.rounds == 160
        assert_same(single.state(), other.state())
    if name != "fixed-depth":
        assert len(set(stops)) > 1


@pytest.mark.parametrize("least", [0, 2])
@every_policy
def test_a_record_is_played_up_to_the_last_answer(name: str, least: int) -> None:
    policy, single, batch = make(name), make(name), some_rounds(CASCADE, "disagreements")
    rng, differ = np.random.default_rng(2), batch.differ
    assert differ is not None
    answered, share = rng.integers(least, 4, len(differ)), 0.3 if least == 0 else 0.0
    failed = rng.random(len(differ)) < share
    record = sw.RecordedRounds(batch.contexts, differ, answered, failed)
    stops = policy.run_recorded(record)
    for t, stop in enumerate(stops.tolist()):
        assert single.decide(batch.contexts[t]).stop == stop
        end = min(stop, int(answered[t]) - 1) if failed[t] else stop
        if 0 <= end < answered[t]:
            table = np.zeros((3, 3))
            table[np.triu_indices(3, 1)] = differ[t]
            single.observe_disagreements(batch.contexts[t], end, table)
    assert_same(single.state(), policy.state())
    assert 0 < policy.rounds <= len(stops)


@pytest.mark.parametrize("explore", [0.0, 0.1])
def test_a_long_run_can_be_interrupted_and_continued(explore: float) -> None:
    outputs = (np.random.default_rng(0).random((CHUNK + 500, 3)) < 0.05).astype(np.int64)
    contexts = np.full((len(outputs), 2), 0.5)
    calls: list[tuple[object, ...]] = []
    complete, stopped = (sw.USSPD(CASCADE, context_dim=2, explore=explore) for _ in range(2))
    stops = complete.run(contexts, outputs, progress=lambda *done: calls.append(done))
    assert calls == [("rounds", CHUNK, CHUNK + 500), ("rounds", CHUNK + 500, CHUNK + 500)]

    def interrupt(stage: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.run(contexts, outputs, progress=interrupt)
    assert stopped.rounds == CHUNK
    np.testing.assert_array_equal(stopped.run(contexts[CHUNK:], outputs[CHUNK:]), stops[CHUNK:])
    assert_same(complete.state(), stopped.state())


def test_a_run_of_single_rounds_reports_progress() -> None:
    policy, calls = sw.FixedDepth(CASCADE), list[tuple[object, ...]]()
    answered = np.full(1200, 2)  # incomplete records are played round by round
    record = sw.RecordedRounds(
        np.zeros((1200, 2)), np.zeros((1200, 3), np.uint8), answered, np.zeros(1200, np.bool_)
    )
    policy.run_recorded(record, progress=lambda *done: calls.append(done))
    assert calls == [("rounds", 1024, 1200), ("rounds", 1200, 1200)]


# ------------------------------------------------------------------- copies, files, descriptions


@every_case
def test_copies_are_equal_and_independent(name: str) -> None:
    policy = make(name)
    live(policy, 0, 50)
    assert policy.rounds == 50
    for twin in (copy.deepcopy(policy), copy.copy(policy), pickle.loads(pickle.dumps(policy))):
        before = copy.deepcopy(policy.state())
        assert_same(before, twin.state())
        live(twin, 50, 80)
        assert_same(before, policy.state())
        assert (policy.rounds, twin.rounds) == (50, 80)


@pytest.mark.parametrize("played", [0, 50])
@every_case
def test_a_loaded_policy_continues_bit_for_bit(name: str, played: int, tmp_path: Path) -> None:
    policy = make(name)
    live(policy, 0, played)
    policy.save(tmp_path / "policy")
    loaded: Any = sw.load(tmp_path / "policy", cascade=CASCADE)
    assert type(loaded) is type(policy)
    assert loaded.parameters() == policy.parameters()
    assert_same(policy.state(), loaded.state())
    assert live(policy, played, played + 80) == live(loaded, played, played + 80)
    assert_same(policy.state(), loaded.state())


@every_case
def test_parameters_create_an_equal_untrained_policy_and_are_in_its_repr(name: str) -> None:
    policy = make(name)
    untrained, features = policy.state(), policy.features
    live(policy, 0, 30)
    binding = {} if features is None else {"features": features.assignment, "context_dim": 2}
    twin = type(policy)(CASCADE, **binding, **policy.parameters())
    assert twin.parameters() == policy.parameters()
    assert twin.rounds == 0
    assert_same(untrained, twin.state())
    for part in (type(policy).__name__, "rule 0.05 → model 0.20 → expert 0.40", "30 rounds"):
        assert part in repr(policy)
    assert all(f"{key}={value!r}" in repr(policy) for key, value in policy.parameters().items())


@every_policy
def test_a_policy_has_a_name_and_at_most_fifteen_arms(name: str) -> None:
    policy: Any = sw.make(name, sw.Cascade([0.1] * MAX_ARMS), context_dim=2)
    assert (policy.name, policy.rounds, len(NAMES)) == (name, 0, 9)
    for cascade in (sw.Cascade([0.1] * (MAX_ARMS + 1)), [0.1, 0.2]):
        with pytest.raises(sw.errors.InvalidParameterError):
            sw.make(name, cascade, context_dim=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(sw.errors.UnknownPolicyError, match=r"'usspd'.*uss-pd"):
        sw.make("usspd", CASCADE)


# ------------------------------------------------------------------ a failing call changes nothing

X = np.array([0.5, -0.5])
NAN = float("nan")
UNHASHABLE = np.zeros((2, 3), dtype=object)
UNHASHABLE[1, 2] = {}
OUTPUTS: list[Any] = [[], [0] * 4, [0, NAN], np.array([NAN, 1.0]), [[0], [1]], 3, "yes"]
STOPS: list[Any] = [3, -1, 0.5, NAN, "1", None]
PAIRS: list[tuple[int, Any]] = [
    (2, {(0, 1): 1, (1, 2): 0}),
    (1, {(0, 1): 1, (1, 2): 0}),
    (1, {(1, 0): 1}),
    (1, {(0, 1): 2}),
    (1, [[0, NAN], [0, 0]]),
    (1, [0, 1, 0]),
    (1, [[0, 1, 0], [0, 0, 1]]),
    (2, [[0, 1], [0, 0]]),
]
TABLES: list[Any] = [
    *(np.zeros((2, 2)), np.zeros((1, 3)), [[0.0] * 3, [NAN] * 3]),
    *(np.array([[0] * 3, [NAN] * 3], dtype=object), UNHASHABLE),
]
DIFFER: list[Any] = [
    *(np.zeros((2, 1)), np.zeros((1, 3)), np.zeros((2, 3, 3)), [[0, 1, 0], [1, 1, 2]]),
    *([[0, 1, 0], [1, 1, NAN]], np.array([["0", "1", "0"]] * 2)),
]
CONTEXTS: list[Any] = [
    *([0.1, NAN], [-np.inf, 0.1], [0.1], [0.1, 0.2, 0.3], [[0.1, 0.2]], 0.1, [0.1, 1.5]),
    *(["a", "b"], None),
]


@every_policy
def test_a_failing_call_changes_nothing(name: str) -> None:
    policy = make(name)
    live(policy, 0, 40)
    before = copy.deepcopy(policy.state())

    def assert_raises(error: type[Exception], call: Callable[..., Any], *arguments: Any) -> None:
        with pytest.raises(error):
            call(*arguments)
        assert_same(before, policy.state(), f"after {call.__name__}{arguments}")

    for outputs in OUTPUTS:
        assert_raises(sw.errors.InvalidOutputsError, policy.observe, X, outputs)
    for table in TABLES:
        assert_raises(sw.errors.InvalidOutputsError, policy.run, [X, X], table)
    assert_raises(sw.errors.InvalidContextError, policy.run, 1.0, [[0, 0, 0]])
    for call, error, rows in (
        (
            policy.observe_disagreements,
            sw.errors.InvalidStopError,
            [(X, stop, {}) for stop in STOPS],
        ),
        (policy.observe_disagreements, sw.errors.InvalidOutputsError, [(X, *row) for row in PAIRS]),
    ):
        for row in rows:
            assert_raises(error, call, *row)

    def run_pairs(table: Any) -> None:
        policy.run([X, X], differ=table)

    for table in DIFFER:
        assert_raises(sw.errors.InvalidOutputsError, run_pairs, table)
    assert_raises(sw.errors.InvalidOutputsError, policy.run, [X, X])
    if policy.uses_context:
        bounded = not policy.features.self_scaling  # features that scale themselves clip
        for x in CONTEXTS if bounded else [x for x in CONTEXTS if x != [0.1, 1.5]]:
            for form in (x, np.array(x)):  # arrays go directly to the engine
                assert_raises(sw.errors.InvalidContextError, policy.decide, form)
                assert_raises(sw.errors.InvalidContextError, policy.observe, form, [1, 1])
        outside = [X, [2.0, 0.0] if bounded else [NAN, 0.0]]
        assert_raises(sw.errors.InvalidContextError, policy.decide_many, outside)
        assert_raises(sw.errors.InvalidContextError, policy.run, outside, np.zeros((2, 3)))


@every_policy
def test_arguments_are_not_changed(name: str) -> None:
    policy = make(name)
    for kind in ("outputs", "disagreements"):
        batch = some_rounds(CASCADE, kind)
        before = copy.deepcopy(msgspec.structs.asdict(batch))
        live(policy, 0, 5, batch)
        at_once(policy, batch, 5, 40)
        policy.decide_many(batch.contexts)
        for field, values in before.items():
            np.testing.assert_array_equal(getattr(batch, field), values)
    x, outputs = [0.5, -0.5], [1, 0, 1]
    policy.observe(x, outputs)
    assert (x, outputs) == ([0.5, -0.5], [1, 0, 1])


def test_an_error_in_a_table_names_the_arm_and_the_round() -> None:
    policy, contexts = sw.USSUCB(CASCADE), np.zeros((2, 1))
    with pytest.raises(sw.errors.InvalidOutputsError, match="arm 2 in round 1 is NaN"):
        policy.run(contexts, np.array([[0, 0, 0], [0, 0, NAN]]))
    with pytest.raises(sw.errors.InvalidOutputsError, match=r"got \{\} for arm 2 in round 1"):
        policy.run(contexts, UNHASHABLE)
    with pytest.raises(sw.errors.InvalidOutputsError, match=r"pair \(0, 2\) in round 1.* got 2$"):
        policy.run(contexts, differ=[[0, 1, 0], [1, 2, 0]])
    with pytest.raises(sw.errors.InvalidContextError, match=r"coordinate 1 is 1\.5"):
        sw.USSPD(CASCADE, context_dim=2).decide([0.1, 1.5])


def test_a_policy_has_at_most_36_public_names() -> None:
    policy = sw.USSLaplace(CASCADE, context_dim=2)
    assert len([name for name in dir(policy) if not name.startswith("_")]) <= 36
