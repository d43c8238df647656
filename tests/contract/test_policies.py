"""What every policy of the registry promises, checked by one set of functions."""

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.policies.base import CHUNK
from stopwise.policies.contextual import Contextual
from tests import archive

State = dict[str, NDArray[Any]]

CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
WORLD = sw.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    500, np.random.default_rng(11)
)
EXPLORE = {"forced_rounds": 20}
SETTINGS: dict[str, dict[str, Any]] = {
    "uss-pd": EXPLORE,
    "uss-pd-ridge": {"lam": 0.5, "S": 0.5},
    "thompson": {**EXPLORE, "seed": 3},
    "supervised": EXPLORE,
    "uss-ucb": {"a": 0.1},
    "uss-ts": {"seed": 4},
    "random-depth": {"seed": 5},
    "fixed-depth": {"depth": "model"},
}
NAMES = list(sw.POLICIES)


def make(name: str) -> Any:
    return sw.make(name, CASCADE, context_dim=2, **SETTINGS.get(name, {}))


def random(policy: sw.Policy) -> bool:
    return "random" in policy.state()


def told_before(policy: sw.Policy) -> bool:
    """Say whether the truth goes to decide: the oracle and the clairvoyant."""
    return "truth" in inspect.signature(policy.decide).parameters


def told_after(policy: sw.Policy) -> bool:
    return "truth" in inspect.signature(policy.observe).parameters


def truth(t: int) -> sw.Truth:
    assert WORLD.labels is not None
    return sw.Truth(int(WORLD.labels[t]), int(WORLD.optimal[t]), WORLD.disagreement[t])


def decide(policy: Any, t: int) -> sw.Decision:
    return policy.decide(WORLD.contexts[t], *([truth(t)] if told_before(policy) else []))


def observe(policy: Any, t: int, stop: int) -> None:
    assert WORLD.outputs is not None
    said = WORLD.outputs[t, : stop + 1].tolist()
    policy.observe(WORLD.contexts[t], said, *([truth(t)] if told_after(policy) else []))


def live(policy: Any, start: int, end: int) -> list[int]:
    stops: list[int] = []
    for t in range(start, end):
        stops.append(decide(policy, t).stop)
        observe(policy, t, stops[-1])
    return stops


def told_all(policy: sw.Policy, batch: "sw.Batch | Rounds", rounds: slice) -> dict[str, Any]:
    """The truth that a run of these rounds needs, as keywords."""
    if told_before(policy):
        return {"optimal": batch.optimal[rounds], "disagreement": batch.disagreement[rounds]}
    if told_after(policy):
        assert batch.labels is not None
        return {"labels": batch.labels[rounds]}
    return {}


def assert_same(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for part, array in one.items():
        np.testing.assert_array_equal(array, other[part], err_msg=part)


def learned(policy: sw.Policy) -> State:
    """What was learned: all but the random state and how exactly estimates are worked out."""
    if isinstance(policy, Contextual):
        return archive.learned(policy)
    state = policy.state()
    state.pop("random", None)
    return state


# ---------------------------------------------------------------------------------- the checks


def check_decide_learns_nothing(name: str) -> None:
    policy = make(name)
    live(policy, 0, 60)
    before = learned(policy)
    for t in range(60, 90):
        decide(policy, t)
    assert_same(before, learned(policy))


def check_being_asked_changes_no_later_decision(name: str) -> None:
    policy, twin = make(name), make(name)
    stops: list[int] = []
    for t in range(200):
        if not random(policy):
            decide(policy, 499 - t)
        stops += live(policy, t, t + 1)
    assert stops == live(twin, 0, 200)


def check_the_same_question_has_the_same_answer(name: str) -> None:
    policy = make(name)
    live(policy, 0, 60)
    for t in range(60, 90):
        here = copy.deepcopy(policy)  # a random policy answers the same from the same place
        assert decide(policy, t) == decide(here, t)
        if not random(policy):
            assert decide(policy, t) == decide(policy, t)


def check_a_decision_is_consistent(name: str) -> None:
    policy = make(name)
    for t in range(60):
        decision = decide(policy, t)
        assert type(decision.stop) is int
        assert 0 <= decision.stop < CASCADE.n_arms
        assert decision.arm == CASCADE.names[decision.stop]
        assert decision.cost == CASCADE.cumulative[decision.stop]
        assert decision.arm in str(decision)
        assert decision.arm in repr(decision)
        observe(policy, t, decision.stop)


def check_observe_counts_rounds(name: str) -> None:
    policy = make(name)
    for t in range(5):
        assert policy.rounds == t
        observe(policy, t, t % 3)
    assert policy.rounds == 5


ANSWERS: dict[str, tuple[Any, Any]] = {
    "strings": ("spam", "ham"),
    "integers": (7, 8),
    "tuples": ((1, "a"), (1, "b")),
    "bools": (True, False),
    "numpy integers": (np.int64(7), np.int64(8)),
    "numpy floats": (np.float64(0.5), np.float64(0.25)),
    "numpy strings": (np.str_("spam"), np.str_("ham")),
    "a number and None": (0, None),
}


def check_any_hashable_output_means_the_same(name: str) -> None:
    states: list[State] = []
    for yes, no in ANSWERS.values():
        policy = make(name)
        for said in ([yes, no, yes], [yes, yes, no], [no, no], [yes]):
            right = [sw.Truth(label=yes)] if told_after(policy) else []
            policy.observe([0.5, -0.5], said, *right)
        states.append(policy.state())
    for other in states[1:]:
        assert_same(states[0], other)


def check_a_run_without_the_truth_it_needs_is_refused(name: str) -> None:
    policy = make(name)
    if not policy.needs_truth:
        return
    with pytest.raises(sw.TruthRequiredError):
        policy.run(WORLD.contexts, WORLD.outputs)
    with pytest.raises(sw.TruthRequiredError):
        policy.run_disagreements(WORLD.contexts, np.zeros((len(WORLD.contexts), 3)))
    assert policy.rounds == 0


def check_decide_many_equals_decide(name: str) -> None:
    policy = make(name)
    live(policy, 0, 100)
    if told_before(policy):
        with pytest.raises(sw.TruthRequiredError):
            policy.decide_many(WORLD.contexts[:3])
        return
    twin = copy.deepcopy(policy)
    many = policy.decide_many(WORLD.contexts[100:200])
    assert many.dtype == np.int64
    assert many.tolist() == [decide(twin, t).stop for t in range(100, 200)]
    if random(policy):
        np.testing.assert_array_equal(policy.state()["random"], twin.state()["random"])


def check_inputs_are_not_mutated(name: str) -> None:
    policy = make(name)
    contexts, outputs = WORLD.contexts[:40].copy(), np.array(WORLD.outputs)[:40].copy()
    kept, kept_outputs = contexts.copy(), outputs.copy()
    x, said = [0.5, -0.5], [1, 0, 1]
    told = truth(0)
    table = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    marks = np.zeros((40, 3), dtype=np.uint8)
    kept_table = table.copy()
    policy.observe(x, said, *([told] if told_after(policy) else []))
    policy.decide(x, *([told] if told_before(policy) else []))
    all_told = told_all(policy, WORLD, slice(40))
    policy.run(contexts, outputs, **all_told)
    if not told_before(policy):
        policy.decide_many(contexts)
    if not told_after(policy):
        policy.observe_disagreements(x, 2, table)
        policy.run_disagreements(contexts, marks, **all_told)
    np.testing.assert_array_equal(contexts, kept)
    np.testing.assert_array_equal(outputs, kept_outputs)
    np.testing.assert_array_equal(table, kept_table)
    assert not marks.any()
    assert (x, said) == ([0.5, -0.5], [1, 0, 1])


def check_outputs_and_their_disagreements_teach_the_same(name: str) -> None:
    by_outputs, by_mapping, by_table = make(name), make(name), make(name)
    if told_after(by_outputs):
        with pytest.raises(sw.TruthRequiredError):
            by_mapping.observe_disagreements([0.5, 0.5], 1, {(0, 1): True})
        return
    assert WORLD.outputs is not None
    for t in range(30):
        stop, said = t % 3, WORLD.outputs[t]
        observe(by_outputs, t, stop)
        differ = said[:, None] != said[None, :]
        pairs = {(i, j): bool(differ[i, j]) for j in range(stop + 1) for i in range(j)}
        by_mapping.observe_disagreements(WORLD.contexts[t], stop, pairs)
        by_table.observe_disagreements(WORLD.contexts[t], stop, differ)
    assert_same(by_outputs.state(), by_mapping.state())
    assert_same(by_outputs.state(), by_table.state())


def check_copies_are_equal_and_independent(name: str) -> None:
    policy = make(name)
    live(policy, 0, 100)
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        kept = copy.deepcopy(policy.state())
        assert_same(kept, twin.state())
        live(twin, 100, 150)
        assert_same(kept, policy.state())
        assert (policy.rounds, twin.rounds) == (100, 150)


def check_parameters_remake_it_untaught(name: str) -> None:
    policy = make(name)
    fresh = policy.state()
    live(policy, 0, 30)
    sized = {"context_dim": 2} if hasattr(policy, "features") else {}
    again = type(policy)(CASCADE, **sized, **policy.parameters())
    assert again.parameters() == policy.parameters()
    assert again.rounds == 0
    assert_same(fresh, again.state())


def check_it_reads_well(name: str) -> None:
    policy = make(name)
    live(policy, 0, 3)
    for text in (repr(policy), str(policy)):
        assert type(policy).__name__ in text
        assert "rule 0.05 → model 0.20 → expert 0.40" in text
        assert "after 3 rounds" in text
        assert all(f"{key}={value!r}" in text for key, value in policy.parameters().items())
        assert " object at 0x" not in text


def check_truth_goes_only_where_it_is_asked_for(name: str) -> None:
    policy = make(name)
    assert policy.needs_truth == (told_before(policy) or told_after(policy))
    x = WORLD.contexts[0]
    if told_before(policy):
        for missing in ([], [None], [sw.Truth()], [sw.Truth(label=1)]):
            with pytest.raises(sw.TruthRequiredError):
                policy.decide(x, *missing)
    else:
        with pytest.raises(TypeError):
            policy.decide(x, truth(0))
    if told_after(policy):
        for missing in ([], [None], [sw.Truth()], [sw.Truth(optimal=1)]):
            with pytest.raises(sw.TruthRequiredError):
                policy.observe(x, [0, 1], *missing)
    else:
        with pytest.raises(TypeError):
            policy.observe(x, [0, 1], truth(0))
    assert policy.rounds == 0


CHECKS: list[Callable[[str], None]] = [
    check_decide_learns_nothing,
    check_being_asked_changes_no_later_decision,
    check_the_same_question_has_the_same_answer,
    check_a_decision_is_consistent,
    check_observe_counts_rounds,
    check_any_hashable_output_means_the_same,
    check_a_run_without_the_truth_it_needs_is_refused,
    check_decide_many_equals_decide,
    check_inputs_are_not_mutated,
    check_outputs_and_their_disagreements_teach_the_same,
    check_copies_are_equal_and_independent,
    check_parameters_remake_it_untaught,
    check_it_reads_well,
    check_truth_goes_only_where_it_is_asked_for,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_policy(name: str, check: Callable[[str], None]) -> None:
    check(name)


def test_the_registry_knows_every_policy_by_its_own_name() -> None:
    assert [kind.name for kind in sw.POLICIES.values()] == NAMES
    assert len(NAMES) == 10
    with pytest.raises(sw.UnknownPolicyError, match=r"no policy is called 'usspd'.*uss-pd"):
        sw.make("usspd", CASCADE)


# ------------------------------------------------------------ whole runs equal rounds one by one


class Rounds(NamedTuple):
    """Rounds by one of the two roads, with a truth (not theirs: none learns from it here)."""

    contexts: NDArray[np.float64]
    outputs: NDArray[np.int64] | None
    differ: NDArray[np.uint8] | None
    labels: NDArray[np.int64]
    optimal: NDArray[np.int64]
    disagreement: NDArray[np.float64]


def some_rounds(n_arms: int, road: str, seed: int, n: int = 240) -> tuple[sw.Cascade, Rounds]:
    rng = np.random.default_rng([seed, n_arms])
    cascade = sw.Cascade(rng.uniform(0.1, 0.3, n_arms))
    labels = rng.integers(2, size=n)
    wrong = rng.random((n, n_arms)) < rng.uniform(0.02, 0.12, n_arms)
    outputs = labels[:, None] ^ wrong
    differ = [outputs[:, i] != outputs[:, j] for i, j in cascade.pairs()]
    return cascade, Rounds(
        rng.uniform(-1, 1, (n, 2)),
        outputs if road == "outputs" else None,
        np.stack(differ, axis=1).astype(np.uint8) if road == "disagreements" else None,
        labels,
        rng.integers(n_arms, size=n),
        rng.uniform(0.0, 0.4, (n, n_arms, n_arms)),
    )


def by_hand(policy: Any, batch: Rounds, start: int, end: int) -> list[int]:
    """Play rounds by decide, observe and observe_disagreements."""
    stops: list[int] = []
    for t in range(start, end):
        told = sw.Truth(int(batch.labels[t]), int(batch.optimal[t]), batch.disagreement[t])
        x = batch.contexts[t]
        stop = policy.decide(x, *([told] if told_before(policy) else [])).stop
        stops.append(stop)
        if batch.outputs is not None:
            said = batch.outputs[t, : stop + 1].tolist()
            policy.observe(x, said, *([told] if told_after(policy) else []))
        else:
            assert batch.differ is not None
            marks = zip(policy.cascade.pairs(), batch.differ[t].tolist(), strict=True)
            seen = {pair: bool(mark) for pair, mark in marks if pair[1] <= stop}
            policy.observe_disagreements(x, stop, seen)
    return stops


def at_once(policy: Any, batch: Rounds, start: int, end: int) -> list[int]:
    """Play the same rounds by run or run_disagreements."""
    rounds = slice(start, end)
    more = told_all(policy, batch, rounds)
    if batch.outputs is not None:
        return policy.run(batch.contexts[rounds], batch.outputs[rounds], **more).tolist()
    assert batch.differ is not None
    return policy.run_disagreements(batch.contexts[rounds], batch.differ[rounds], **more).tolist()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("n_arms", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("road", ["outputs", "disagreements"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_equals_rounds_one_by_one(name: str, road: str, n_arms: int, seed: int) -> None:
    cascade, batch = some_rounds(n_arms, road, seed)
    settings = SETTINGS.get(name, {}) | ({"depth": n_arms // 2} if name == "fixed-depth" else {})

    def new() -> Any:
        return sw.make(name, cascade, context_dim=2, **settings)

    if (name, road) == ("supervised", "disagreements"):
        with pytest.raises(sw.TruthRequiredError):
            new().run_disagreements(batch.contexts, batch.differ)
        return
    single, whole, pieces, mixed = (new() for _ in range(4))
    stops = by_hand(single, batch, 0, 240)
    assert at_once(whole, batch, 0, 240) == stops
    assert at_once(pieces, batch, 0, 101) + at_once(pieces, batch, 101, 240) == stops
    assert at_once(mixed, batch, 0, 150) + by_hand(mixed, batch, 150, 240) == stops
    for other in (whole, pieces, mixed):
        assert other.rounds == 240
        assert_same(single.state(), other.state())
    if name in ("uss-ucb", "uss-ts", "random-depth"):
        assert len(set(stops)) > 1


UNTOLD = ["uss-ucb", "uss-ts", "fixed-depth", "random-depth"]


@pytest.mark.parametrize("road", ["outputs", "disagreements"])
@pytest.mark.parametrize("name", UNTOLD)
def test_the_plain_loop_of_the_base_class_is_the_same_run(name: str, road: str) -> None:
    cascade, batch = some_rounds(4, road, 3)

    fast = sw.make(name, cascade)
    roads = {"run": sw.Policy.run, "run_disagreements": sw.Policy.run_disagreements}
    plain: Any = type("Plain", (type(fast),), roads)(cascade)
    told: list[tuple[int, int]] = []
    contexts, differ = np.tile(batch.contexts, (5, 1)), batch.differ
    if differ is not None:
        stops = plain.run_disagreements(
            contexts, np.tile(differ, (5, 1)), progress=lambda *done: told.append(done)
        )
        again = fast.run_disagreements(contexts, np.tile(differ, (5, 1)))
    else:
        assert batch.outputs is not None
        outputs = np.tile(batch.outputs, (5, 1))
        stops = plain.run(contexts, outputs, progress=lambda *done: told.append(done))
        again = fast.run(contexts, outputs)
    np.testing.assert_array_equal(stops, again)
    assert_same(plain.state(), fast.state())
    assert told == [(1024, 1200), (1200, 1200)]


@pytest.mark.parametrize("name", UNTOLD)
def test_a_long_run_is_played_in_parts_that_do_not_show(name: str) -> None:
    cascade = sw.Cascade([0.1, 0.2, 0.2])
    outputs = (np.random.default_rng(0).random((CHUNK + 3000, 3)) < 0.05).astype(np.int64)
    contexts = np.zeros((len(outputs), 0))
    told: list[tuple[int, int]] = []
    whole, pieces, stopped = (sw.make(name, cascade) for _ in range(3))
    stops = whole.run(contexts, outputs, progress=lambda *done: told.append(done))
    assert told == [(CHUNK, CHUNK + 3000), (CHUNK + 3000, CHUNK + 3000)]
    parts = [pieces.run(contexts[s], outputs[s]) for s in (slice(1000), slice(1000, None))]
    np.testing.assert_array_equal(np.concatenate(parts), stops)
    assert_same(whole.state(), pieces.state())

    def enough(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.run(contexts, outputs, progress=enough)
    assert stopped.rounds == CHUNK  # and it can go on from there
    np.testing.assert_array_equal(stopped.run(contexts[CHUNK:], outputs[CHUNK:]), stops[CHUNK:])
    assert_same(whole.state(), stopped.state())


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_no_rounds_changes_nothing(name: str) -> None:
    policy = make(name)
    live(policy, 0, 30)
    kept = copy.deepcopy(policy.state())
    nothing = slice(0, 0)
    stops = policy.run(np.zeros((0, 2)), np.zeros((0, 3)), **told_all(policy, WORLD, nothing))
    assert (stops.shape, stops.dtype) == ((0,), np.int64)
    assert_same(kept, policy.state())


@pytest.mark.parametrize("played", [0, 7, 150])
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_policy_resumes_bit_for_bit(name: str, played: int, tmp_path: Path) -> None:
    policy = make(name)
    live(policy, 0, played)
    policy.save(tmp_path / "policy")
    again: Any = sw.load(tmp_path / "policy", cascade=CASCADE)
    assert type(again) is type(policy)
    assert again.parameters() == policy.parameters()
    assert_same(policy.state(), again.state())
    assert live(policy, played, played + 200) == live(again, played, played + 200)
    assert_same(policy.state(), again.state())


# ------------------------------------------------------------------- a failing call changes nothing

X = np.array([0.5, -0.5])
NAN = float("nan")


def told(policy: Any) -> list[sw.Truth]:
    return [sw.Truth(label=1)] if told_after(policy) else []


def all_told(policy: Any, n: int) -> dict[str, Any]:
    if told_after(policy):
        return {"labels": np.zeros(n)}
    return {"optimal": [0] * n, "disagreement": np.zeros((n, 3, 3))} if told_before(policy) else {}


def run(policy: Any, contexts: Any, outputs: Any) -> object:
    return policy.run(contexts, outputs, **all_told(policy, len(contexts)))


def run_pairs(policy: Any, contexts: Any, differ: Any) -> object:
    more = {} if told_after(policy) else all_told(policy, len(contexts))
    return policy.run_disagreements(contexts, differ, **more)


def table_of(*rows: list[Any]) -> NDArray[Any]:
    table = np.empty((len(rows), len(rows[0])), dtype=object)
    for place in np.ndindex(table.shape):
        table[place] = rows[place[0]][place[1]]
    return table


ANYWHERE: dict[str, Callable[[Any], object]] = {
    "no outputs": lambda p: p.observe(X, [], *told(p)),
    "too many outputs": lambda p: p.observe(X, [0, 0, 0, 0], *told(p)),
    "a NaN output": lambda p: p.observe(X, [0, NAN], *told(p)),
    "an unhashable output": lambda p: p.observe(X, [[0], [1]], *told(p)),
    "outputs that are no sequence": lambda p: p.observe(X, 3, *told(p)),
    "a stop too deep": lambda p: p.observe_disagreements(X, 3, np.zeros((4, 4))),
    "a negative stop": lambda p: p.observe_disagreements(X, -1, {}),
    "half a stop": lambda p: p.observe_disagreements(X, 0.5, {}),
    "a missing pair": lambda p: p.observe_disagreements(X, 2, {(0, 1): True}),
    "an extra pair": lambda p: p.observe_disagreements(X, 0, {(0, 1): True}),
    "a pair that is neither 0 nor 1": lambda p: p.observe_disagreements(X, 1, {(0, 1): 2}),
    "a table too small": lambda p: p.observe_disagreements(X, 2, [[0, 1], [0, 0]]),
    "a run of too few arms": lambda p: run(p, [X, X], np.zeros((2, 2))),
    "a run of too few rounds": lambda p: run(p, [X, X], np.zeros((1, 3))),
    "a run with a NaN at its end": lambda p: run(p, [X] * 3, [[0.0] * 3, [0.0] * 3, [NAN] * 3]),
    "a run with a NaN object": lambda p: run(
        p, [X] * 2, np.array([[0] * 3, [NAN] * 3], dtype=object)
    ),
    "a run with something unhashable": lambda p: run(p, [X] * 2, table_of([0, 0, 0], [0, [], 0])),
    "a run of one context": lambda p: p.run(0.5, [[0, 0, 0]]),
    "pairs of too few arms": lambda p: run_pairs(p, [X, X], np.zeros((2, 1))),
    "pairs of too few rounds": lambda p: run_pairs(p, [X, X], np.zeros((1, 3))),
    "pairs that end in a 2": lambda p: run_pairs(p, [X] * 2, [[0, 1, 0], [1, 1, 2]]),
    "pairs that end in a NaN": lambda p: run_pairs(p, [X] * 2, [[0, 1, 0], [1, 1, NAN]]),
    "pairs that end in half": lambda p: run_pairs(p, [X] * 2, np.array([[0.0] * 3, [0.5] * 3])),
    "pairs in words": lambda p: run_pairs(p, [X], np.array([["0", "1", "0"]])),
    "pairs of one context": lambda p: p.run_disagreements(0.5, [[0, 0, 0]]),
}
IN_CONTEXT: dict[str, Callable[[Any], object]] = {
    "decide: NaN": lambda p: p.decide(np.array([NAN, 0.0])),
    "decide: infinite": lambda p: p.decide([np.inf, 0.0]),
    "decide: outside the bound": lambda p: p.decide(np.array([0.5, 7.0])),
    "decide: too long": lambda p: p.decide(np.array([0.1, 0.2, 0.3])),
    "decide: a table": lambda p: p.decide(np.zeros((2, 2))),
    "decide: words": lambda p: p.decide("ab"),
    "decide_many: one bad row": lambda p: p.decide_many([X, [NAN, 0.0]]),
    "observe: NaN": lambda p: p.observe(np.array([NAN, 0.0]), [1, 1], *told(p)),
    "observe: outside the bound": lambda p: p.observe([0.5, -1.5], [1, 1], *told(p)),
    "run: a bad last context": lambda p: run(p, [X, X, [2.0, 0.0]], np.zeros((3, 3))),
}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        pytest.param(name, call, id=f"{name}: {what}")
        for name, kind in sw.POLICIES.items()
        for what, call in (ANYWHERE | (IN_CONTEXT if issubclass(kind, Contextual) else {})).items()
    ],
)
def test_a_failing_call_changes_nothing(name: str, call: Callable[[Any], object]) -> None:
    policy = make(name)
    live(policy, 0, 40)
    kept = copy.deepcopy(policy.state())
    with pytest.raises(sw.StopwiseError):
        call(policy)
    assert_same(kept, policy.state())
