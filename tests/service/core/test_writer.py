"""The writer acknowledges nothing that is not in the log, even after errors."""

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


def failing_command(state: State, time: float, /) -> CommandResult:
    state.cascades["triage"].counts.labels_total += 1  # an incomplete change
    raise ZeroDivisionError("a bug")


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
async def test_block_of_a_failed_commit_counts_once(path: Path, when: str) -> None:
    async with created(path) as (service, store):
        setattr(store, when, 1)
        refusal = await refused(opened(service, "one"))
        assert (refusal.code, refusal.retry_after) == ("unavailable", 2)
        assert (await refused(service.state_hash())).code == "unavailable"
        await until(lambda: service.ready)
        again, new = await opened(service, "one")
        assert not new  # the block was stored, by the first commit or by a second one
        assert len(service.state.cascades["triage"].ledger) == 1
        assert again.id.startswith("0-")
    assert state_hash(await folded(path)) == state_hash(service.state)


@pytest.mark.parametrize("slow", [False, True])
async def test_unexpected_error_fails_its_request_and_changes_nothing(
    path: Path, slow: bool
) -> None:
    async with created(path) as (service, _):
        other = asyncio.create_task(opened(service, "one"))
        await asyncio.sleep(0)  # the request is in the queue
        failing = service.submit(failing_command, None, slow=slow)
        if slow:  # the failing request is in a separate group
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


async def test_step_answered_early_shares_the_commit_of_the_last_step(path: Path) -> None:
    async with created(path) as (service, store):
        store.allowed.clear()
        answer = await opened_early(service)
        last = asyncio.create_task(service.report("triage", answer.id, BOTH))
        await until(lambda: service.state.cascades["triage"].ledger.learned == 1)
        assert not last.done()
        assert (await folded(path)).position == 1  # the creation of the cascade
        store.allowed.set()
        assert (await last).status == "learned"
        assert [block.count async for block in store.read(1)] == [2]
    assert state_hash(await folded(path)) == state_hash(service.state)


@pytest.mark.parametrize("event", ["later", "read", "slow", "stop", "failure"])
async def test_steps_answered_early_are_always_committed(path: Path, event: str) -> None:
    async with created(path) as (service, store):
        answer = await opened_early(service)
        store.before = event == "failure"
        if event == "read":
            assert (await service.state_hash()).position == 2
        elif event == "slow":  # a request in a separate group
            await service.submit(lambda *_: (None, None), None, slow=True)
        if event != "stop":
            await until(lambda: service.writer.settled)
            assert (await service.round("triage", answer.id)).status == "open"
    assert (await folded(path)).position == 2
    assert state_hash(await folded(path)) == state_hash(service.state)


async def test_step_answered_early_is_kept_when_a_later_request_fails(path: Path) -> None:
    async with created(path) as (service, _):
        answer = await opened_early(service)
        with pytest.raises(ZeroDivisionError):
            await service.submit(failing_command, None)
        assert (await service.state_hash()).hash == state_hash(await folded(path))
        assert (await service.report("triage", answer.id, BOTH)).status == "learned"


@pytest.mark.parametrize("error", [CorruptLogError("damaged"), ZeroDivisionError("a bug")])
async def test_service_fails_if_it_cannot_read_its_log_again(
    path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> State:
        raise error

    async with created(path) as (service, _):
        monkeypatch.setattr(service_module, "recover_state", fail)
        with pytest.raises(ZeroDivisionError):
            await service.submit(failing_command, None)
        await until(service.failed.done)
        assert service.failed.result() is error
        assert not service.ready
        assert (await refused(opened(service))).code == "unavailable"
    # The state may be inconsistent, so it must not be saved.
    assert await using(str(path), lambda store: store.snapshots()) == []


async def test_snapshots_contain_only_stored_events(path: Path) -> None:
    async with created(path) as (service, _):
        failing = service.submit(failing_command, None)
        await asyncio.gather(failing, service.stop(), return_exceptions=True)
    assert max(await using(str(path), lambda store: store.snapshots()), default=0) <= 1
    async with running(path) as service:
        assert state_hash(service.state) == state_hash(await folded(path))


async def test_failed_snapshot_is_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_all_requests_are_answered_when_the_service_stops(path: Path) -> None:
    async with created(path, stop_timeout=0.2) as (service, store):
        store.allowed.clear()  # a commit that takes longer than stop_timeout
        first = asyncio.create_task(opened(service))
        await until(lambda: len(service.state.cascades["triage"].ledger) == 1)
        second = asyncio.create_task(opened(service))
        await until(lambda: service.writer.waiting == 1)
        await service.stop()
        await until(lambda: first.done() and second.done())
        codes = {(await refused(request)).code for request in (first, second)}
        assert codes == {"unavailable"}


async def test_disconnected_client_does_not_affect_others(path: Path) -> None:
    async with created(path) as (service, store):
        store.allowed.clear()
        cancelled = asyncio.create_task(opened(service, "cancelled"))
        waiting = asyncio.create_task(opened(service, "waiting"))
        await until(lambda: len(service.state.cascades["triage"].ledger) == 2)
        cancelled.cancel()
        with suppress(asyncio.CancelledError):
            await cancelled
        store.allowed.set()
        answer, _ = await waiting
        again, new = await opened(service, "cancelled")
        assert not new
        assert again.id != answer.id


async def test_label_waits_for_outputs_that_are_being_written(path: Path) -> None:
    async with created(path) as (service, store):
        round_, _ = await opened(service)
        store.allowed.clear()
        reporting = asyncio.create_task(service.report("triage", round_.id, BOTH))
        await until(lambda: service.state.cascades["triage"].ledger.learned == 1)
        # The outputs are applied to the state, but not in the log yet.
        labelling = asyncio.create_task(
            report_label(service, "triage", round_.id, m.LabelReport("no"))
        )
        await until(lambda: service.writer.waiting == 1)
        store.allowed.set()
        assert (await labelling).labelled == 1
        assert (await reporting).status == "learned"


async def test_repeated_creation_is_answered_once_it_is_in_the_log(path: Path) -> None:
    store = FailingStore(path)
    async with running(path, store) as service:
        store.allowed.clear()
        first = asyncio.create_task(service.create(SPEC, "key"))
        await until(lambda: "triage" in service.state.cascades)  # applied, but not in the log
        again = asyncio.create_task(service.create(SPEC, "key"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not again.done()
        store.allowed.set()
        assert ((await first)[1], (await again)[1]) == (True, False)


async def test_slow_requests_share_a_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", -1.0)
    monkeypatch.setattr(writer_module, "MAX_GROUP_SECONDS", 60.0)  # for busy machines
    async with created(path) as (service, _):
        await asyncio.gather(*(opened(service) for _ in range(40)))
        assert service.state.position == 41
        assert sum(service.counters.commits.counts) < 20
