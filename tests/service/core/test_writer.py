"""When something goes wrong between memory and the log: nobody is told what is not kept."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from stopwise.errors import StoreError
from stopwise.service.messages import (
    Arm,
    BatchRequest,
    CascadeSpec,
    DecisionRequest,
    LabelRequest,
    OutputsRequest,
)
from stopwise.service.recovery import recovered
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.state import State
from stopwise.service.store.base import Block, Snapshot
from stopwise.service.store.sqlite import SqliteStore
from stopwise.service.writer import Happening

SPEC = CascadeSpec("triage", [Arm("rule", 0.1), Arm("model", 0.2)], context=2)
ASK = DecisionRequest([0.1, 0.2])


class Failing(SqliteStore):
    """A real store whose commits fail when told to, before or after they are made."""

    before = after = 0  # how many of the next commits fail so
    slow: float = 0.0

    async def commit(self, block: Block) -> None:
        await asyncio.sleep(self.slow)
        if self.before:
            self.before -= 1
            self._ends_at = None
            raise StoreError("the disk is full")
        await super().commit(block)
        if self.after:
            self.after -= 1
            self._ends_at = None
            raise StoreError("the connection was lost")


@asynccontextmanager
async def serving(path: Path, **settings: float) -> AsyncIterator[tuple[Service, Failing]]:
    store = Failing(path)
    service = Service(store, Settings(store=str(path), **settings))  # pyright: ignore[reportArgumentType] (of many kinds)
    await service.start()
    while not service.ready:
        await asyncio.sleep(0.01)
    try:
        yield service, store
    finally:
        await service.stop()


async def folded(path: Path) -> State:
    store = SqliteStore(path)
    await store.open()
    state = await recovered(store, snapshots=False)
    await store.close()
    return state


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def refused(asked: Awaitable[object]) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        await asked
    return refusal.value


def defect(state: State, time: float, /) -> Happening:
    state.cascades["triage"].tally.labels_total += 1  # half of something
    raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_failed_commit_left_is_found_out_and_nothing_happens_twice(
    tmp_path: Path, when: str
) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path) as (service, store):
            await service.create(SPEC, None)
            setattr(store, when, 1)
            refusal = await refused(service.decide("triage", ASK, "one"))
            assert (refusal.status, refusal.retry_after) == (503, 2)
            await until(lambda: not service.trouble)
            again, new = await service.decide("triage", ASK, "one")
            assert not new  # the block was kept, then or now
            assert len(service.state.cascades["triage"].ledger) == 1
            assert again.id.startswith("0-")
            live = service.state_hash().hash
        assert (await folded(path)).hash() == live

    asyncio.run(main())


def test_a_defect_hurts_the_one_who_met_it_and_leaves_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path) as (service, _):
            await service.create(SPEC, None)
            before = service.state_hash()
            innocent = asyncio.ensure_future(service.decide("triage", ASK, "one"))
            await asyncio.sleep(0)
            guilty = service.submit(defect)
            assert (await refused(innocent)).status == 503
            with pytest.raises(ZeroDivisionError):
                await guilty
            await until(lambda: service.ready)
            assert await service.settled_hash() == before
            _, new = await service.decide("triage", ASK, "one")
            assert new

    asyncio.run(main())


def test_no_snapshot_is_made_of_what_never_happened(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path) as (service, _):
            await service.create(SPEC, None)
            waiting = [service.submit(defect)]
            await asyncio.sleep(0)
            stopping = asyncio.create_task(service.stop())
            await asyncio.gather(*waiting, stopping, return_exceptions=True)
        store = SqliteStore(path)
        await store.open()
        assert max(await store.snapshots(), default=0) <= 1
        assert (await recovered(store)).hash() == (await folded(path)).hash()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["beyond", "other"])
def test_a_snapshot_of_another_log_is_passed_over(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path, snapshot_every=1000) as (service, _):
            await service.create(SPEC, None)
            await service.decide("triage", ASK, None)
            state = service.state_hash()
            snapshot = service.state.snapshot()
        with sqlite3.connect(path) as sql:
            sql.execute("DELETE FROM snapshot")
        store = SqliteStore(path)
        await store.open()
        if kind == "beyond":
            wrong = Snapshot(7, snapshot.digest, snapshot.payload)
        else:
            wrong = Snapshot(snapshot.position, b"0" * 16, snapshot.payload)
        await store.keep_snapshot(wrong)
        again = await recovered(store)
        assert (again.position, again.hash()) == (state.position, state.hash)
        await store.close()

    asyncio.run(main())


def test_nobody_waits_for_ever_when_the_service_stops(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path, stop_timeout=0.2) as (service, store):
            await service.create(SPEC, None)
            store.slow = 30.0  # a commit that outlasts the patience of a stop
            first = asyncio.ensure_future(service.decide("triage", ASK, None))
            await asyncio.sleep(0.05)
            second = asyncio.ensure_future(service.decide("triage", ASK, None))
            await asyncio.sleep(0.05)
            await service.stop()
            async with asyncio.timeout(5):
                assert {(await refused(one)).status for one in (first, second)} == {503}

    asyncio.run(main())


def test_a_client_that_goes_away_takes_nothing_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        async with serving(path) as (service, store):
            await service.create(SPEC, None)
            store.slow = 0.05
            gone = asyncio.ensure_future(service.decide("triage", ASK, "gone"))
            stays = asyncio.ensure_future(service.decide("triage", ASK, "stays"))
            await asyncio.sleep(0.02)
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            answer, _ = await stays
            again, new = await service.decide("triage", ASK, "gone")
            assert not new
            assert again.id != answer.id

    asyncio.run(main())


def test_a_label_finds_outputs_that_are_just_being_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "log.db") as (service, store):
            await service.create(SPEC, None)
            decision, _ = await service.decide("triage", ASK, None)
            store.slow = 0.2
            said = OutputsRequest(["yes", "no"])
            telling = asyncio.ensure_future(service.outputs("triage", decision.id, said))
            await asyncio.sleep(0.1)  # it has happened in memory, and is not in the log yet
            answer = await service.label("triage", decision.id, LabelRequest("no"))
            assert answer.audited == 1
            assert (await telling).status == "learned"

    asyncio.run(main())


def test_an_open_decision_does_not_keep_its_batch_in_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "log.db") as (service, _):
            await service.create(SPEC, None)
            batch, _ = await service.decide_batch("triage", BatchRequest([[0.1, 0.2]] * 500), None)
            for decision in batch.decisions[1:]:
                said = OutputsRequest(["yes", "no"][: decision.stop + 1])
                await service.outputs("triage", decision.id, said)
            waiting = service.state.cascades["triage"].ledger.open
            assert [len(one) for one in waiting.values() if isinstance(one, bytes)] == [16]

    asyncio.run(main())
