"""The state is a fold over the log, for any sequence of requests.

A random walk sends all kinds of requests, valid and invalid, and plays the same rounds with a
separate policy through the public interface. Then these must be equal, bit for bit: the state of
the service, the fold of the log from its start and from snapshots at random positions, and the
separate policy.
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

POLICY_SPECS: dict[str, dict[str, Any]] = {
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
STAGED_SPECS: dict[str, dict[str, Any]] = {
    "uss-pd": {"kind": "uss-pd", "forced_rounds": 3, "sigma": 0.05, "explore": 0.3, **REVEALING},
    "uss-laplace": {"kind": "uss-laplace", "labels": 20, **REVEALING},
    "thompson": {"kind": "thompson", "forced_rounds": 3, "seed": 8, "scale": 0.3, **REVEALING},
}
MAPS = {"kind": "per_stage", "maps": [{"kind": "identity"}, {"kind": "polynomial", "degree": 2}]}


def spec(name: str, policy: dict[str, Any], **options: Any) -> m.CascadeSpec:
    return m.CascadeSpec(name, ARMS, 3, policy=policy, **options)


class PlayedRound:
    """A round of the walk; ``stop`` is None until it is decided."""

    def __init__(
        self, id_: str, context: Context, decided: sw.Decision | sw.RoundInProgress
    ) -> None:
        self.id = id_
        self.context = context
        self.in_progress = decided if isinstance(decided, sw.RoundInProgress) else None
        self.stop = None if isinstance(decided, sw.RoundInProgress) else decided.stop
        self.rule_stop = decided.rule_stop
        self.reported: dict[int, Any] = {}
        self.status: Any = "open"
        self.request: sw.LabelRequest | None = None  # until the label is reported

    @property
    def due(self) -> int:
        """The first arm without an output."""
        return next(arm for arm in range(len(ARMS) + 1) if arm not in self.reported)

    @property
    def outputs(self) -> list[Any]:
        return [_hashable(self.reported[arm]) for arm in range(self.due)]

    def label(self, report: m.LabelReport) -> sw.Label:
        options: Any = {"rule_stop": self.rule_stop, "request": self.request}
        label = label_of(self.context, self.outputs, report.label, **options)
        if isinstance(report.right, dict):
            label = msgspec.structs.replace(label, right=tuple(report.right.values()))
        return label


class Walk:
    """Sends random requests, and plays the same rounds with a separate policy."""

    def __init__(self, service: Service, spec: m.CascadeSpec, seed: int) -> None:
        self.service = service
        self.spec = spec
        self.name = spec.name
        self.random = np.random.default_rng(seed)
        self.policy = build(spec)  # used through the public interface only
        if isinstance(self.policy, PairwisePolicy):
            self.policy.watch(lambda change: None)  # like the service
        self.staged = "reveals" in spec.policy
        self.open: dict[str, PlayedRound] = {}  # oldest first
        self.ended: dict[str, PlayedRound] = {}
        self.expired: list[PlayedRound] = []
        self.labels: dict[str, m.LabelReport] = {}
        self.keyed: list[tuple[m.RoundRequest, str, str]] = []  # request, key, id
        self.actions: dict[str, int] = {}
        self.keys = 0

    async def step(self) -> None:
        begin = [self.open_one] * 2 if self.staged else [self.open_one, self.open_three]
        actions = [*begin, self.open_batch, self.label, self.invalid_request]
        action = self.choice([*actions, *[self.report] * 5])
        await action()
        self.actions[action.__name__] = self.actions.get(action.__name__, 0) + 1

    # -- random choices -----------------------------------------------------------------------

    def context(self) -> Context:
        return self.random.uniform(-1, 1, 3).round(3).tolist()

    def output(self, context: Context) -> Any:
        hard = 1 / (1 + math.exp(-3 * context[0])) if context else 0.5
        return self.choice(ANSWERS) if self.random.random() < hard else "spam"

    def key(self) -> str | None:
        self.keys += 1
        return f"key-{self.keys}" if self.random.random() < 0.5 else None

    def choice(self, options: Any) -> Any:
        items = list(options)
        return items[int(self.random.integers(len(items)))]

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
        """Open three rounds with concurrent requests, which form one group."""
        contexts = [self.context() for _ in range(3)]
        requests = [self.service.open_rounds(self.name, m.RoundRequest(x), None) for x in contexts]
        for x, ((answer,), _) in zip(contexts, await asyncio.gather(*requests), strict=True):
            self.opened(answer, x)

    async def open_batch(self) -> None:
        contexts, key = [self.context() for _ in range(int(self.random.integers(2, 6)))], self.key()
        request = m.BatchRequest(list(contexts), evidence=self.random.random() < 0.5)
        opening = self.service.open_rounds(self.name, request, key)
        if self.staged:
            await refused(self.service, opening, "conflict")
            return
        answers, _ = await opening
        for x, answer in zip(contexts, answers, strict=True):
            self.opened(answer, x)
        if key is not None:
            repeat = self.service.open_rounds(self.name, request, key)
            again, new = await unchanged(self.service, repeat)
            assert not new
            assert [answer.id for answer in again] == [answer.id for answer in answers]

    def opened(self, answer: m.RoundAnswer, context: Context) -> None:
        decided = (self.policy.start if self.staged else self.policy.decide)(np.array(context))
        round_ = self.open[answer.id] = PlayedRound(answer.id, context, decided)
        if round_.in_progress is not None:
            assert round_.in_progress.next() == 0
        self.check_answer(answer, round_)
        while len(self.open) > self.spec.keep_open:
            oldest = self.open.pop(next(iter(self.open)))
            oldest.status = "expired"
            self.expired.append(oldest)

    def check_answer(
        self, answer: m.RoundAnswer, round_: PlayedRound, *, repeated: bool = False
    ) -> None:
        next_arm = round_.due if round_.status == "open" else None
        last = round_.due - 1 if round_.stop is None else round_.stop
        shown = next_arm if round_.stop is None else round_.stop
        arm = "" if shown is None else ARMS[shown].name
        cost = float(self.policy.cascade.cumulative[last]) if last >= 0 else 0.0
        expected = m.RoundAnswer(round_.id, round_.status, arm, cost, round_.stop, next_arm)
        expected = msgspec.structs.replace(expected, wants_label=round_.request is not None)
        comparable = msgspec.structs.replace(answer, reason=None, evidence=None, repeated=False)
        assert (comparable, answer.repeated) == (expected, repeated)

    # -- outputs ------------------------------------------------------------------------------

    async def report(self) -> None:
        if not self.open:
            return
        round_: PlayedRound = self.choice(self.open.values())
        if round_.in_progress is None:
            await self.report_some(round_)
        else:
            await self.report_next(round_, round_.in_progress)
        view = await unchanged(self.service, self.service.round(self.name, round_.id))
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
            round_,
        )
        stored = {
            arm: decode_output(canonical(value, "")) for arm, value in round_.reported.items()
        }
        assert view.outputs == {ARMS[arm].name: stored[arm] for arm in sorted(stored)}
        assert view.context == round_.context

    async def report_some(self, round_: PlayedRound) -> None:
        """Report all or some outputs, in any order, repeated, too many, or contradictory."""
        assert round_.stop is not None
        arms = list(range(round_.stop + 1))
        if self.random.random() < 0.6:
            arms = [arm for arm in arms if self.random.random() < 0.6]
        outputs_by_arm = {
            arm: round_.reported.get(arm, self.output(round_.context)) for arm in arms
        }
        final = self.random.random() < 0.2
        if not outputs_by_arm.keys() - round_.reported.keys() and not final:
            answer = await unchanged(self.service, self.send(round_, outputs_by_arm))
            self.check_answer(answer, round_, repeated=True)
            return
        answer = await self.send(round_, outputs_by_arm, final=final)
        round_.reported |= outputs_by_arm
        if round_.due > round_.stop or final:
            self.end(round_, round_.due)
        self.check_answer(answer, round_)
        repeat = await unchanged(self.service, self.send(round_, outputs_by_arm, final=final))
        self.check_answer(repeat, round_, repeated=True)
        if round_.due <= round_.stop and final:  # the round was learned without this arm
            for repeat_final in (False, True):
                late = self.send(round_, {round_.due: "late"}, final=repeat_final)
                await refused(self.service, late, "conflict")
        reported = {arm: value for arm, value in outputs_by_arm.items() if arm in round_.reported}
        other = dict.fromkeys(reported, "something else")
        if other:
            await refused(self.service, self.send(round_, other, final=final), "conflict")
        if round_.stop < 2:
            await refused(self.service, self.send(round_, {2: "spam"}), "conflict")

    async def report_next(self, round_: PlayedRound, in_progress: sw.RoundInProgress) -> None:
        """Report the output and revealed numbers of the next arm, or that it has failed."""
        arm, output = round_.due, self.output(round_.context)
        revealed: Context = []
        if arm < 2:
            revealed = self.random.uniform(-1, 1, REVEALS[arm]).round(3).tolist()
            too_many = self.send(round_, {arm: output}, [*revealed, 0.5])
            await refused(self.service, too_many, "invalid")
        infinite = self.send(round_, {arm: output}, [math.inf, *revealed[1:]])
        await refused(self.service, infinite, "invalid")
        final = self.random.random() < 0.15
        if final and self.random.random() < 0.5:  # the arm has failed
            outputs_by_arm, revealed = {}, []
        else:
            outputs_by_arm = {arm: output}
        answer = await self.send(round_, outputs_by_arm, revealed, final=final)
        if outputs_by_arm:
            in_progress.give(_hashable(output), revealed)
            round_.reported |= outputs_by_arm
            round_.context = [*round_.context, *revealed]
            final = in_progress.next() is None or final
        if final:
            round_.stop = round_.due - 1 if round_.due else None
            self.end(round_, round_.due)
        self.check_answer(answer, round_)
        repeat = await unchanged(
            self.service, self.send(round_, outputs_by_arm, revealed, final=final)
        )
        self.check_answer(repeat, round_, repeated=True)
        if outputs_by_arm:
            other = self.send(round_, {arm: "something else"}, revealed)
            await refused(self.service, other, "conflict")
            other = self.send(round_, outputs_by_arm, [*revealed, 0.5])
            await refused(self.service, other, "conflict")

    def send(
        self,
        round_: PlayedRound,
        outputs_by_arm: dict[int, Any],
        revealed: Sequence[float] = (),
        *,
        final: bool = False,
    ) -> Awaitable[m.RoundAnswer]:
        if self.random.random() < 0.5:
            outputs: Any = {ARMS[arm].name: value for arm, value in outputs_by_arm.items()}
        else:
            outputs = [
                outputs_by_arm.get(arm) for arm in range(max(outputs_by_arm, default=-1) + 1)
            ]
        return self.service.report(
            self.name, round_.id, m.OutputsRequest(outputs, list(revealed), final)
        )

    def end(self, round_: PlayedRound, reached: int) -> None:
        del self.open[round_.id]
        round_.reported = {arm: round_.reported[arm] for arm in range(reached)}
        round_.status = "learned"
        if round_.in_progress is not None:
            round_.rule_stop = round_.in_progress.rule_stop
            round_.in_progress.learn()
            round_.request = round_.in_progress.request
        elif round_.reported:
            outputs = [_hashable(value) for value in round_.reported.values()]
            x, rule_stop = np.array(round_.context), round_.rule_stop
            round_.request = self.policy.observe(x, outputs, rule_stop=rule_stop)
        self.ended[round_.id] = round_

    # -- labels -------------------------------------------------------------------------------

    async def label(self) -> None:
        if not self.ended:
            return
        round_ = self.choice(self.ended.values())
        label = self.labels.get(round_.id, self.some_label(round_))
        labelling = report_label(self.service, self.name, round_.id, label)
        takes_labels = self.spec.policy["kind"].startswith(("uss-pd", "uss-laplace"))
        if not takes_labels or not round_.outputs:
            await refused(self.service, labelling, "conflict")
        elif round_.id in self.labels:
            assert (await unchanged(self.service, labelling)).repeated
            other = report_label(
                self.service, self.name, round_.id, m.LabelReport("something else")
            )
            await refused(self.service, other, "conflict")
        else:
            assert not (await labelling).repeated
            self.policy.learn_label(round_.label(label))
            self.labels[round_.id] = label
            round_.request = None

    def some_label(self, round_: PlayedRound) -> m.LabelReport:
        """Return a label in a random form."""
        if self.random.random() < 0.5:
            return m.LabelReport(self.choice(["spam", "ham"]))
        right = {ARMS[arm].name: bool(self.random.random() < 0.5) for arm in range(round_.due)}
        return m.LabelReport(right=right)

    # -- invalid requests ---------------------------------------------------------------------

    async def invalid_request(self) -> None:
        """Send an invalid request that JSON cannot express, or that depends on the state."""
        service, finite = self.service, self.context()
        requests = [
            m.RoundRequest([math.nan, *finite[1:]]),
            m.BatchRequest([finite, [0, math.inf, 0]], evidence=True),
        ]
        wrong = service.open_rounds(self.name, self.choice(requests), self.key())
        await refused(service, wrong, "invalid", "conflict")
        for late in self.expired[-1:]:
            # Outputs reported before the round expired count; contradicting them is a conflict.
            codes = ["gone"] if 0 not in late.reported else ["conflict"]
            await refused(service, self.send(late, {0: "something new"}), *codes)
            repeat = await unchanged(service, self.send(late, {}, final=True))
            self.check_answer(repeat, late, repeated=True)

    def check(self) -> None:
        """Compare the policy of the service with the separate policy, bit for bit."""
        cascade = self.service.state.cascades[self.name]
        assert bits_of(cascade.policy) == bits_of(self.policy)
        ledger, view = cascade.ledger, cascade.view()
        assert [ledger.id(number) for number in ledger.open] == list(self.open)
        assert cascade.divergences == 0
        rounds = [*self.open.values(), *self.ended.values(), *self.expired]
        assert (view.rounds, view.learned) == (len(rounds), len(self.ended))
        assert (view.open, view.labelled) == (len(self.open), len(self.labels))
        assert view.stops == [sum(round_.stop == arm for round_ in rounds) for arm in range(3)]


def _hashable(value: Any) -> Any:
    return repr(value) if isinstance(value, dict | list) else value


async def walked(path: Path, specs: list[m.CascadeSpec], seed: int, steps: int) -> list[Walk]:
    random = np.random.default_rng(seed)
    async with running(path, snapshot_every=100) as service:
        walks: list[Walk] = []
        snapshots: list[Snapshot] = []
        for k, cascade_spec in enumerate(specs):
            view, new = await service.create(cascade_spec, f"create-{k}")
            assert new
            assert view.spec == cascade_spec
            _, new = await unchanged(service, service.create(cascade_spec, f"create-{k}"))
            assert not new
            other = msgspec.structs.replace(cascade_spec, name=f"other-{k}")
            await refused(service, service.create(other, f"create-{k}"), "conflict")
            walks.append(Walk(service, cascade_spec, seed + k))
        for _ in range(steps):
            await walks[int(random.integers(len(walks)))].step()
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
    async with running(path) as service:  # from the snapshot written on stopping
        assert await service.state_hash() == live
    return walks


async def check_retired(service: Service, walk: Walk) -> None:
    """Check that a retired cascade answers repeats and learns from open rounds."""
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
    for kind, policy in (STAGED_SPECS if staged else POLICY_SPECS).items():
        features = {"features": MAPS, "keep_open": 8} if staged else {"keep_open": 12}
        specs = [spec("walk", policy, **features)]
        [walk] = asyncio.run(walked(tmp_path / f"{kind}.db", specs, seed, 100))
        assert len(walk.actions) == (5 if staged else 6), kind  # all kinds of requests
        assert len(walk.ended) > 10


@pytest.mark.parametrize("where", ["on the loop", "in threads"])
def test_cascades_are_independent(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "in threads":
        monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1)
    specs = [spec(f"walk-{name}", policy) for name, policy in POLICY_SPECS.items()]
    specs += [
        spec(f"staged-{name}", policy, features=MAPS) for name, policy in STAGED_SPECS.items()
    ]
    asyncio.run(walked(tmp_path / "log.db", specs, 7, 130))


def test_every_policy_is_tested() -> None:
    assert {policy["kind"] for policy in POLICY_SPECS.values()} == set(POLICIES)


async def test_round_that_ends_during_a_lookup_is_shown_consistently(tmp_path: Path) -> None:
    async with running(tmp_path / "log.db") as service:
        await service.create(spec("seen", {"kind": "fixed-depth", "depth": 1}), None)
        for _ in range(20):
            (round_,), _ = await service.open_rounds("seen", m.RoundRequest([0.1, 0.2, 0.3]), None)
            lookups = [asyncio.ensure_future(service.round("seen", round_.id)) for _ in range(2)]
            await service.report("seen", round_.id, m.OutputsRequest(["spam", "ham"]))
            for view in await asyncio.gather(*lookups):
                outputs = {"rules": "spam", "model": "ham"} if view.status == "learned" else {}
                assert view.outputs == outputs
