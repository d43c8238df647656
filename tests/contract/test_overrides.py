"""A subclass that overrides a step of a policy: every entry point calls it, or refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.experiments.runs import drawn, execute
from stopwise.experiments.simulate import measure
from stopwise.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
from stopwise.policies.base import BATCHES, STEPS, Policy
from stopwise.policies.contextual import Contextual
from stopwise.service.learner import Learner
from stopwise.service.messages import Arm, CascadeSpec

N = 60
COSTS = (0.05, 0.15, 0.2)
CASCADE = sw.Cascade(COSTS)
ARMS = {"arms": [[1, 0, -1], [3, 2, 0], [6, 6, 0]], "label": [9, 9, 0]}
WORLD = sw.LogisticArms(CASCADE, **ARMS)
PAIRS = sw.Realizable(CASCADE, {(0, 1): [-2.0, 2.0], (0, 2): [-1.0, 3.0], (1, 2): [-4.0, 1.0]})
BATCH = WORLD.sample(N, np.random.default_rng(3))
assert BATCH.outputs is not None
OUTPUTS = BATCH.outputs
DIFFER = np.stack([OUTPUTS[:, i] != OUTPUTS[:, j] for i, j in CASCADE.pairs()], axis=1)
RECORD = sw.Rounds(
    BATCH.contexts, DIFFER.astype(np.uint8), np.full(N, 2), np.zeros(N, dtype=np.bool_)
)
STAGED = sw.PerStage([sw.Identity(), sw.Identity()], sees=[1, 2])

NEEDS_NO_TRUTH = [name for name, kind in sw.POLICIES.items() if not kind.needs_truth]
SETTINGS: dict[str, dict[str, Any]] = {
    "uss-pd": {"forced_rounds": 5, "full_depth_every": 7},
    "uss-pd-ridge": {"lam": 0.5, "S": 0.5},
    "thompson": {"forced_rounds": 5, "seed": 3},
    "supervised": {"forced_rounds": 5},
}


def new(name: str, kind: Callable[..., Any] | None = None, **more: Any) -> Any:
    """Make a policy of this name, or one of a subclass of it."""
    kind = kind or sw.POLICIES[name]
    sized = {"context_dim": 2} if issubclass(sw.POLICIES[name], Contextual) else {}
    return kind(CASCADE, **sized, **SETTINGS.get(name, {}), **more)


# ------------------------------------------------------------------------ subclasses that count


def deciding(name: str) -> type[Any]:
    """Return a subclass that stops by the sign of a context, and counts."""

    class Deciding(sw.POLICIES[name]):
        asked = 0

        def decide(self, x: Any, *truth: Any) -> sw.Decision:
            self.asked += 1
            stop = wanted_stop(x)
            return sw.Decision(stop, CASCADE.names[stop], CASCADE.cost(stop))

    return Deciding


def wanted_stop(x: Any) -> int:
    return int(x[0] > 0) + int(x[1] > 0)


STOPS = [wanted_stop(x) for x in BATCH.contexts]


def observing(name: str) -> type[Any]:
    """Return a subclass that counts what `observe` is given, and learns as before."""

    class Observing(sw.POLICIES[name]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.heard: list[int] = []

        def observe(self, x: Any, outputs: Any, *truth: Any, **more: Any) -> None:
            self.heard.append(len(outputs) - 1)
            super().observe(x, outputs, *truth, **more)

    return Observing


def comparing(name: str) -> type[Any]:
    """Return a subclass that counts what `observe_disagreements` is given."""

    class Comparing(sw.POLICIES[name]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.heard: list[int] = []

        def observe_disagreements(self, x: Any, stop: int, pairs: Any) -> None:
            self.heard.append(stop)
            super().observe_disagreements(x, stop, pairs)

    return Comparing


# ----------------------------------------------------------------------------- the entry points


def by_runner(policy: Any) -> list[int]:
    stages = [lambda t, arm=arm: int(OUTPUTS[t, arm]) for arm in range(3)]
    runner = sw.Runner(policy, stages, context=lambda t: BATCH.contexts[t])
    return [done.stop for done in runner.run_many(range(N))]


def by_descents(policy: Any) -> list[int]:
    stops: list[int] = []
    for t in range(N):
        descent = policy.start(BATCH.contexts[t])
        while (arm := descent.next()) is not None:
            descent.give(int(OUTPUTS[t, arm]))
            descent = policy.resume(descent.state())
        descent.learn()
        stops.append(descent.decision.stop)
    return stops


def by_service(policy: Any) -> list[int]:
    spec = CascadeSpec("tests", [Arm(f"arm {k}", c) for k, c in enumerate(COSTS)], context=2)
    learner = Learner(0, spec, 0.0, policy)
    event, _ = learner.open(BATCH.contexts.tolist(), 0.0, 1)
    assert event is not None
    return list(event.stops)


def by_log(folder: Path, *policies: Any) -> list[list[int]]:
    """Replay a log and return how many rounds stopped at each arm, for each policy."""
    table = np.column_stack([BATCH.contexts, OUTPUTS])
    lines = [",".join(map(repr, row.tolist())) for row in table]
    log = folder / "log.csv"
    log.write_text("\n".join(["a,b,one,two,three", *lines]))
    found = sw.replay(
        sw.Log(log, sw.Columns(context=("a", "b"), outputs=("one", "two", "three"))),
        sw.Cascade(COSTS, names=["one", "two", "three"]),
        policies,
    )
    return [[round(share.value * N) for share in one.depths] for one in found.policies]


DECIDES: dict[str, Callable[[Any], Any]] = {
    "decide_many": lambda p: p.decide_many(BATCH.contexts),
    "decide_batch": lambda p: p.decide_batch(BATCH.contexts)[0],
    "service": by_service,
}
BY_OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "run": lambda p: p.run(BATCH.contexts, OUTPUTS),
    "measure": lambda p: measure(p, BATCH).stops,
    "runner": by_runner,
    "descents": by_descents,
}
BY_PAIRS: dict[str, Callable[[Any], Any]] = {
    "run_disagreements": lambda p: p.run_disagreements(BATCH.contexts, DIFFER),
    "replay": lambda p: p.replay(RECORD),
}
ENTRIES = DECIDES | BY_OUTPUTS | BY_PAIRS


# -------------------------------------------------------------------------------------- decide


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_decide_is_asked_for_every_round(name: str, entry: str) -> None:
    policy = new(name, deciding(name))
    assert list(ENTRIES[entry](policy)) == STOPS
    assert policy.asked == N
    assert policy.rounds == (0 if entry in DECIDES else N)


@pytest.mark.parametrize("name", ["supervised", "oracle", "clairvoyant"])
def test_decide_is_asked_where_the_truth_is_told(name: str) -> None:
    policy = new(name, deciding(name))
    assert measure(policy, BATCH).stops.tolist() == STOPS
    assert policy.asked == policy.rounds == N


@pytest.mark.parametrize("name", [*NEEDS_NO_TRUTH, "supervised", "oracle", "clairvoyant"])
def test_decide_is_asked_in_an_experiment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sw.POLICIES, "mine", deciding(name))
    where = EnvironmentSpec("logistic-arms", COSTS, ARMS)
    features = sw.Identity().to_spec() if issubclass(sw.POLICIES[name], Contextual) else None
    spec = ExperimentSpec(where, PolicySpec("mine", features=features), rounds=N)
    stops = [wanted_stop(x) for x in drawn(where, N, seed=0).contexts]
    assert execute(spec, seed=0).depths.tolist() == np.bincount(stops).tolist()


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_a_step_that_only_calls_the_one_it_overrides_changes_no_stop(name: str, entry: str) -> None:
    class Same(sw.POLICIES[name]):
        def decide(self, x: Any) -> sw.Decision:
            return super().decide(x)

        def _learn(self, *args: Any) -> None:
            super()._learn(*args)

        def _learn_pairs(self, *args: Any) -> None:
            super()._learn_pairs(*args)

    for start in (0, N):  # untaught, and taught
        one, other = new(name), new(name, Same)
        for policy in (one, other):
            policy.run(BATCH.contexts[:start], OUTPUTS[:start])
        assert list(ENTRIES[entry](one)) == list(ENTRIES[entry](other))
        assert one.rounds == other.rounds


@pytest.mark.parametrize("name", ["supervised", "oracle", "clairvoyant"])
def test_the_truth_is_told_step_by_step_as_it_is_at_once(name: str) -> None:
    class Same(sw.POLICIES[name]):
        def decide(self, x: Any, *truth: Any) -> sw.Decision:
            return super().decide(x, *truth)

        def observe(self, *args: Any, **more: Any) -> None:
            super().observe(*args, **more)

    one, other = new(name), new(name, Same)
    assert measure(one, BATCH).stops.tolist() == measure(other, BATCH).stops.tolist()
    assert one.rounds == other.rounds == N
    with pytest.raises(sw.StopwiseError):
        new(name, Same).run(BATCH.contexts, OUTPUTS)
    told = {"labels": [1]} if name == "supervised" else {"optimal": [1]}
    with pytest.raises(sw.InvalidInputError):
        new(name, Same).run(BATCH.contexts, OUTPUTS, **told)


def test_decide_is_asked_in_the_replay_of_a_log(tmp_path: Path) -> None:
    class Deep(sw.USSPD):
        asked = 0

        def decide(self, x: Any) -> sw.Decision:
            type(self).asked += 1  # replay plays a copy
            return sw.Decision(1, "two", 0.2)

    cascade = sw.Cascade(COSTS, names=["one", "two", "three"])
    plain, mine = (kind(cascade, context_dim=2) for kind in (sw.USSPD, Deep))
    depths = by_log(tmp_path, plain, mine)  # not taken for the same policy given twice
    assert depths[0] != depths[1] == [0, N, 0]
    assert Deep.asked == N


# ------------------------------------------------------------------------- observe and its twin


@pytest.mark.parametrize("entry", BY_OUTPUTS)
@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_observe_is_called_for_every_round(name: str, entry: str) -> None:
    policy = new(name, observing(name))
    assert list(BY_OUTPUTS[entry](policy)) == policy.heard
    assert len(policy.heard) == policy.rounds == N


def test_observe_is_called_with_the_truth() -> None:
    policy = new("supervised", observing("supervised"))
    assert measure(policy, BATCH).stops.tolist() == policy.heard


def test_observe_need_not_take_what_only_chance_needs() -> None:
    class Terse(sw.USSPD):
        heard = 0

        def observe(self, x: Any, outputs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            self.heard += 1
            super().observe(x, outputs)

    for entry in BY_OUTPUTS.values():
        policy = Terse(CASCADE, context_dim=2, forced_rounds=5)
        entry(policy)
        assert policy.heard == N


@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_observe_alone_is_refused_where_only_disagreements_are_known(name: str) -> None:
    policy = new(name, observing(name))
    for entry in (
        *BY_PAIRS.values(),
        lambda p: p.observe_many(RECORD, STOPS),
        lambda p: sw.simulate(p, PAIRS, rounds=10),
    ):
        with pytest.raises(
            sw.OverrideNotSupportedError, match=r"overrides observe,.* override observe_disagree"
        ):
            entry(policy)
    assert policy.rounds == 0


@pytest.mark.parametrize("entry", BY_OUTPUTS | BY_PAIRS)
@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_observe_disagreements_is_called_for_every_round(name: str, entry: str) -> None:
    policy = new(name, comparing(name))
    stops = list(ENTRIES[entry](policy))
    assert policy.heard == stops
    twin = new(name)
    assert list(ENTRIES[entry](twin)) == stops
    assert policy.rounds == twin.rounds == N


@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_observe_disagreements_is_called_by_a_warm_start(name: str) -> None:
    policy = new(name, comparing(name))
    policy.observe_many(RECORD, STOPS)
    assert policy.heard == STOPS


def test_a_hook_is_called_like_the_step_it_serves() -> None:
    class Hooked(sw.USSPD):
        learned = 0

        def _learn_pairs(self, *args: Any) -> None:
            self.learned += 1
            super()._learn_pairs(*args)

    for entry in (BY_OUTPUTS | BY_PAIRS).values():
        policy = new("uss-pd", Hooked)
        entry(policy)
        assert policy.learned == N

    class Calm(sw.Thompson):
        drawn = 0

        def _noise(self) -> Any:
            self.drawn += 1
            return super()._noise()

    for entry in ENTRIES.values():
        policy = new("thompson", Calm)
        entry(policy)
        assert policy.drawn == N


# --------------------------------------------------------------------------------------- audit


def test_labels_of_a_record_are_learned_step_by_step_as_at_once() -> None:
    class Same(sw.USSPD):
        def decide(self, x: Any) -> sw.Decision:
            return super().decide(x)

    assert BATCH.labels is not None
    random = np.random.default_rng(0)
    wrong = (BATCH.labels[:, None] != OUTPUTS).astype(np.uint8)
    record = sw.Rounds(
        BATCH.contexts,
        DIFFER.astype(np.uint8),
        reach=random.integers(-1, 3, N),
        failed=random.random(N) < 0.3,
        wrong=wrong,
        audited=random.random(N) < 0.5,
    )
    one, other = new("uss-pd"), new("uss-pd", Same)
    assert one.replay(record).tolist() == other.replay(record).tolist()
    assert 0 < one.audits == other.audits
    assert one.rounds == other.rounds
    assert one.decide_many(BATCH.contexts).tolist() == other.decide_many(BATCH.contexts).tolist()


def test_an_audit_of_its_own_is_refused_where_labels_are_not_known_in_words() -> None:
    class Auditing(sw.USSPD):
        def audit(self, done: sw.Round, label: Any) -> None:
            raise AssertionError

    policy = new("uss-pd", Auditing)
    assert policy.replay(RECORD).shape == (N,)  # nothing is audited there
    record = sw.Rounds(
        RECORD.contexts, RECORD.differ, RECORD.reach, RECORD.failed,
        np.zeros((N, 3), dtype=np.uint8), np.ones(N, dtype=np.bool_),
    )  # fmt: skip
    with pytest.raises(sw.OverrideNotSupportedError, match="overrides audit"):
        policy.replay(record)
    assert policy.rounds == N


# ------------------------------------------------------------------------------ what is refused


def test_stages_that_reveal_the_context_ask_no_step_of_a_subclass() -> None:
    for kind in (deciding("uss-pd"), observing("uss-pd")):
        policy = new("uss-pd", kind, features=STAGED)
        refused: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (policy.start, ([0.5],)),
            (policy.resume, (new("uss-pd", features=STAGED).start([0.5]).state(),)),
            (policy.run, (BATCH.contexts, OUTPUTS)),
            (policy.replay, (RECORD,)),
        ]
        for entry, given in refused:
            with pytest.raises(sw.OverrideNotSupportedError, match="whole context"):
                entry(*given)
        assert policy.rounds == 0


@pytest.mark.parametrize(
    ("name", "shown"), [("uss-pd", "radius"), ("thompson", "theta"), ("uss-ts", "disagreement")]
)
def test_what_is_only_shown_is_not_taken_for_a_step(name: str, shown: str) -> None:
    kind = sw.POLICIES[name]
    with pytest.raises(sw.OverrideNotSupportedError, match=f"Mine overrides {shown}"):
        type("Mine", (kind,), {shown: lambda self: 0.5})
    with pytest.raises(TypeError, match="Override decide"):
        type("Mine", (type("Mixin", (), {shown: lambda self: 0.5}), kind), {})
    both = {shown: lambda self: 0.5, "decide": lambda self, x: None}
    assert type("Mine", (kind,), both)  # its decide may ask for it


def test_a_stop_that_is_no_arm_is_refused() -> None:
    class Lost(sw.USSPD):
        def decide(self, x: Any) -> sw.Decision:
            return sw.Decision(3, "nowhere", 1.0)

    with pytest.raises(sw.InvalidStopError, match="stop is 3"):
        new("uss-pd", Lost).run(BATCH.contexts, OUTPUTS)


def test_a_bad_context_is_refused_before_the_first_round() -> None:
    contexts = BATCH.contexts.copy()
    contexts[-1, 0] = np.nan
    policy = new("uss-pd", deciding("uss-pd"))
    with pytest.raises(sw.InvalidContextError, match=f"row {N - 1}"):
        policy.run(contexts, OUTPUTS)
    assert policy.rounds == policy.asked == 0


def test_a_subclass_is_not_saved_as_what_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = deciding("uss-pd")
    with pytest.raises(sw.PersistenceError, match=r"Deciding would be saved as 'uss-pd'.*USSPD"):
        new("uss-pd", kind).save(tmp_path / "policy")
    kind.name = "mine"
    with pytest.raises(sw.PersistenceError, match="does not know"):
        new("uss-pd", kind).save(tmp_path / "policy")
    monkeypatch.setitem(sw.POLICIES, "mine", kind)
    new("uss-pd", kind).save(tmp_path / "policy")
    assert type(sw.load(tmp_path / "policy")) is kind


# --------------------------------------------------------------------------- what keeps its pace


@pytest.mark.parametrize("name", sw.POLICIES)
def test_a_subclass_without_steps_of_its_own_plays_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = sw.POLICIES[name]

    class Plain(kind):
        extra = 1

        def explain(self, decision: sw.Decision) -> Any:
            return super().explain(decision)

    def one_by_one(*args: Any) -> None:
        raise AssertionError("played step by step")

    monkeypatch.setattr(Policy, "_one_by_one", one_by_one)
    assert all(getattr(Plain, entry) is getattr(kind, entry) for entry in BATCHES)
    assert all(getattr(Plain, step, None) is getattr(kind, step, None) for step in STEPS)
    for policy in (new(name), new(name, Plain)):
        assert policy.own_steps == frozenset()
        assert measure(policy, BATCH).stops.shape == (N,)


def test_a_run_of_its_own_is_kept() -> None:
    class Mine(deciding("uss-pd")):
        def run(self, contexts: Any, outputs: Any, **more: Any) -> Any:
            return np.zeros(len(contexts), dtype=np.int64)

    assert measure(new("uss-pd", Mine), BATCH).stops.tolist() == [0] * N


def test_a_run_of_its_own_that_calls_the_one_it_overrides_bypasses_no_step() -> None:
    class Timed(sw.USSPD):
        runs = 0

        def run(self, *args: Any, **more: Any) -> Any:
            self.runs += 1
            return super().run(*args, **more)

    class Both(Timed, deciding("uss-pd")):
        pass

    class Later(Timed):
        def decide(self, x: Any) -> sw.Decision:
            stop = wanted_stop(x)
            return sw.Decision(stop, CASCADE.names[stop], CASCADE.cost(stop))

    for kind in (Both, Later):
        policy = new("uss-pd", kind)
        assert measure(policy, BATCH).stops.tolist() == STOPS
        assert policy.runs == 1


@pytest.mark.parametrize("name", NEEDS_NO_TRUTH)
def test_a_step_of_a_mixin_is_called(name: str) -> None:
    class Watching:
        asked = 0

        def decide(self, x: Any) -> Any:
            self.asked += 1
            return super().decide(x)  # pyright: ignore[reportAttributeAccessIssue]

    watching = type("Mixed", (Watching, sw.POLICIES[name]), {})
    for entry in ENTRIES.values():
        policy = new(name, watching)
        entry(policy)
        assert policy.asked == N


def test_a_step_replaced_on_an_object_or_a_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    policy = new("uss-pd")
    decide = policy.decide
    policy.decide = lambda x: (asked.append(x), decide(x))[1]
    policy.run(BATCH.contexts, OUTPUTS)
    assert len(asked) == N

    plain = sw.USSPD.decide
    monkeypatch.setattr(sw.USSPD, "decide", lambda self, x: (asked.append(x), plain(self, x))[1])
    new("uss-pd").run(BATCH.contexts, OUTPUTS)
    assert len(asked) == 2 * N
