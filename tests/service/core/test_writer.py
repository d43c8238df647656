"""When memory and the log could differ: nothing is acknowledged that is not in the log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import CorruptLogError
from stopwise.service import service as service_module
from stopwise.service import writer as writer_module
from stopwise.service.domain import messages as m
from stopwise.service.domain.commands import CommandResult
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.state import State
from stopwise.service.labels import report_label
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.service import Service
from tests.service.core.services import FailingStore, folded, running, until
from tests.service.tools.sample_logs import using

SPEC = m.CascadeSpec("triage", [m.Arm("rule", 0.1), m.Arm("model", 0.2)], context=2)
ASK = m.RoundRequest([0.1, 0.2])
BOTH = m.OutputsRequest(["yes", "no"])


def defect(state: State, time: float, /) -> CommandResult:
    state.cascades["triage"].counts.labels_total += 1  # half of a change
    raise ZeroDivisionError("a defect")


async def refused(request: Awaitable[object]) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        await request
    return refusal.value


async def opened(service: Service, key: str | None = None) -> tuple[m.RoundAnswer, bool]:
    (answer,), new = await service.open_rounds("triage", ASK, key)
    return answer, new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@asynccontextmanager
async def created(path: Path, **settings: Any) -> AsyncIterator[tuple[Service, FailingStore]]:
    """Run a service that has a cascade, on a store that can fail."""
    store = FailingStore(path)
    async with running(path, store, **settings) as service:
        await service.create(SPEC, None)
        yield service, store


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_that_failed_is_found_or_repeated_and_counts_once(
    path: Path, when: str
) -> None:
    async with created(path) as (service, store):
        setattr(store, when, 1)
        refusal = await refused(opened(service, "one"))
        assert (refusal.code, refusal.retry_after) == ("unavailable", 2)
        assert (await refused(service.state_hash())).code == "unavailable"
        await until(lambda: service.ready)
        again, new = await opened(service, "one")
        assert not new  # the block was stored, then or now
        assert len(service.state.cascades["triage"].ledger) == 1
        assert again.id.startswith("0-")
    assert state_hash(await folded(path)) == state_hash(service.state)


@pytest.mark.parametrize("slow", [False, True])
async def test_a_defect_fails_its_own_request_and_leaves_no_trace(path: Path, slow: bool) -> None:
    async with created(path) as (service, _):
        other = asyncio.create_task(opened(service, "one"))
        await asyncio.sleep(0)  # it is in the queue
        failing = service.submit(defect, None, slow=slow)
        if slow:  # in a group of its own
            await other
        else:
            assert (await refused(other)).code == "unavailable"
        with pytest.raises(ZeroDivisionError):
            await failing
        settled = await service.state_hash()
        assert settled.hash == state_hash(service.state) == state_hash(await folded(path))
        _, new = await opened(service, "one")
        assert new is not slow
    assert state_hash(await folded(path)) == state_hash(service.state)


async def opened_early(service: Service) -> m.RoundAnswer:
    (answer,), _ = await service.open_rounds("triage", ASK, None, early=lambda _: True)
    return answer


async def test_a_step_that_is_answered_early_shares_the_commit_of_the_last(path: Path) -> None:
    async with created(path) as (service, store):
        store.allowed.clear()
        answer = await opened_early(service)
        last = asyncio.create_task(service.report("triage", answer.id, BOTH))
        await until(lambda: service.state.cascades["triage"].ledger.learned == 1)
        assert not last.done()
        assert (await folded(path)).position == 1  # the cascade
        store.allowed.set()
        assert (await last).status == "learned"
        assert [block.count async for block in store.read(1)] == [2]
    assert state_hash(await folded(path)) == state_hash(service.state)


@pytest.mark.parametrize("how", ["later", "read", "wide", "stop", "failure"])
async def test_steps_that_were_answered_early_are_committed_whatever_follows(
    path: Path, how: str
) -> None:
    async with created(path) as (service, store):
        answer = await opened_early(service)
        store.before = how == "failure"
        if how == "read":
            assert (await service.state_hash()).position == 2
        elif how == "wide":  # a request in a group of its own
            await service.submit(lambda *_: (None, None), None, slow=True)
        if how != "stop":
            await until(lambda: service.writer.settled)
            assert (await service.round("triage", answer.id)).status == "open"
    assert (await folded(path)).position == 2
    assert state_hash(await folded(path)) == state_hash(service.state)


async def test_a_defect_after_a_step_that_was_answered_early_does_not_lose_it(path: Path) -> None:
    async with created(path) as (service, _):
        answer = await opened_early(service)
        with pytest.raises(ZeroDivisionError):
            await service.submit(defect, None)
        assert (await service.state_hash()).hash == state_hash(await folded(path))
        assert (await service.report("triage", answer.id, BOTH)).status == "learned"


@pytest.mark.parametrize("error", [CorruptLogError("damaged"), ZeroDivisionError("a defect")])
async def test_a_service_that_cannot_read_its_log_again_has_failed(
    path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> State:
        raise error

    async with created(path) as (service, _):
        monkeypatch.setattr(service_module, "recover_state", fail)
        with pytest.raises(ZeroDivisionError):
            await service.submit(defect, None)
        await until(service.failed.done)
        assert service.failed.result() is error
        assert not service.ready
        assert (await refused(opened(service))).code == "unavailable"
    # What may be wrong was not stored.
    assert await using(str(path), lambda store: store.snapshots()) == []


async def test_no_snapshot_is_written_of_what_is_not_in_the_log(path: Path) -> None:
    async with created(path) as (service, _):
        failing = service.submit(defect, None)
        await asyncio.gather(failing, service.stop(), return_exceptions=True)
    assert max(await using(str(path), lambda store: store.snapshots()), default=0) <= 1
    async with running(path) as service:
        assert state_hash(service.state) == state_hash(await folded(path))


async def test_a_snapshot_that_fails_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = service_module.snapshot_process, list[str]()

    async def failing_once(where: str) -> int:
        calls.append(where)
        return await write(where if len(calls) > 1 else str(path / "no folder" / "log.db"))

    monkeypatch.setattr(service_module, "snapshot_process", failing_once)
    monkeypatch.setattr(service_module, "CHECK_INTERVAL", 0.001)
    async with created(path, snapshot_every=1) as (service, _):
        await until(lambda: len(calls) == 1)
        await opened(service)
        await until(lambda: service.counters.snapshots == 1)


async def test_nobody_waits_for_ever_when_the_service_stops(path: Path) -> None:
    async with created(path, stop_timeout=0.2) as (service, store):
        store.allowed.clear()  # a commit that takes longer than stopping may take
        first = asyncio.create_task(opened(service))
        await until(lambda: len(service.state.cascades["triage"].ledger) == 1)
        second = asyncio.create_task(opened(service))
        await until(lambda: service.writer.waiting == 1)
        await service.stop()
        await until(lambda: first.done() and second.done())
        assert {(await refused(one)).code for one in (first, second)} == {"unavailable"}


async def test_a_client_that_goes_away_changes_nothing_for_others(path: Path) -> None:
    async with created(path) as (service, store):
        store.allowed.clear()
        gone, stays = (asyncio.create_task(opened(service, key)) for key in ("gone", "stays"))
        await until(lambda: len(service.state.cascades["triage"].ledger) == 2)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        store.allowed.set()
        answer, _ = await stays
        again, new = await opened(service, "gone")
        assert not new
        assert again.id != answer.id


async def test_a_label_finds_outputs_that_are_being_written(path: Path) -> None:
    async with created(path) as (service, store):
        one, _ = await opened(service)
        store.allowed.clear()
        reporting = asyncio.create_task(service.report("triage", one.id, BOTH))
        await until(lambda: service.state.cascades["triage"].ledger.learned == 1)
        # The outputs are in memory, and not in the log yet.
        labelling = asyncio.create_task(
            report_label(service, "triage", one.id, m.LabelReport("no"))
        )
        await until(lambda: service.writer.waiting == 1)
        store.allowed.set()
        assert (await labelling).labelled == 1
        assert (await reporting).status == "learned"


async def test_a_repeated_creation_is_answered_once_it_is_in_the_log(path: Path) -> None:
    store = FailingStore(path)
    async with running(path, store) as service:
        store.allowed.clear()
        first = asyncio.create_task(service.create(SPEC, "key"))
        await until(lambda: "triage" in service.state.cascades)  # in memory, not in the log
        again = asyncio.create_task(service.create(SPEC, "key"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not again.done()
        store.allowed.set()
        assert ((await first)[1], (await again)[1]) == (True, False)


async def test_slow_requests_share_a_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1.0)
    monkeypatch.setattr(writer_module, "MAX_GROUP_SECONDS", 60.0)  # also on a busy machine
    async with created(path) as (service, _):
        await asyncio.gather(*(opened(service) for _ in range(40)))
        assert service.state.position == 41
        assert sum(service.counters.commits.counts) < 20
