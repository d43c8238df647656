"""Old events go; the state stays, bit for bit."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import CorruptLogError
from stopwise.service.messages import (
    BatchRequest,
    DecisionRequest,
    LabelRequest,
    OutputsRequest,
)
from stopwise.service.recovery import recovered
from stopwise.service.refusals import Refusal
from stopwise.service.tools import words
from stopwise.service.tools.compacting import DAY, FOLLOWED, Compacted, Plan, compact, plan
from stopwise.service.tools.folding import beginning, fold
from stopwise.service.tools.opening import existing
from stopwise.service.tools.verifying import verify
from tests.service.tools.making import TRIAGE, change, live, lived, opened, play, running

LATER = FOLLOWED + 60


async def shortened(where: str, keep_days: float = 0.0, now: float | None = None) -> Compacted:
    async with existing(where) as store:
        planned = await plan(store, keep_days=keep_days, now=now or time.time() + LATER)
        return await compact(store, planned)


async def state_hash(where: str) -> str:
    async with existing(where) as store:
        return (await recovered(store)).hash()


def test_recovery_gives_the_same_state(where: str) -> None:
    hash_ = lived(where)

    async def scenario() -> None:
        done = await shortened(where)
        async with existing(where) as store:
            assert [block async for block in store.read(0)] == []
            assert await store.end() != (0, b"")
            start = await beginning(store)
            assert start.compacted
            assert (await fold(store, start)).hash() == hash_
            found = await verify(store)
        assert await state_hash(where) == hash_
        assert (done.events, done.written) == (found.end, False)  # stopping had written one
        assert (found.hash, found.folded) == (hash_, 0)
        async with running(where) as service:
            assert service.state_hash().hash == hash_
            await play(service, 3)
            now = service.state_hash().hash
        assert await state_hash(where) == now
        async with existing(where) as store:
            assert (await verify(store)).folded == 6

    asyncio.run(scenario())


def test_a_snapshot_is_written_where_there_is_none(where: str) -> None:
    hash_ = lived(where)
    change(where, "DELETE FROM snapshot WHERE position > ?", (0,))

    async def scenario() -> None:
        done = await shortened(where)
        assert done.written
        assert await state_hash(where) == hash_

    asyncio.run(scenario())


def test_the_last_days_are_kept(where: str) -> None:
    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            old = await play(service, 20, seed=1)
            waiting, _ = await service.decide("triage", DecisionRequest([0.5, 0.5]), None)
            cut = service.state.position
            await asyncio.sleep(0.05)
            middle = time.time()
            new = await play(service, 20, seed=2)
            before = service.state_hash()

            now = middle + 1000.0
            async with opened(where) as store:
                planned = await plan(store, keep_days=1000.0 / DAY, now=now)
                assert (planned.cut, planned.events) == (cut, cut)
                assert (planned.decisions, planned.open) == (21, 1)
                text = " ".join(words.of_plan(planned))
                assert "21 decisions" in text
                assert "1 of them still wait" in text
                done = await compact(store, planned)
                assert done.events == cut
                kept = [block async for block in store.read(0)]
                assert kept[0].base == cut + 1
                found = await verify(store)
                # a snapshot stands at the end, and what is kept lies before it
                assert (found.first, found.unfolded) == (cut + 1, before.position - cut)
                again = await plan(store, keep_days=1000.0 / DAY, now=now)
                assert (again.events, again.decisions) == (0, 0)

            # the service has been running all the time, and goes on
            assert service.state_hash() == before
            with pytest.raises(Refusal) as caught:
                await service.label("triage", old[0], LabelRequest("ill"))
            assert caught.value.status == 410
            assert (await service.decision("triage", old[0])).context is None
            await service.label("triage", new[0], LabelRequest("ill"))
            assert (await service.decision("triage", new[0])).context is not None
            told = ["ill"] * (waiting.stop + 1)
            answer = await service.outputs("triage", waiting.id, OutputsRequest(list(told)))
            assert answer.status == "learned"
            after = service.state_hash()
        async with running(where) as service:
            assert service.state_hash() == after

    asyncio.run(scenario())


def test_a_service_writes_on_meanwhile(where: str) -> None:
    async def scenario() -> None:
        async with running(where, snapshot_every=20) as service:
            await live(service)
            writing = asyncio.create_task(play(service, 60, seed=9))
            await asyncio.sleep(0.01)
            for _ in range(3):
                await shortened(where)
            await writing
            after = service.state_hash()
            assert await state_hash(where) == after.hash
        assert await state_hash(where) == after.hash

    asyncio.run(scenario())


def test_what_replicas_may_be_reading_is_kept(postgres: str) -> None:
    async def scenario() -> Plan:
        async with existing(postgres) as store:
            return await plan(store, keep_days=0)

    lived(postgres)
    assert asyncio.run(scenario()).events == 0


def test_of_a_damaged_log_nothing_is_forgotten(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 7))

    async def count() -> int:
        async with opened(where) as store:
            return sum([block.count async for block in store.read(0)])

    before = asyncio.run(count())
    with pytest.raises(CorruptLogError, match="events 7 to 7"):
        asyncio.run(shortened(where))
    assert asyncio.run(count()) == before


def test_nothing_is_forgotten_if_the_snapshot_is_not_what_was_planned(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    async def scenario() -> None:
        async with existing(where) as store:
            planned = await plan(store, keep_days=0, now=time.time() + 1)
            planned.state.order[0].ledger.learned += 1  # as if memory had erred
            with pytest.raises(CorruptLogError, match="not what the log amounts to"):
                await compact(store, planned)
            assert sum([block.count async for block in store.read(0)]) == planned.events

    asyncio.run(scenario())


def test_the_file_shrinks(tmp_path: Path) -> None:
    where = tmp_path / "log.db"

    async def scenario() -> None:
        async with running(str(where)) as service:
            await service.create(TRIAGE, None)
            for k in range(40):
                contexts: list[Any] = [[k / 40, n / 500] for n in range(500)]
                await service.decide_batch("triage", BatchRequest(contexts), f"batch {k}")
        before = where.stat().st_size
        async with existing(str(where)) as store:
            planned = await plan(store, keep_days=0, now=time.time() + 1)
            await compact(store, planned)
        assert planned.bytes > 300_000
        assert where.stat().st_size < before - 0.9 * planned.bytes

    asyncio.run(scenario())
