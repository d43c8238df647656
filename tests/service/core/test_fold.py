"""The state is a fold over the log, whatever was requested, in whatever order.

A random walk requests everything that a service offers, valid and invalid, and plays the same
rounds with a policy of its own through the public interface. Then these must be equal, bit for
bit: the state in the service, the fold of the log from its start and from snapshots of random
moments, and the policy beside it.
"""

import asyncio
import math
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.registry import POLICIES
from stopwise.service import service as service_module
from stopwise.service.domain import messages as m
from stopwise.service.domain.outputs import canonical, decode_output
from stopwise.service.domain.spec import build
from stopwise.service.labels import report_label
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash, take_snapshot
from stopwise.service.persistence.stores.base import Snapshot
from stopwise.service.service import Service
from tests.helpers.labels import label_of
from tests.service.core.services import bits_of, folded, refused, running, unchanged

ARMS = [m.Arm("rules", 0.05), m.Arm("model", 0.1), m.Arm("person", 0.3)]
ANSWERS = ["spam", "ham", 1, 1.5, {"a": [1, True]}, "long " * 300]
Context = list[float]

OFFERED: dict[str, dict[str, Any]] = {
    "uss-pd": {"kind": "uss-pd", "forced_rounds": 5, "sigma": 0.05, "explore": 0.25},
    "uss-pd-auto": {"kind": "uss-pd", "forced_rounds": "auto", "sigma": 0.05},
    "uss-pd-ridge": {"kind": "uss-pd-ridge", "lam": 0.5, "S": 2.0, "explore": 0.3},
    "uss-laplace": {"kind": "uss-laplace", "labels": 20, "seed": 1},
    "uss-anchor": {"kind": "uss-anchor", "explore": 0.2},
    "thompson": {"kind": "thompson", "forced_rounds": 4, "seed": 3, "scale": 0.3},
    "uss-ucb": {"kind": "uss-ucb", "a": 0.01},
    "uss-ts": {"kind": "uss-ts", "seed": 5},
    "random-depth": {"kind": "random-depth", "seed": 6},
    "fixed-depth": {"kind": "fixed-depth", "depth": 1},
}
REVEALS = [1, 2]
REVEALING: dict[str, Any] = {"reveals": REVEALS}
STAGED: dict[str, dict[str, Any]] = {
    "uss-pd": {"kind": "uss-pd", "forced_rounds": 3, "sigma": 0.05, "explore": 0.3, **REVEALING},
    "uss-laplace": {"kind": "uss-laplace", "labels": 20, **REVEALING},
    "thompson": {"kind": "thompson", "forced_rounds": 3, "seed": 8, "scale": 0.3, **REVEALING},
}
MAPS = {"kind": "per_stage", "maps": [{"kind": "identity"}, {"kind": "polynomial", "degree": 2}]}


def spec(name: str, policy: dict[str, Any], **more: Any) -> m.CascadeSpec:
    return m.CascadeSpec(name, ARMS, 3, policy=policy, **more)


class Played:
    """A round of the walk; ``stop`` is None as long as it is not known."""

    def __init__(
        self, id_: str, context: Context, decided: sw.Decision | sw.RoundInProgress
    ) -> None:
        self.id = id_
        self.context = context
        self.descent = decided if isinstance(decided, sw.RoundInProgress) else None
        self.stop = None if isinstance(decided, sw.RoundInProgress) else decided.stop
        self.rule_stop = decided.rule_stop
        self.reported: dict[int, Any] = {}
        self.status: Any = "open"
        self.request: sw.LabelRequest | None = None  # until the label comes

    @property
    def due(self) -> int:
        """The first arm that is not reported."""
        return next(arm for arm in range(len(ARMS) + 1) if arm not in self.reported)

    @property
    def outputs(self) -> list[Any]:
        return [_hashable(self.reported[arm]) for arm in range(self.due)]

    def label(self, given: m.LabelReport) -> sw.Label:
        more: Any = {"rule_stop": self.rule_stop, "request": self.request}
        label = label_of(self.context, self.outputs, given.label, **more)
        if isinstance(given.right, dict):
            label = msgspec.structs.replace(label, right=tuple(given.right.values()))
        return label


class Walk:
    """Sends one request after the other, and plays the same rounds itself."""

    def __init__(self, service: Service, spec: m.CascadeSpec, seed: int) -> None:
        self.service = service
        self.spec = spec
        self.name = spec.name
        self.random = np.random.default_rng(seed)
        self.policy = build(spec)  # fed through the public interface alone
        if isinstance(self.policy, PairwisePolicy):
            self.policy.watch(lambda change: None)  # as the service does
        self.staged = "reveals" in spec.policy
        self.open: dict[str, Played] = {}  # oldest first
        self.ended: dict[str, Played] = {}
        self.expired: list[Played] = []
        self.labels: dict[str, m.LabelReport] = {}
        self.keyed: list[tuple[m.RoundRequest, str, str]] = []  # request, key, id
        self.actions: dict[str, int] = {}
        self.keys = 0

    async def one_step(self) -> None:
        begin = [self.open_one] * 2 if self.staged else [self.open_one, self.open_three]
        actions = [*begin, self.open_batch, self.label, self.request_wrongly]
        action = self.one_of([*actions, *[self.report] * 5])
        await action()
        self.actions[action.__name__] = self.actions.get(action.__name__, 0) + 1

    # -- random choices -----------------------------------------------------------------------

    def context(self) -> Context:
        return self.random.uniform(-1, 1, 3).round(3).tolist()

    def output(self, context: Context) -> Any:
        hard = 1 / (1 + math.exp(-3 * context[0])) if context else 0.5
        return self.one_of(ANSWERS) if self.random.random() < hard else "spam"

    def key(self) -> str | None:
        self.keys += 1
        return f"key-{self.keys}" if self.random.random() < 0.5 else None

    def one_of(self, things: Any) -> Any:
        listed = list(things)
        return listed[int(self.random.integers(len(listed)))]

    # -- opening ------------------------------------------------------------------------------

    async def open_one(self) -> None:
        context, key = self.context(), self.key()
        request = m.RoundRequest(context, evidence=self.random.random() < 0.5)
        (answer,), new = await self.service.open_rounds(self.name, request, key)
        assert new
        self.opened(answer, context)
        if key is not None:
            await self.check_repeat(request, key, answer.id)
            self.keyed.append((request, key, answer.id))
            other = m.RoundRequest([*context[:-1], 0.1234])
            await refused(self.service, self.service.open_rounds(self.name, other, key), "conflict")

    async def check_repeat(self, request: m.RoundRequest, key: str, id_: str) -> None:
        repeat = self.service.open_rounds(self.name, request, key)
        (again,), new = await unchanged(self.service, repeat)
        assert (again.id, new) == (id_, False)

    async def open_three(self) -> None:
        """Several requests in one group."""
        contexts = [self.context() for _ in range(3)]
        asked = [self.service.open_rounds(self.name, m.RoundRequest(x), None) for x in contexts]
        for x, ((answer,), _) in zip(contexts, await asyncio.gather(*asked), strict=True):
            self.opened(answer, x)

    async def open_batch(self) -> None:
        contexts, key = [self.context() for _ in range(int(self.random.integers(2, 6)))], self.key()
        request = m.BatchRequest(list(contexts), evidence=self.random.random() < 0.5)
        asked = self.service.open_rounds(self.name, request, key)
        if self.staged:
            await refused(self.service, asked, "conflict")
            return
        answers, _ = await asked
        for x, one in zip(contexts, answers, strict=True):
            self.opened(one, x)
        if key is not None:
            repeat = self.service.open_rounds(self.name, request, key)
            again, new = await unchanged(self.service, repeat)
            assert not new
            assert [one.id for one in again] == [one.id for one in answers]

    def opened(self, answer: m.RoundAnswer, context: Context) -> None:
        decided = (self.policy.start if self.staged else self.policy.decide)(np.array(context))
        one = self.open[answer.id] = Played(answer.id, context, decided)
        if one.descent is not None:
            assert one.descent.next() == 0
        self.check_answer(answer, one)
        while len(self.open) > self.spec.keep_open:
            oldest = self.open.pop(next(iter(self.open)))
            oldest.status = "expired"
            self.expired.append(oldest)

    def check_answer(self, answer: m.RoundAnswer, one: Played, *, repeated: bool = False) -> None:
        following = one.due if one.status == "open" else None
        last = one.due - 1 if one.stop is None else one.stop
        shown = following if one.stop is None else one.stop
        arm = "" if shown is None else ARMS[shown].name
        cost = float(self.policy.cascade.cumulative[last]) if last >= 0 else 0.0
        expected = m.RoundAnswer(one.id, one.status, arm, cost, one.stop, following)
        expected = msgspec.structs.replace(expected, wants_label=one.request is not None)
        found = msgspec.structs.replace(answer, reason=None, evidence=None, repeated=False)
        assert (found, answer.repeated) == (expected, repeated)

    # -- outputs ------------------------------------------------------------------------------

    async def report(self) -> None:
        if not self.open:
            return
        one: Played = self.one_of(self.open.values())
        await (self.report_some(one) if one.descent is None else self.report_next(one, one.descent))
        view = await unchanged(self.service, self.service.round(self.name, one.id))
        self.check_answer(
            m.RoundAnswer(
                view.id,
                view.status,
                view.arm,
                view.cost,
                view.stop,
                view.next,
                wants_label=view.wants_label,
            ),
            one,
        )
        stored = {arm: decode_output(canonical(value, "")) for arm, value in one.reported.items()}
        assert view.outputs == {ARMS[arm].name: stored[arm] for arm in sorted(stored)}
        assert view.context == one.context

    async def report_some(self, one: Played) -> None:
        """Report outputs: all or a part, in any order, again, too many, or contradictory ones."""
        assert one.stop is not None
        arms = list(range(one.stop + 1))
        if self.random.random() < 0.6:
            arms = [arm for arm in arms if self.random.random() < 0.6]
        given = {arm: one.reported.get(arm, self.output(one.context)) for arm in arms}
        final = self.random.random() < 0.2
        if not given.keys() - one.reported.keys() and not final:
            answer = await unchanged(self.service, self.send(one, given))
            self.check_answer(answer, one, repeated=True)
            return
        answer = await self.send(one, given, final=final)
        one.reported |= given
        if one.due > one.stop or final:
            self.end(one, one.due)
        self.check_answer(answer, one)
        repeat = await unchanged(self.service, self.send(one, given, final=final))
        self.check_answer(repeat, one, repeated=True)
        if one.due <= one.stop and final:  # it was learned without this arm
            for still in (False, True):
                late = self.send(one, {one.due: "late"}, final=still)
                await refused(self.service, late, "conflict")
        again = {arm: value for arm, value in given.items() if arm in one.reported}
        other = dict.fromkeys(again, "something else")
        if other:
            await refused(self.service, self.send(one, other, final=final), "conflict")
        if one.stop < 2:
            await refused(self.service, self.send(one, {2: "spam"}), "conflict")

    async def report_next(self, one: Played, descent: sw.RoundInProgress) -> None:
        """Report the output of the next arm with what it reveals, or that no more will come."""
        arm, output = one.due, self.output(one.context)
        revealed: Context = []
        if arm < 2:
            revealed = self.random.uniform(-1, 1, REVEALS[arm]).round(3).tolist()
            more = self.send(one, {arm: output}, [*revealed, 0.5])
            await refused(self.service, more, "invalid")
        infinite = self.send(one, {arm: output}, [math.inf, *revealed[1:]])
        await refused(self.service, infinite, "invalid")
        final = self.random.random() < 0.15
        if final and self.random.random() < 0.5:  # the arm has failed
            given, revealed = {}, []
        else:
            given = {arm: output}
        answer = await self.send(one, given, revealed, final=final)
        if given:
            descent.give(_hashable(output), revealed)
            one.reported |= given
            one.context = [*one.context, *revealed]
            final = descent.next() is None or final
        if final:
            one.stop = arm if given else arm - 1 if arm else None
            self.end(one, one.due)
        self.check_answer(answer, one)
        repeat = await unchanged(self.service, self.send(one, given, revealed, final=final))
        self.check_answer(repeat, one, repeated=True)
        if given:
            other = self.send(one, {arm: "something else"}, revealed)
            await refused(self.service, other, "conflict")
            other = self.send(one, given, [*revealed, 0.5])
            await refused(self.service, other, "conflict")

    def send(
        self,
        one: Played,
        given: dict[int, Any],
        revealed: Sequence[float] = (),
        *,
        final: bool = False,
    ) -> Awaitable[m.RoundAnswer]:
        if self.random.random() < 0.5:
            outputs: Any = {ARMS[arm].name: value for arm, value in given.items()}
        else:
            outputs = [given.get(arm) for arm in range(max(given, default=-1) + 1)]
        return self.service.report(
            self.name, one.id, m.OutputsRequest(outputs, list(revealed), final)
        )

    def end(self, one: Played, reached: int) -> None:
        del self.open[one.id]
        one.reported = {arm: one.reported[arm] for arm in range(reached)}
        one.status = "learned"
        if one.descent is not None:
            one.rule_stop = one.descent.rule_stop
            one.descent.learn()
            one.request = one.descent.request
        elif one.reported:
            outputs, rule_stop = (
                [_hashable(value) for value in one.reported.values()],
                one.rule_stop,
            )
            one.request = self.policy.observe(np.array(one.context), outputs, rule_stop=rule_stop)
        self.ended[one.id] = one

    # -- labels -------------------------------------------------------------------------------

    async def label(self) -> None:
        if not self.ended:
            return
        one = self.one_of(self.ended.values())
        label = self.labels.get(one.id, self.some_label(one))
        asked = report_label(self.service, self.name, one.id, label)
        takes_labels = self.spec.policy["kind"].startswith(("uss-pd", "uss-laplace"))
        if not takes_labels or not one.outputs:
            await refused(self.service, asked, "conflict")
        elif one.id in self.labels:
            assert (await unchanged(self.service, asked)).repeated
            other = report_label(self.service, self.name, one.id, m.LabelReport("something else"))
            await refused(self.service, other, "conflict")
        else:
            assert not (await asked).repeated
            self.policy.learn_label(one.label(label))
            self.labels[one.id] = label
            one.request = None

    def some_label(self, one: Played) -> m.LabelReport:
        """Return a label in one form or the other."""
        if self.random.random() < 0.5:
            return m.LabelReport(self.one_of(["spam", "ham"]))
        right = {ARMS[arm].name: bool(self.random.random() < 0.5) for arm in range(one.due)}
        return m.LabelReport(right=right)

    # -- invalid requests ---------------------------------------------------------------------

    async def request_wrongly(self) -> None:
        """What HTTP cannot carry, or only in the middle of a life; tests of HTTP have the rest."""
        service, finite, nan, inf = self.service, self.context(), math.nan, math.inf
        requests = [
            m.RoundRequest([nan, *finite[1:]]),
            m.BatchRequest([finite, [0, inf, 0]], evidence=True),
        ]
        wrong = service.open_rounds(self.name, self.one_of(requests), self.key())
        await refused(service, wrong, "invalid", "conflict")
        for late in self.expired[-1:]:
            # What was reported before it expired counts: contradicting that is a conflict.
            codes = ["gone"] if 0 not in late.reported else ["conflict"]
            await refused(service, self.send(late, {0: "something new"}), *codes)
            repeat = await unchanged(service, self.send(late, {}, final=True))
            self.check_answer(repeat, late, repeated=True)

    def check(self) -> None:
        """Compare what the service has learned with the policy beside it, bit for bit."""
        cascade = self.service.state.cascades[self.name]
        assert bits_of(cascade.policy) == bits_of(self.policy)
        ledger, view = cascade.ledger, cascade.view()
        assert [ledger.id(number) for number in ledger.open] == list(self.open)
        assert cascade.divergences == 0
        rounds = [*self.open.values(), *self.ended.values(), *self.expired]
        assert (view.rounds, view.learned) == (len(rounds), len(self.ended))
        assert (view.open, view.labelled) == (len(self.open), len(self.labels))
        assert view.stops == [sum(one.stop == arm for one in rounds) for arm in range(3)]


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, dict | list) else value


async def walked(path: Path, specs: list[m.CascadeSpec], seed: int, steps: int) -> list[Walk]:
    random = np.random.default_rng(seed)
    async with running(path, snapshot_every=100) as service:
        walks: list[Walk] = []
        snapshots: list[Snapshot] = []
        for k, one in enumerate(specs):
            view, new = await service.create(one, f"create-{k}")
            assert new
            assert view.spec == one
            _, new = await unchanged(service, service.create(one, f"create-{k}"))
            assert not new
            other = msgspec.structs.replace(one, name=f"other-{k}")
            await refused(service, service.create(other, f"create-{k}"), "conflict")
            walks.append(Walk(service, one, seed + k))
        for _ in range(steps):
            await walks[int(random.integers(len(walks)))].one_step()
            if random.random() < 4 / steps:
                snapshot = take_snapshot(service.state)
                restored = restore_snapshot(snapshot)
                assert restored is not None
                assert state_hash(restored) == state_hash(service.state)
                snapshots.append(snapshot)
        for walk in walks:
            walk.check()
        await check_retired(service, walks[0])
        live = await service.state_hash()
        assert state_hash(await folded(path)) == live.hash == state_hash(service.state)
        for snapshot in snapshots:
            assert state_hash(await folded(path, snapshot)) == live.hash
    async with running(path) as service:  # from the snapshot that was written when it stopped
        assert await service.state_hash() == live
    return walks


async def check_retired(service: Service, walk: Walk) -> None:
    """Retire a cascade: no new rounds, but repeats are answered, and open rounds are learned."""
    await service.retire(walk.name)
    new = service.open_rounds(walk.name, m.RoundRequest(walk.context()), "new")
    await refused(service, new, "retired")
    for repeat in walk.keyed:
        await walk.check_repeat(*repeat)
    await unchanged(service, service.retire(walk.name))
    for _ in range(20):
        await walk.report()
    walk.check()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("staged", [False, True])
def test_state_fold_snapshots_and_policy_are_equal(staged: bool, seed: int, tmp_path: Path) -> None:
    for kind, policy in (STAGED if staged else OFFERED).items():
        features = {"features": MAPS, "keep_open": 8} if staged else {"keep_open": 12}
        specs = [spec("walk", policy, **features)]
        [walk] = asyncio.run(walked(tmp_path / f"{kind}.db", specs, seed, 100))
        assert len(walk.actions) == (5 if staged else 6), kind  # the walk has tried everything
        assert len(walk.ended) > 10


@pytest.mark.parametrize("where", ["on the loop", "in threads"])
def test_cascades_do_not_disturb_each_other(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "in threads":
        monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1)
    specs = [spec(f"walk-{name}", policy) for name, policy in OFFERED.items()]
    specs += [spec(f"staged-{name}", policy, features=MAPS) for name, policy in STAGED.items()]
    asyncio.run(walked(tmp_path / "log.db", specs, 7, 130))


def test_every_policy_is_walked() -> None:
    assert {policy["kind"] for policy in OFFERED.values()} == set(POLICIES)


async def test_a_round_that_ends_while_it_is_looked_up_is_shown_whole(tmp_path: Path) -> None:
    async with running(tmp_path / "log.db") as service:
        await service.create(spec("seen", {"kind": "fixed-depth", "depth": 1}), None)
        for _ in range(20):
            (one,), _ = await service.open_rounds("seen", m.RoundRequest([0.1, 0.2, 0.3]), None)
            seen = [asyncio.ensure_future(service.round("seen", one.id)) for _ in range(2)]
            await service.report("seen", one.id, m.OutputsRequest(["spam", "ham"]))
            for view in await asyncio.gather(*seen):
                known = {"rules": "spam", "model": "ham"} if view.status == "learned" else {}
                assert view.outputs == known
