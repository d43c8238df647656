"""An internal error fails one cascade only, which is then reloaded from the log."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stopwise.service import service as service_module
from stopwise.service import writer as writer_module
from stopwise.service.domain import messages as m
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.counts import Counts
from stopwise.service.domain.errors import CascadeFailed, RequestError
from stopwise.service.domain.events import Event, Opened
from stopwise.service.domain.ledger import Ledger
from stopwise.service.domain.state import State
from stopwise.service.labels import report_label
from stopwise.service.metrics import metrics_page
from stopwise.service.persistence import blocks as codec
from stopwise.service.persistence import reloader
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash
from stopwise.service.service import Service
from tests.service.core.services import FailingStore, folded, running, until
from tests.service.tools.sample_logs import using

ARMS = [m.Arm("rule", 0.1), m.Arm("model", 0.2)]
HEALTHY, BROKEN = (m.CascadeSpec(name, ARMS, context=2) for name in ("healthy", "broken"))
ASK = m.RoundRequest([0.1, 0.2])
BOTH = m.OutputsRequest(["yes", "no"])


class Faults:
    """Injects errors into the cascade "broken", which leave it partly changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.skip = 0  # calls that succeed before the first error
        self.left = 0  # errors to raise
        self.raised = 0
        self._patch = monkeypatch
        self._broken: dict[int, Any] = {}  # the objects of broken cascades by id()
        init = ServedCascade.__init__

        def recording_init(cascade: ServedCascade, *arguments: Any, **options: Any) -> None:
            init(cascade, *arguments, **options)
            if cascade.spec.name == "broken":
                for owner in (cascade, cascade.ledger, cascade.counts):
                    self._broken[id(owner)] = owner

        monkeypatch.setattr(ServedCascade, "__init__", recording_init)

    def _next_call_fails(self) -> bool:
        if self.left and self.skip:
            self.skip -= 1
            return False
        if self.left:
            self.left -= 1
            self.raised += 1
            return True
        return False

    def fail(self, owner: type, method: str, *, after: bool = False) -> None:
        """Make a method fail before or after its work."""
        work = getattr(owner, method)

        def failing(instance: Any, *arguments: Any, **options: Any) -> Any:
            fails = id(instance) in self._broken and self._next_call_fails()
            answer = work(instance, *arguments, **options) if after or not fails else None
            if fails:
                raise ZeroDivisionError("injected")
            return answer

        self._patch.setattr(owner, method, failing)

    def fail_to_encode(self) -> None:
        """Make the encoding of opened rounds fail."""
        encode = codec.encode_event

        def failing(event: Event) -> bytes:
            if isinstance(event, Opened) and event.cascade == 1 and self._next_call_fails():
                raise ZeroDivisionError("injected")
            return encode(event)

        self._patch.setattr(codec, "encode_event", failing)


# Early and late points of a request at which an error is injected.
PLACES: dict[str, tuple[str, Callable[[Faults], None]]] = {
    "opening begins": ("open", lambda faults: faults.fail(ServedCascade, "open")),
    "a round is added": ("open", lambda faults: faults.fail(Ledger, "add", after=True)),
    "a round is counted": ("open", lambda faults: faults.fail(Counts, "add_stops", after=True)),
    "the answer is made": ("open", lambda faults: faults.fail(ServedCascade, "answer")),
    "the event is encoded": ("open", Faults.fail_to_encode),
    "a fingerprint is stored": (
        "report",
        lambda faults: faults.fail(Ledger, "set_fingerprint", after=True),
    ),
    "the policy has learned": ("report", lambda faults: faults.fail(Counts, "add_outputs")),
    "a round ends": ("report", lambda faults: faults.fail(Ledger, "end", after=True)),
}


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(reloader, "LONGEST_PAUSE", 0.01)


@pytest.fixture(autouse=True)
def recoveries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cascades that each recovery followed."""
    recoveries: list[Any] = []
    recover = service_module.recover_state

    async def recorded(store: Any, follows: Any = None, *more: Any, **options: Any) -> State:
        recoveries.append(follows)
        return await recover(store, follows, *more, **options)

    monkeypatch.setattr(service_module, "recover_state", recorded)
    return recoveries


async def create(service: Service) -> None:
    for spec in (HEALTHY, BROKEN):
        await service.create(spec, None)


async def opened(service: Service, name: str, key: str | None = None) -> m.RoundAnswer:
    (answer,), _ = await service.open_rounds(name, ASK, key)
    return answer


async def report(service: Service, name: str, answer: m.RoundAnswer) -> m.RoundAnswer:
    return await service.report(name, answer.id, BOTH)


async def play(service: Service, name: str) -> m.RoundAnswer:
    return await report(service, name, await opened(service, name))


async def until_reloaded(service: Service) -> None:
    await until(lambda: not service.state.failed)


async def opening_error(service: Service, name: str = "broken") -> RequestError:
    with pytest.raises(RequestError) as caught:
        await opened(service, name)
    return caught.value


@pytest.mark.parametrize("slow", [False, True], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize("place", PLACES)
async def test_internal_error_fails_one_request_of_one_cascade(
    path: Path,
    faults: Faults,
    recoveries: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    slow: bool,
) -> None:
    if slow:
        monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1.0)
    monkeypatch.setattr(writer_module, "MAX_GROUP_SECONDS", 60.0)  # one group, also when busy
    requested, install = PLACES[place]
    install(faults)
    store = FailingStore(path)
    async with running(path, store) as service:
        await create(service)
        waiting = await opened(service, "broken")
        ready = [await opened(service, "healthy") for _ in range(4)]
        store.allowed.clear()  # a slow commit, so that all following requests form one group
        first = asyncio.create_task(opened(service, "healthy"))
        await until(lambda: service.state.position == 8)

        others = [asyncio.create_task(report(service, "healthy", round_)) for round_ in ready[:2]]
        earlier = asyncio.create_task(opened(service, "broken", "earlier"))
        await until(lambda: service.writer.waiting == 3)
        if requested == "open":
            failing = asyncio.create_task(opened(service, "broken", "failing"))
        else:
            failing = asyncio.create_task(report(service, "broken", waiting))
        await until(lambda: service.writer.waiting == 4)
        later = asyncio.create_task(opened(service, "broken", "later"))
        others += [asyncio.create_task(report(service, "healthy", round_)) for round_ in ready[2:]]
        await until(lambda: service.writer.waiting == 7)
        faults.skip, faults.left = int(requested == "open"), 1
        store.allowed.set()
        assert (await earlier).status == "open"
        with pytest.raises(ZeroDivisionError):
            await failing
        assert {answer.status for answer in await asyncio.gather(*others)} == {"learned"}
        with pytest.raises(CascadeFailed, match="'broken'"):
            await later
        await first
        await until_reloaded(service)
        _, new = await service.open_rounds("broken", ASK, "earlier")
        assert not new  # acknowledged before the error, so still there
        _, new = await service.open_rounds("broken", ASK, "failing")
        assert new  # the failed request changed nothing
        assert (await report(service, "broken", waiting)).status == "learned"
        assert faults.raised == 1
        assert (await service.state_hash()).hash == state_hash(await folded(path))
        assert service.counters.cascade_failures == {"broken": 1}
    assert recoveries == [None, ["broken"]]


async def test_steps_answered_early_are_not_lost(path: Path, faults: Faults) -> None:
    faults.fail(Counts, "add_outputs")
    async with running(path) as service:
        await create(service)
        early = [
            (await service.open_rounds(name, ASK, None, early=lambda _: True))[0][0]
            for name in ("healthy", "broken")
        ]
        faults.left = 1
        with pytest.raises(ZeroDivisionError):
            await report(service, "broken", early[1])
        assert (await report(service, "healthy", early[0])).status == "learned"
        await until_reloaded(service)
        assert (await report(service, "broken", early[1])).status == "learned"
        assert (await service.state_hash()).hash == state_hash(await folded(path))


async def test_error_in_the_early_check_is_contained(path: Path) -> None:
    def fails(answer: object) -> bool:
        raise ZeroDivisionError("injected")

    async with running(path) as service:
        await create(service)
        with pytest.raises(ZeroDivisionError):
            await service.open_rounds("broken", ASK, None, early=fails)
        await opened(service, "healthy")
        await until_reloaded(service)
        assert len(service.state.cascades["broken"].ledger) == 0
        assert (await service.state_hash()).hash == state_hash(await folded(path))


async def test_failed_creation_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, recoveries: list[Any]
) -> None:
    view = ServedCascade.view

    def failing(cascade: ServedCascade) -> m.CascadeView:
        if cascade.spec.name == "broken":
            raise ZeroDivisionError("injected")
        return view(cascade)

    async with running(path) as service:
        await service.create(HEALTHY, None)
        monkeypatch.setattr(ServedCascade, "view", failing)
        with pytest.raises(ZeroDivisionError):
            await service.create(BROKEN, "key")
        await play(service, "healthy")
        assert list(service.state.cascades) == ["healthy"]
        monkeypatch.setattr(ServedCascade, "view", view)
        _, new = await service.create(BROKEN, "key")
        assert new
        await play(service, "broken")
        assert (await service.state_hash()).hash == state_hash(await folded(path))
    assert recoveries == [None]


async def test_cascade_that_cannot_be_reloaded_stays_failed_and_others_work(
    path: Path, faults: Faults, recoveries: list[Any]
) -> None:
    faults.fail(Ledger, "end", after=True)  # in requests and when events are replayed
    async with running(path) as service:
        await create(service)
        await play(service, "broken")
        waiting = await opened(service, "broken")
        faults.left = 1 << 30
        with pytest.raises(ZeroDivisionError):
            await report(service, "broken", waiting)
        await until(lambda: len(recoveries) >= 3)
        assert (await opening_error(service)).code == "cascade_failed"
        assert service.ready
        await play(service, "healthy")
        with pytest.raises(CascadeFailed):  # the hash would belong to no log
            await service.state_hash()
        statuses = {view.spec.name: view.status for view in await service.cascades()}
        assert statuses == {"healthy": "active", "broken": "failed"}
        faults.left = 0
        await until_reloaded(service)
        assert (await report(service, "broken", waiting)).status == "learned"
        assert (await service.state_hash()).hash == state_hash(await folded(path))


async def test_service_starts_with_a_cascade_that_cannot_be_read(
    path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as service:
        await create(service)
        for name in ("healthy", "broken"):
            await play(service, name)
        # Without a snapshot, the next start replays all events.
        monkeypatch.setattr(service_module, "write_snapshot", no_snapshot)
    faults.fail(Ledger, "end", after=True)
    faults.left = 1 << 30
    async with running(path) as service:
        assert service.ready
        assert (await opening_error(service)).code == "cascade_failed"
        with pytest.raises(CascadeFailed):
            await service.retire("broken")
        await play(service, "healthy")
        assert [view.status for view in await service.cascades()] == ["active", "failed"]
        page = (await metrics_page(service)).decode()
        assert 'stopwise_cascade_failed{cascade="broken"} 1.0' in page
        assert 'stopwise_cascade_failed{cascade="healthy"} 0.0' in page
        assert 'stopwise_open_rounds{cascade="broken"}' not in page
        assert 'stopwise_open_rounds{cascade="healthy"}' in page
        faults.left = 0
        await until_reloaded(service)
        await play(service, "broken")
        assert (await service.state_hash()).hash == state_hash(await folded(path))


async def no_snapshot(where: str, state: State | None = None) -> int:
    return 0


async def test_snapshot_never_contains_the_state_of_a_failed_cascade(
    path: Path, faults: Faults
) -> None:
    faults.fail(Ledger, "end", after=True)
    async with running(path) as service:
        await create(service)
        waiting = await opened(service, "broken")
        faults.left = 1 << 30
        with pytest.raises(ZeroDivisionError):
            await report(service, "broken", waiting)
        faults.left = 0
        # Fail it again, because it may have been reloaded already.
        service.state.fail("broken", ZeroDivisionError("injected"))
        service.state.cascades["broken"].counts.labels_total += 1
    [position] = await using(str(path), lambda store: store.snapshots())
    snapshot = await using(str(path), lambda store: store.snapshot(position))
    assert snapshot is not None
    stored = restore_snapshot(snapshot)
    assert stored is not None
    assert state_hash(stored) == state_hash(await folded(path))


async def test_reload_applies_only_the_events_of_the_failed_cascade(
    path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[str] = []
    work = ServedCascade.apply_opened

    def recorded(cascade: ServedCascade, *arguments: Any) -> None:
        applied.append(cascade.spec.name)
        work(cascade, *arguments)

    faults.fail(Counts, "add_outputs")
    monkeypatch.setattr(ServedCascade, "apply_opened", recorded)
    async with running(path) as service:
        await create(service)
        for name in ("healthy", "broken"):
            for _ in range(5):
                await opened(service, name)
        faults.left = 1
        with pytest.raises(ZeroDivisionError):
            await report(service, "broken", await opened(service, "broken"))
        await until_reloaded(service)
        assert applied == ["broken"] * 6


async def test_replica_contains_the_failure_of_a_cascade(
    postgres: str, faults: Faults, recoveries: list[Any]
) -> None:
    async with (
        running(postgres) as writing,
        running(postgres, follow_every=0.001) as following,
    ):
        await create(writing)
        await following.cascades()  # loads both
        faults.fail(Ledger, "end", after=True)
        waiting = await opened(writing, "broken")

        def follows() -> bool:
            cascade = following.state.cascades.get("broken")
            return cascade is not None and len(cascade.ledger) == 1

        await until(follows)
        faults.skip, faults.left = 1, 2  # the writing replica succeeds; the other fails twice
        await report(writing, "broken", waiting)
        await until(lambda: following.counters.cascade_failures["broken"] >= 1)
        await play(following, "healthy")
        await until_reloaded(following)
        await until(lambda: following.state.position == writing.state.position or faults.left > 0)
        await play(following, "broken")
        await writing.state_hash()
        assert (await following.state_hash()) == (await writing.state_hash())
        assert writing.counters.cascade_failures == {}
    assert recoveries.count(["broken"]) >= 2


async def test_replica_that_cannot_load_a_cascade_serves_others(
    postgres: str, faults: Faults, recoveries: list[Any]
) -> None:
    async with running(postgres) as writing, running(postgres) as following:
        await create(writing)
        for name in ("healthy", "broken"):
            await play(writing, name)
        faults.fail(Ledger, "end", after=True)
        faults.left = 1 << 30
        with pytest.raises(CascadeFailed):
            await following.cascade("broken")
        assert [view.status for view in await following.cascades()] == ["active", "failed"]
        await play(following, "healthy")
        assert (await opening_error(following)).code == "cascade_failed"
        faults.left = 0
        await until_reloaded(following)
        await play(following, "broken")
        assert await following.state_hash() == await writing.state_hash()


@pytest.mark.parametrize("seed", range(3))
async def test_requests_count_once_despite_random_errors(
    path: Path, faults: Faults, seed: int
) -> None:
    """Clients repeat failed requests with the same key; the seeds are fixed."""
    for _, install in PLACES.values():
        install(faults)
    rng = random.Random(seed)
    acknowledged: dict[str, set[str]] = {"healthy": set(), "broken": set()}

    async def client(service: Service, name: str, number: int) -> None:
        for k in range(20):
            answer = await insist(service, partial(opened, service, name, f"{name}/{number}/{k}"))
            if rng.random() < 0.7:
                await insist(service, partial(report, service, name, answer))
            acknowledged[name].add(answer.id)

    async def insist(service: Service, request: Callable[[], Any]) -> m.RoundAnswer:
        while True:
            # Not during a reload: with an error in every reload, none would succeed.
            if not service.state.failed and faults.left == 0 and rng.random() < 0.1:
                faults.skip, faults.left = rng.randrange(8), 1
            try:
                return await request()
            except (ZeroDivisionError, CascadeFailed):
                await asyncio.sleep(0.001)

    async with running(path, snapshot_every=50) as service:
        await create(service)
        clients = [client(service, name, k) for name in acknowledged for k in range(4)]
        await asyncio.gather(*clients)
        faults.left = 0
        await until_reloaded(service)
        assert service.counters.cascade_failures["broken"] > 5
        for name, ids in acknowledged.items():
            assert len(ids) == 80
            assert len(service.state.cascades[name].ledger) == 80
        assert (await service.state_hash()).hash == state_hash(await folded(path))


async def test_error_in_a_label_is_contained(path: Path, faults: Faults) -> None:
    faults.fail(ServedCascade, "apply_labelled", after=True)
    async with running(path) as service:
        await create(service)
        answer = await play(service, "broken")
        faults.left = 1
        with pytest.raises(ZeroDivisionError):
            await report_label(service, "broken", answer.id, m.LabelReport("no"))
        await play(service, "healthy")
        await until_reloaded(service)
        labelled = await report_label(service, "broken", answer.id, m.LabelReport("no"))
        assert (labelled.labelled, labelled.repeated) == (1, False)
        assert (await service.state_hash()).hash == state_hash(await folded(path))
