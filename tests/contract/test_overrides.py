"""A subclass that overrides a step of a policy: every entry point calls it, or refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.policies.contextual import Contextual
from stopwise.research.experiments.simulate import measure
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.messages import Arm, CascadeSpec

N = 30
COSTS = (0.05, 0.15, 0.2)
CASCADE = sw.Cascade(COSTS)
ARMS = {"arms": [[1, 0, -1], [3, 2, 0], [6, 6, 0]], "label": [9, 9, 0]}
BATCH = research.LogisticArms(CASCADE, **ARMS).sample(N, np.random.default_rng(3))
assert BATCH.outputs is not None
OUTPUTS = BATCH.outputs
DIFFER = np.stack([OUTPUTS[:, i] != OUTPUTS[:, j] for i, j in CASCADE.pairs()], axis=1)
PAIRS = research.Batch(
    *(BATCH.contexts, BATCH.disagreement, BATCH.optimal, BATCH.margins),
    differ=DIFFER.astype(np.uint8),
)
RECORD = sw.RecordedRounds(
    BATCH.contexts, DIFFER.astype(np.uint8), np.full(N, 3), np.zeros(N, dtype=np.bool_)
)
SETTINGS: dict[str, dict[str, Any]] = {
    "uss-pd": {"forced_rounds": 5, "explore": 0.15},
    "uss-pd-ridge": {"lam": 0.5, "S": 0.5},
    "thompson": {"forced_rounds": 5, "seed": 3},
}
every_policy = pytest.mark.parametrize("name", sw.POLICIES)


def new(name: str, kind: Callable[..., Any] | None = None, **more: Any) -> Any:
    """Create a policy of this name, or one of a subclass of it."""
    sized = {"context_dim": 2} if issubclass(sw.POLICIES[name], Contextual) else {}
    return (kind or sw.POLICIES[name])(CASCADE, **sized | SETTINGS.get(name, {}) | more)


def own_stop(x: Any) -> int:
    return int(x[0] > 0) + int(x[1] > 0)


STOPS = [own_stop(x) for x in BATCH.contexts]


def deciding(name: str) -> type[Any]:
    """Return a subclass that stops by the sign of a context, and counts."""

    class Deciding(sw.POLICIES[name]):
        calls = 0

        def decide(self, x: Any, *truth: Any) -> sw.Decision:
            self.calls += 1
            stop = own_stop(x)
            return sw.Decision(stop, CASCADE.names[stop], CASCADE.cost(stop))

    return Deciding


def learning(name: str, step: str = "observe") -> type[Any]:
    """Return a subclass that lists the stops that a step is given, and learns as before."""
    kind = sw.POLICIES[name]

    def listing(self: Any, x: Any, given: Any, *more: Any, **keywords: Any) -> None:
        self.stops = [*self.stops, len(given) - 1 if step == "observe" else given]
        getattr(kind, step)(self, x, given, *more, **keywords)

    return type("Learning", (kind,), {"stops": [], step: listing})


def passing_on(kind: type[Any], *steps: str) -> type[Any]:
    """Return a subclass whose steps only call those they override, and count."""

    def counting(step: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            self.calls += 1
            return getattr(kind, step)(self, *args)

        return call

    return type("Same", (kind,), {"calls": 0, **{step: counting(step) for step in steps}})


def by_runner(policy: Any) -> list[int | None]:
    stages = [lambda t, arm=arm: int(OUTPUTS[t, arm]) for arm in range(3)]
    runner = sw.Runner(policy, stages, context=lambda t: BATCH.contexts[t])
    return [done.stop for done in runner.run_many(range(N))]


def by_steps(policy: Any) -> list[int]:
    stops: list[int] = []
    for t in range(N):
        running = policy.start(BATCH.contexts[t])
        while (arm := running.next()) is not None:
            running.give(int(OUTPUTS[t, arm]))
            running = policy.resume(running.state())
        running.learn()
        stops.append(running.decision.stop)
    return stops


def by_service(policy: Any) -> list[int]:
    spec = CascadeSpec("tests", [Arm(f"arm {k}", c) for k, c in enumerate(COSTS)], context=2)
    event, _ = ServedCascade(0, spec, 0.0, policy).open(BATCH.contexts.tolist(), 0.0, 1)
    assert event is not None
    return list(event.stops)


DECIDES: dict[str, Callable[[Any], Any]] = {
    "decide_many": lambda p: p.decide_many(BATCH.contexts),
    "decide_batch": lambda p: p.decide_batch(BATCH.contexts)[0],
    "service": by_service,
}
BY_OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "run": lambda p: p.run(BATCH.contexts, OUTPUTS),
    "measure": lambda p: measure(p, BATCH).stops,
    "runner": by_runner,
    "steps": by_steps,
}
BY_PAIRS: dict[str, Callable[[Any], Any]] = {
    "run_disagreements": lambda p: p.run_disagreements(BATCH.contexts, DIFFER),
    "run_recorded": lambda p: p.run_recorded(RECORD),
}
ENTRIES = DECIDES | BY_OUTPUTS | BY_PAIRS


@every_policy
def test_decide_is_called_for_every_round(name: str) -> None:
    kind = sw.POLICIES[name]
    mixin = type("Mixin", (), {"decide": passing_on(kind, "decide").decide, "calls": 0})
    mixed = type("Mixed", (mixin, kind), {})  # a step may come from a mixin too
    for entry, play in ENTRIES.items():
        policy, counting = new(name, deciding(name)), new(name, mixed)
        assert list(play(policy)) == STOPS, entry
        play(counting)
        assert policy.calls == counting.calls == N, entry
        assert policy.rounds == (0 if entry in DECIDES else N), entry


@every_policy
def test_steps_that_only_call_those_they_override_change_no_stop(name: str) -> None:
    same = passing_on(sw.POLICIES[name], "decide", "_learn", "_learn_pairs")
    for entry, play in ENTRIES.items():
        for start in (0, N):  # untrained, and trained
            one, other = new(name), new(name, same)
            for policy in (one, other):
                policy.run(BATCH.contexts[:start], OUTPUTS[:start])
            assert list(play(one)) == list(play(other)), entry
            assert one.rounds == other.rounds


def test_decide_is_called_in_the_replay_of_a_log(tmp_path: Path) -> None:
    class Deep(sw.USSPD):
        calls = 0

        def decide(self, x: Any) -> sw.Decision:
            type(self).calls += 1  # replay plays a copy
            return sw.Decision(1, "two", 0.2)

    rows = np.column_stack([BATCH.contexts, OUTPUTS]).tolist()
    lines = ["a,b,one,two,three", *(",".join(map(repr, row)) for row in rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    names = ("one", "two", "three")
    log = sw.Log(tmp_path / "log.csv", sw.Columns(context=("a", "b"), outputs=names))
    cascade = sw.Cascade(COSTS, names=names)
    plain, mine = (kind(cascade, context_dim=2) for kind in (sw.USSPD, Deep))
    found = sw.replay(log, cascade, (plain, mine))  # not taken for the same policy given twice
    depths = [[round(share.value * N) for share in one.depths] for one in found.policies]
    assert depths[0] != depths[1] == [0, N, 0]
    assert Deep.calls == N


@every_policy
def test_a_step_may_call_batch_methods_and_take_only_what_it_needs(name: str) -> None:
    class Batch(sw.POLICIES[name]):
        def decide(self, x: Any) -> sw.Decision:
            return self._decision(int(super().decide_batch([x])[1][0]))

        def observe(self, x: Any, outputs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().observe(x, outputs)

    class Many(Batch):
        def decide(self, x: Any) -> sw.Decision:
            return self._decision(int(super().decide_many([x])[0]))

    plain: dict[str, Any] = {"explore": 0} if name == "uss-pd" else {}
    for kind in (Batch, Many):
        for play in (*BY_OUTPUTS.values(), *DECIDES.values()):
            one, other = new(name, **plain), new(name, kind, **plain)
            assert list(play(one)) == list(play(other))
            assert one.rounds == other.rounds


@every_policy
def test_observe_and_its_twin_are_called_for_every_round(name: str) -> None:
    entries = {"observe": BY_OUTPUTS, "observe_disagreements": BY_OUTPUTS | BY_PAIRS}
    for step, entry, play in ((s, e, entries[s][e]) for s in entries for e in entries[s]):
        policy, twin = new(name, learning(name, step)), new(name)
        stops = list(play(policy))
        assert policy.stops == stops == list(play(twin)), entry
        assert len(stops) == policy.rounds == twin.rounds == N, entry
    policy = new(name, learning(name, "observe_disagreements"))
    policy.observe_many(RECORD, STOPS)
    assert policy.stops == STOPS


@every_policy
def test_observe_alone_is_refused_where_only_disagreements_are_known(name: str) -> None:
    policy = new(name, learning(name))
    for entry in (
        *BY_PAIRS.values(),
        lambda p: p.observe_many(RECORD, STOPS),
        lambda p: measure(p, PAIRS),
    ):
        with pytest.raises(sw.errors.OverrideNotSupportedError, match="observe_disagreements"):
            entry(policy)
    assert policy.rounds == 0


def test_labels_of_a_record_are_learned_step_by_step_as_at_once() -> None:
    assert BATCH.labels is not None
    random = np.random.default_rng(0)
    record = sw.RecordedRounds(
        BATCH.contexts,
        DIFFER.astype(np.uint8),
        answered=random.integers(0, 4, N),
        failed=random.random(N) < 0.3,
        right=BATCH.labels[:, None] == OUTPUTS,
        labelled=np.ones(N, dtype=np.bool_),
    )
    asking: dict[str, Any] = {"labels": 20, "explore": 0}
    steps = passing_on(sw.USSPD, "learn_label")
    one, other = new("uss-pd", **asking), new("uss-pd", steps, **asking)
    assert one.run_recorded(record).tolist() == other.run_recorded(record).tolist()
    assert 0 < one.labelled == other.labelled == other.calls
    assert one.run(BATCH.contexts, OUTPUTS, labels=BATCH.labels).tolist() == (
        other.run(BATCH.contexts, OUTPUTS, labels=BATCH.labels).tolist()
    )
    assert one.labelled == other.labelled == other.calls
    assert one.rounds == other.rounds
    assert one.decide_many(BATCH.contexts).tolist() == other.decide_many(BATCH.contexts).tolist()


@pytest.mark.parametrize("kind", [deciding("uss-pd"), learning("uss-pd")])
def test_overridden_steps_are_refused_where_stages_reveal_the_context(kind: Any) -> None:
    staged = {"features": sw.Answers([0, 1]), "context_dim": 1}
    policy = new("uss-pd", kind, **staged)
    state = new("uss-pd", **staged).start([0.5]).state()
    for call, *given in (
        (policy.start, [0.5]),
        (policy.resume, state),
        (policy.run, BATCH.contexts, OUTPUTS),
        (policy.run_recorded, RECORD),
    ):
        with pytest.raises(sw.errors.OverrideNotSupportedError):
            call(*given)
    assert policy.rounds == 0


@pytest.mark.parametrize(
    ("name", "estimate"), [("uss-pd", "radius"), ("thompson", "theta"), ("uss-ts", "disagreement")]
)
def test_overriding_an_estimate_alone_is_refused(name: str, estimate: str) -> None:
    kind, own = sw.POLICIES[name], {estimate: lambda self: 0.5}
    for bases, members in (((kind,), own), ((type("Mixin", (), own), kind), {})):
        with pytest.raises(sw.errors.OverrideNotSupportedError, match=f"Mine overrides {estimate}"):
            type("Mine", bases, members)
    assert type("Mine", (kind,), own | {"decide": lambda self, x: None})  # which may read it


def test_a_bad_stop_and_a_bad_context_are_refused() -> None:
    lost = type("Lost", (sw.USSPD,), {"decide": lambda self, x: sw.Decision(3, "nowhere", 1.0)})
    with pytest.raises(sw.errors.InvalidStopError):
        new("uss-pd", lost).run(BATCH.contexts, OUTPUTS)
    contexts = BATCH.contexts.copy()
    contexts[-1, 0] = np.nan
    policy = new("uss-pd", deciding("uss-pd"))
    with pytest.raises(sw.errors.InvalidContextError, match=f"row {N - 1}"):
        policy.run(contexts, OUTPUTS)
    assert policy.rounds == policy.calls == 0


def test_a_subclass_is_not_saved_as_what_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deep(sw.FixedDepth):
        def __init__(self, cascade: sw.Cascade, depth: int = 0) -> None:  # also by position
            super().__init__(cascade, depth=depth)

    class Mine(Deep):
        def __init__(self, cascade: sw.Cascade, **more: Any) -> None:
            super().__init__(cascade, **more)

    policy, path = Mine(CASCADE, depth=1), tmp_path / "policy"
    with pytest.raises(
        sw.errors.PersistenceError, match=r"Mine .* saved as 'fixed-depth'.*FixedDepth"
    ):
        policy.save(path)
    Mine.name = "mine"
    with pytest.raises(sw.errors.PersistenceError, match="does not know"):
        policy.save(path)
    monkeypatch.setitem(sw.POLICIES, "mine", Mine)
    policy.save(path)
    again = sw.load(path)
    assert (type(again), again.decide(None).stop) == (Mine, 1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", sw.POLICIES)
def test_a_subclass_without_steps_of_its_own_plays_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(*args: Any) -> None:
        raise AssertionError("played step by step")

    monkeypatch.setattr(sw.POLICIES[name], "decide", one_by_one)
    for policy in (new(name), new(name, passing_on(sw.POLICIES[name], "explain"))):
        assert policy.overridden_steps == frozenset()
        assert measure(policy, BATCH).stops.shape == (N,)


def test_a_run_of_its_own_is_called() -> None:
    kind = deciding("uss-pd")
    kind.run = lambda self, contexts, outputs, **more: np.zeros(len(contexts), dtype=np.int64)
    assert measure(new("uss-pd", kind), BATCH).stops.tolist() == [0] * N
