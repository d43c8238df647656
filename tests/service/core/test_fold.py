"""State is a fold over the log: whatever was asked for, in whatever order.

A random walk asks a service for everything it offers, right and wrong, and plays the same rounds
with a policy of its own beside it, through the public interface. Then there are three ways to the
same bits: what lives in the service, what the log amounts to when it is read again (from the
start, and from snapshots of random moments), and the policy beside it.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.policies.registry import POLICIES
from stopwise.service.messages import (
    Arm,
    BatchRequest,
    CascadeSpec,
    DecisionRequest,
    LabelRequest,
    OutputsRequest,
    RoundAnswer,
    RoundRequest,
    StepRequest,
)
from stopwise.service.recovery import recovered
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.spec import build
from stopwise.service.state import State
from stopwise.service.store.base import Snapshot
from stopwise.service.store.opening import open_store

ARMS = [Arm("rules", 0.05), Arm("model", 0.1), Arm("person", 0.3)]
SAYS = ["spam", "ham", 1, 1.5, {"a": [1, True]}]
Context = list[float]

OFFERED: dict[str, dict[str, Any]] = {
    "uss-pd": {"kind": "uss-pd", "forced_rounds": 5, "sigma": 0.05, "full_depth_every": 4},
    "uss-pd-auto": {"kind": "uss-pd", "forced_rounds": "auto", "sigma": 0.05},
    "uss-pd-ridge": {
        "kind": "uss-pd-ridge",
        "lam": 0.5,
        "S": 2.0,
        "sigma": 0.05,
        "full_depth_every": 3,
    },
    "thompson": {"kind": "thompson", "forced_rounds": 4, "seed": 3, "scale": 0.3},
    "uss-ucb": {"kind": "uss-ucb", "a": 0.01},
    "uss-ts": {"kind": "uss-ts", "seed": 5},
    "random-depth": {"kind": "random-depth", "seed": 6},
    "fixed-depth": {"kind": "fixed-depth", "depth": 1},
}
STAGED: dict[str, dict[str, Any]] = {
    "uss-pd": {"kind": "uss-pd", "forced_rounds": 3, "sigma": 0.05, "full_depth_every": 3},
    "thompson": {"kind": "thompson", "forced_rounds": 3, "seed": 8, "scale": 0.3},
}
REVEALING = {
    "kind": "per_stage",
    "maps": [{"kind": "identity"}, {"kind": "polynomial", "degree": 2}],
    "sees": [2, 3],
}


def spec(name: str, policy: dict[str, Any], **more: Any) -> CascadeSpec:
    return CascadeSpec(name, ARMS, 3, policy=policy, **more)


@asynccontextmanager
async def running(path: Path, **settings: Any) -> AsyncIterator[Service]:
    service = Service(open_store(str(path)), Settings(store=str(path), **settings))
    await service.start()
    while not service.ready:
        assert not service.trouble
        await asyncio.sleep(0.001)
    try:
        yield service
    finally:
        await service.stop()


async def refused(service: Service, asked: Awaitable[object], *codes: str) -> Refusal:
    """Check that something is refused, and that nothing has changed."""
    before = service.state_hash()
    with pytest.raises(Refusal) as caught:
        await asked
    assert caught.value.code in codes, caught.value
    assert service.state_hash() == before, f"{caught.value} has changed the state"
    return caught.value


async def unchanged(service: Service, asked: Awaitable[Any]) -> Any:
    """Check that a repeat is answered, and that nothing has changed."""
    before = service.state_hash()
    answer = await asked
    assert service.state_hash() == before, f"{answer} has changed the state"
    return answer


class Open:
    """A decision of the walk that waits for outputs, or a round on its way."""

    def __init__(self, id_: str, context: Context, stop: int, wanted: int) -> None:
        self.id = id_
        self.context = context
        self.stop = stop
        self.wanted = wanted
        self.told: dict[int, Any] = {}


class Walk:
    """Asks a service for one thing after the other, and plays along."""

    def __init__(self, service: Service, spec: CascadeSpec, seed: int) -> None:
        self.service = service
        self.spec = spec
        self.name = spec.name
        self.random = np.random.default_rng(seed)
        self.policy = build(spec)  # fed through the public interface alone
        self.open: dict[str, Open] = {}  # oldest first
        self.rounds: dict[str, sw.Descent] = {}
        self.waiting: list[str] = []  # both kinds, oldest first: what `keep_open` counts
        self.ended: list[tuple[str, sw.Round, bool]] = []
        self.labelled: dict[str, Any] = {}
        self.lost: list[str] = []
        self.keys = 0
        self.done: dict[str, int] = {}

    # -- what chance chooses ------------------------------------------------------------------

    def context(self) -> Context:
        return self.random.uniform(-1, 1, 3).round(3).tolist()

    def output(self, context: Context) -> Any:
        hard = 1 / (1 + math.exp(-3 * context[0])) if context else 0.5
        return SAYS[int(self.random.integers(2)) if self.random.random() < hard else 0]

    def key(self) -> str | None:
        self.keys += 1
        return f"key-{self.keys}" if self.random.random() < 0.5 else None

    def one_of(self, things: Any) -> Any:
        listed = list(things)
        return listed[int(self.random.integers(len(listed)))]

    # -- decisions ----------------------------------------------------------------------------

    async def decide(self) -> None:
        context, key = self.context(), self.key()
        request = DecisionRequest(context, evidence=self.random.random() < 0.5)
        answer, new = await self.service.decide(self.name, request, key)
        assert new
        self.decided(answer.id, context, answer.stop)
        if key is not None:
            again, new = await unchanged(self.service, self.service.decide(self.name, request, key))
            assert (again.id, again.stop, new) == (answer.id, answer.stop, False)
            other = DecisionRequest([*context[:2], 9.0])
            await refused(self.service, self.service.decide(self.name, other, key), "conflict")

    async def decide_at_once(self) -> None:
        """Several requests in one group."""
        contexts = [self.context() for _ in range(3)]
        asked = [self.service.decide(self.name, DecisionRequest(x), None) for x in contexts]
        for x, (answer, _) in zip(contexts, await asyncio.gather(*asked), strict=True):
            self.decided(answer.id, x, answer.stop)

    async def batch(self) -> None:
        contexts, key = [self.context() for _ in range(int(self.random.integers(1, 6)))], self.key()
        request = BatchRequest(list(contexts), evidence=self.random.random() < 0.5)
        answer, _ = await self.service.decide_batch(self.name, request, key)
        for x, one in zip(contexts, answer.decisions, strict=True):
            self.decided(one.id, x, one.stop)
        if key is not None:
            again, new = await unchanged(
                self.service, self.service.decide_batch(self.name, request, key)
            )
            assert not new
            assert [d.id for d in again.decisions] == [d.id for d in answer.decisions]

    def decided(self, id_: str, context: Context, stop: int) -> None:
        mine = self.policy.decide(np.array(context))
        assert mine.stop == stop
        self.open[id_] = Open(id_, context, stop, mine.wanted)
        self.wait(id_)

    def wait(self, id_: str) -> None:
        self.waiting.append(id_)
        while len(self.waiting) > self.spec.keep_open:
            gone = self.waiting.pop(0)
            self.open.pop(gone, None)
            self.rounds.pop(gone, None)
            self.lost.append(gone)

    # -- outputs ------------------------------------------------------------------------------

    async def tell(self) -> None:
        """Whole, in part, out of order, again, too much, or against what was said before."""
        if not self.open:
            return
        one: Open = self.one_of(self.open.values())
        arms = list(range(one.stop + 1))
        if self.random.random() < 0.6:
            arms = [arm for arm in arms if self.random.random() < 0.6]
        given = {arm: one.told.get(arm, self.output(one.context)) for arm in arms}
        final = self.random.random() < 0.2
        known = one.told | given
        if not set(given) - set(one.told) and not final:
            answer = await unchanged(self.service, self._tell(one.id, given, final))
            assert answer.repeated
            return
        reached = next((arm for arm in range(one.stop + 1) if arm not in known), one.stop + 1)
        answer = await self._tell(one.id, given, final)
        assert not answer.repeated
        if final or reached > one.stop:
            assert answer.status == "learned"
            assert answer.missing == []
            self.end(one, [known[arm] for arm in range(reached)])
        else:
            assert answer.status == "open"
            assert answer.missing == [ARMS[a].name for a in range(one.stop + 1) if a not in known]
            one.told = known
        again = {arm: value for arm, value in given.items() if arm < reached or not final}
        assert (await unchanged(self.service, self._tell(one.id, again, False))).repeated
        if again:
            other = dict.fromkeys(again, "something else")
            await refused(self.service, self._tell(one.id, other, final), "conflict")
        if one.stop < 2:
            await refused(self.service, self._tell(one.id, {2: "spam"}, False), "conflict")

    def _tell(self, id_: str, given: dict[int, Any], final: bool) -> Awaitable[Any]:
        if self.random.random() < 0.5:
            outputs: Any = {ARMS[arm].name: value for arm, value in given.items()}
        else:
            outputs = [given.get(arm) for arm in range(max(given, default=-1) + 1)]
        return self.service.outputs(self.name, id_, OutputsRequest(outputs, final))

    def end(self, one: Open, outputs: list[Any]) -> None:
        del self.open[one.id]
        self.waiting.remove(one.id)
        hashable = [_hashable(y) for y in outputs]
        if hashable:
            self.policy.observe(np.array(one.context), hashable, wanted=one.wanted)
        done = sw.Round(
            one.id,
            0.0,
            tuple(one.context),
            tuple(hashable),
            tuple(outputs),
            len(hashable) - 1,
            one.wanted,
        )
        self.ended.append((one.id, done, False))

    # -- rounds step by step --------------------------------------------------------------------

    async def start(self) -> None:
        whole, key = self.context(), self.key()
        context = whole[: int(self.random.integers(3))] if self.staged else whole
        request = RoundRequest(context)
        answer, new = await self.service.start_round(self.name, request, key)
        assert new
        descent = self.policy.start(np.array(context))
        assert descent.next() == answer.next == 0
        self.rounds[answer.id] = descent
        self.wait(answer.id)
        if key is not None:
            again, new = await unchanged(
                self.service, self.service.start_round(self.name, request, key)
            )
            assert (again, new) == (answer, False)

    async def step(self) -> None:
        if not self.rounds:
            return
        id_ = self.one_of(self.rounds)
        descent = self.rounds[id_]
        arm = len(descent.outputs)
        revealed: Context = []
        if self.staged and arm < 2:
            missing = REVEALING["sees"][arm] - len(descent.context)
            revealed = self.random.uniform(-1, 1, missing).round(3).tolist()
            bad = StepRequest(arm, "spam", [*revealed, 0.5])
            await refused(self.service, self.service.step(self.name, id_, bad), "invalid")
            if revealed:
                bad = StepRequest(arm, "spam", [math.inf, *revealed[1:]])
                await refused(self.service, self.service.step(self.name, id_, bad), "invalid")
        skipped = StepRequest(arm + 1, "spam")
        await refused(
            self.service, self.service.step(self.name, id_, skipped), "conflict", "invalid"
        )
        output = self.output(list(descent.context))
        request = StepRequest(arm, output, revealed)
        answer = await self.service.step(self.name, id_, request)
        descent.give(_hashable(output), revealed)
        following = descent.next()
        assert answer.next == following
        if following is None:
            assert (answer.status, answer.stop) == ("learned", arm)
            self.end_descent(id_, descent)
        assert await unchanged(self.service, self.service.step(self.name, id_, request)) == answer
        assert self.service.round(self.name, id_) == answer
        other = StepRequest(arm, "something else", revealed)
        await refused(self.service, self.service.step(self.name, id_, other), "conflict")

    async def give_up(self) -> None:
        if not self.rounds:
            return
        id_ = self.one_of(self.rounds)
        answer: RoundAnswer = await self.service.end_round(self.name, id_)
        assert answer.status == "learned"
        self.end_descent(id_, self.rounds[id_])
        again = await unchanged(self.service, self.service.end_round(self.name, id_))
        assert again == answer

    def end_descent(self, id_: str, descent: sw.Descent) -> None:
        del self.rounds[id_]
        self.waiting.remove(id_)
        outputs = tuple(descent.outputs)
        done = sw.Round(
            id_, 0.0, descent.context, outputs, outputs, len(outputs) - 1, descent.wanted
        )
        descent.learn()
        self.ended.append((id_, done, True))

    # -- labels -------------------------------------------------------------------------------

    async def label(self) -> None:
        if not self.ended:
            return
        id_, done, _ = self.one_of(self.ended)
        label = self.labelled.get(id_, self.one_of(["spam", "ham"]))
        asked = self.service.label(self.name, id_, LabelRequest(label))
        if not self.spec.policy["kind"].startswith("uss-pd"):
            await refused(self.service, asked, "conflict")
        elif id_ in self.labelled:
            assert (await unchanged(self.service, asked)).repeated
            other = self.service.label(self.name, id_, LabelRequest("something else"))
            await refused(self.service, other, "conflict")
        else:
            assert not (await asked).repeated
            self.policy.audit(done, label)
            self.labelled[id_] = label

    # -- what is refused ------------------------------------------------------------------------

    async def err(self) -> None:
        """Ask for something that cannot be."""
        service, name = self.service, self.name
        id_ = self.one_of([*self.open, "0-00000", "nonsense", "99999999999999999999-00000"])
        wrong: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: service.decide("nobody", DecisionRequest(self.context()), None), "unknown"),
            (lambda: service.decide(name, DecisionRequest([1.0]), None), "invalid conflict"),
            (lambda: service.decide(name, DecisionRequest({"a": 1.0}), None), "invalid conflict"),
            (
                lambda: service.decide(name, DecisionRequest([0.0, math.nan, 0.0]), "k"),
                "invalid conflict",
            ),
            (
                lambda: service.decide_batch(
                    name, BatchRequest([self.context(), [0.0, math.inf, 0.0]], evidence=True), None
                ),
                "invalid conflict",
            ),
            (
                lambda: service.decide_batch(
                    name, BatchRequest([self.context(), [1.0, 2.0]]), None
                ),
                "invalid conflict",
            ),
            (lambda: service.start_round(name, RoundRequest([0.1] * 7), None), "invalid"),
            (lambda: service.start_round(name, RoundRequest([math.inf]), "k"), "invalid"),
            (
                lambda: service.outputs(name, id_, OutputsRequest({"nobody": 1})),
                "invalid unknown",
            ),
            (
                lambda: service.outputs(name, id_, OutputsRequest(["spam"] * 4)),
                "invalid unknown",
            ),
            (
                lambda: service.outputs(name, id_, OutputsRequest([_deep(40)])),
                "invalid unknown",
            ),
            (lambda: service.label(name, id_, LabelRequest(None)), "invalid"),
            (lambda: service.label(name, id_, LabelRequest("spam")), "conflict unknown"),
            (lambda: service.step(name, id_, StepRequest(0, "spam")), "unknown"),
            (lambda: service.end_round(name, id_), "unknown"),
            (lambda: service.retire("nobody"), "unknown"),
            (
                lambda: service.create(msgspec.structs.replace(self.spec, tradeoff=2.0), None),
                "conflict",
            ),
            (
                lambda: service.create(
                    msgspec.structs.replace(self.spec, name="x", policy={"kind": "oracle"}), None
                ),
                "invalid",
            ),
        ]
        ask, codes = self.one_of(wrong)
        before = service.state_hash()
        with pytest.raises(Refusal) as caught:
            await ask()
        assert any(caught.value.code.startswith(code) for code in codes.split()), caught.value
        assert service.state_hash() == before, f"{caught.value} has changed the state"
        for lost in self.lost[-1:]:
            learned = self.service.state.cascades[name].ledger
            if learned.status[learned.number(lost)] & 0x10:
                late = service.step(name, lost, StepRequest(2, "something new"))
            else:
                late = service.outputs(name, lost, OutputsRequest(["something new"]))
            # what was told before it was given up stays, and contradicting that is a conflict
            await refused(service, late, "gone", "conflict")

    async def make_again(self) -> None:
        view, new = await unchanged(self.service, self.service.create(self.spec, None))
        assert not new
        assert view.spec == self.spec

    @property
    def first(self) -> int:
        """How many numbers a round may start with."""
        return 2 if self.staged else 3

    @property
    def staged(self) -> bool:
        return self.spec.features["kind"] == "per_stage"

    async def one_step(self) -> None:
        begin = [self.start] if self.staged else [self.decide, self.decide_at_once, self.batch]
        more = [self.step] * 4 if self.staged else [self.start, self.step, self.step]
        does = [
            *begin,
            *more,
            *[self.tell] * 4,
            self.give_up,
            self.label,
            self.err,
            self.make_again,
        ]
        action = self.one_of(does)
        await action()
        self.done[action.__name__] = self.done.get(action.__name__, 0) + 1

    def check(self) -> None:
        """Compare what the service has learned with the policy beside it, bit for bit."""
        learner = self.service.state.cascades[self.name]
        same(learner.policy, self.policy)
        ledger = learner.ledger
        assert [ledger.id(n) for n in ledger.open] == self.waiting
        assert ledger.learned == len(self.ended)
        assert learner.divergences == 0


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, dict | list) else value


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def same(one: sw.Policy, other: sw.Policy) -> None:
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        assert array.dtype == theirs[name].dtype
        assert array.tobytes() == theirs[name].tobytes(), name


async def read_again(path: Path, snapshot: Snapshot | None = None) -> State:
    """Fold the log of a running service, from the start or from a snapshot."""
    store = open_store(str(path))
    await store.open()
    try:
        if snapshot is None:
            return await recovered(store, snapshots=False)
        state = State.restored(snapshot)
        assert state is not None
        async for block in store.read(state.position):
            state.apply(block)
        return state
    finally:
        await store.close()


async def walked(path: Path, specs: list[CascadeSpec], seed: int, steps: int) -> list[Walk]:
    random = np.random.default_rng(seed)
    async with running(path, snapshot_every=100) as service:
        walks: list[Walk] = []
        snapshots: list[Snapshot] = []
        for k, one in enumerate(specs):
            view, new = await service.create(one, f"make-{k}")
            assert new
            assert view.spec == one
            _, new = await unchanged(service, service.create(one, f"make-{k}"))
            assert not new
            other = msgspec.structs.replace(one, name=f"other-{k}")
            await refused(service, service.create(other, f"make-{k}"), "conflict")
            walks.append(Walk(service, one, seed + k))
        for _ in range(steps):
            await walks[int(random.integers(len(walks)))].one_step()
            if random.random() < 4 / steps:
                snapshot = service.state.snapshot()
                taken_up = State.restored(snapshot)
                assert taken_up is not None
                assert taken_up.hash() == service.state.hash()
                snapshots.append(snapshot)
        for walk in walks:
            walk.check()
        await service.retire(walks[0].name)
        for asked in (
            service.start_round(
                walks[0].name, RoundRequest([0.1, 0.2, 0.3][: walks[0].first]), None
            ),
            service.decide(walks[0].name, DecisionRequest([0.1, 0.2, 0.3]), "new"),
        ):
            await refused(service, asked, "retired")
        await unchanged(service, service.retire(walks[0].name))
        for _ in range(10):  # what was decided before is learned all the same
            await walks[0].tell()
            await walks[0].step()
        walks[0].check()
        live = service.state_hash()
        assert (await read_again(path)).hash() == live.hash
        for snapshot in snapshots:
            assert (await read_again(path, snapshot)).hash() == live.hash
    async with running(path) as service:  # from the snapshot that stopping wrote
        assert service.state_hash() == live
    return walks


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", OFFERED)
def test_three_ways_to_the_same_bits(kind: str, seed: int, tmp_path: Path) -> None:
    specs = [spec("walk", OFFERED[kind], keep_open=12)]
    walks = asyncio.run(walked(tmp_path / "log.db", specs, seed, 160))
    assert len(walks[0].done) >= 9  # or the walk has not tried what it should
    assert len(walks[0].ended) > 10


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", STAGED)
def test_rounds_whose_stages_reveal_the_context(kind: str, seed: int, tmp_path: Path) -> None:
    specs = [spec("walk", STAGED[kind], features=REVEALING, keep_open=8)]
    walks = asyncio.run(walked(tmp_path / "log.db", specs, seed, 160))
    assert len(walks[0].ended) > 10


def test_cascades_do_not_disturb_each_other(tmp_path: Path) -> None:
    specs = [spec(f"walk-{k}", policy) for k, policy in enumerate(OFFERED.values())]
    specs += [
        spec(f"staged-{k}", policy, features=REVEALING) for k, policy in enumerate(STAGED.values())
    ]
    asyncio.run(walked(tmp_path / "log.db", specs, 7, 400))


def test_every_policy_that_needs_no_truth_is_walked() -> None:
    offered = {name for name, kind in POLICIES.items() if not kind.needs_truth}
    assert {policy["kind"] for policy in OFFERED.values()} == offered


def test_the_oldest_are_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path / "log.db") as service:
            await service.create(spec("few", OFFERED["uss-pd"], keep_open=3), None)
            first, _ = await service.decide("few", DecisionRequest([0.1, 0.2, 0.3]), None)
            await service.outputs("few", first.id, OutputsRequest(["spam"]))  # not all of it
            second, _ = await service.start_round("few", RoundRequest([0.1, 0.2, 0.3]), None)
            batch, _ = await service.decide_batch("few", BatchRequest([[0.1, 0.2, 0.3]] * 3), None)
            assert service.cascade("few").open == 3
            whole = OutputsRequest(["spam"] * (first.stop + 1))
            late = service.outputs("few", first.id, whole)
            assert (await refused(service, late, "gone")).status == 410
            step = service.step("few", second.id, StepRequest(0, "spam"))
            assert (await refused(service, step, "gone")).status == 410
            ended = service.end_round("few", second.id)
            assert (await refused(service, ended, "gone")).status == 410
            repeat = service.outputs("few", first.id, OutputsRequest(["spam"]))
            assert (await unchanged(service, repeat)).status == "expired"
            assert service.round("few", second.id).status == "expired"
            for one in batch.decisions:
                told = OutputsRequest(["spam"] * (one.stop + 1))
                assert (await service.outputs("few", one.id, told)).status == "learned"
            live = service.state_hash()
        assert (await read_again(tmp_path / "log.db")).hash() == live.hash

    asyncio.run(scenario())


def test_a_key_makes_one_thing_also_after_a_restart(tmp_path: Path) -> None:
    one = spec("keys", OFFERED["thompson"])
    decide = DecisionRequest([0.1, 0.2, 0.3])
    batch = BatchRequest([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])

    async def everything(service: Service) -> list[Any]:
        view, _ = await service.create(one, "create")
        decision, _ = await service.decide("keys", decide, "decide")
        several, _ = await service.decide_batch("keys", batch, "batch")
        round_, _ = await service.start_round("keys", RoundRequest([0.1, 0.2, 0.3]), "round")
        return [view.spec, decision, several, round_]

    async def scenario() -> None:
        path = tmp_path / "log.db"
        async with running(path) as service:
            first = await everything(service)
            assert await unchanged(service, everything(service)) == first
            live = service.state_hash()
        async with running(path) as service:
            assert service.state_hash() == live
            assert await unchanged(service, everything(service)) == first
            # the same key for something else
            asked: list[Awaitable[object]] = [
                service.create(msgspec.structs.replace(one, name="other"), "create"),
                service.decide("keys", DecisionRequest([0.1, 0.2, 0.4]), "decide"),
                service.decide_batch("keys", batch, "decide"),
                service.start_round("keys", RoundRequest([0.1, 0.2, 0.4]), "round"),
            ]
            for one_more in asked:
                await refused(service, one_more, "conflict")

    asyncio.run(scenario())


def test_what_ended_a_round_may_be_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path / "log.db") as service:
            await service.create(spec("hole", {"kind": "fixed-depth", "depth": 2}), None)
            decision, _ = await service.decide("hole", DecisionRequest([0.1, 0.2, 0.3]), None)

            def tell(outputs: Any, final: bool) -> Awaitable[Any]:
                return service.outputs("hole", decision.id, OutputsRequest(outputs, final))

            assert (await tell(["spam", None, "ham"], True)).status == "learned"
            again = await unchanged(service, tell(["spam", None, "ham"], True))
            assert (again.status, again.repeated) == ("learned", True)
            await refused(service, tell(["spam", "ham", "ham"], True), "conflict")
            await refused(service, tell([None, "ham"], False), "conflict")
            await refused(service, tell(["ham", None, "ham"], True), "conflict")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "odd",
    [
        {"policy": {"kind": "uss-ucb", "a": 10**30}},
        {"policy": {"kind": "uss-pd", "sigma": 2**64}},
        {"features": {"kind": "identity", "bound": 10**30}},
    ],
)
def test_numbers_that_no_log_can_hold_are_refused(odd: dict[str, Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path / "log.db") as service:
            bad = msgspec.structs.replace(spec("odd", {"kind": "uss-pd"}), **odd)
            await refused(service, service.create(bad, None), "invalid")
            _, new = await service.create(spec("even", {"kind": "uss-pd"}), None)
            assert new

    asyncio.run(scenario())
