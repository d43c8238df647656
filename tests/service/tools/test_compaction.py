"""Compaction of logs, and backups of SQLite files."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import CorruptLogError
from stopwise.service.dashboard.views import detail
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.ledger import BLOCK
from stopwise.service.domain.messages import (
    BatchRequest,
    CascadeSpec,
    LabelReport,
    RoundAnswer,
    WantedLabels,
)
from stopwise.service.labels import report_label, requested_labels
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.tools.compaction import DAY, compact, plan
from stopwise.service.tools.verification import verify
from tests.service.core.services import until
from tests.service.tools.conftest import SampleLog
from tests.service.tools.sample_logs import (
    ARMS,
    TRIAGE,
    blocks_of,
    change,
    open_round,
    play,
    play_sample,
    report,
    running,
    using,
)

LATER = 3600.0  # seconds from now; by then, all events are old


async def compact_all(where: str) -> int:
    async with open_existing_store(where) as store:
        return await compact(store, await plan(store, keep_days=0, now=time.time() + LATER))


async def hash_of(where: str) -> str:
    return state_hash(await using(where, recover_state))


async def test_a_compacted_log_recovers_the_same_state(log: SampleLog) -> None:
    where = log.where
    change(where, "DELETE FROM snapshot WHERE position > ?", (0,))  # compaction writes one
    position = await compact_all(where)
    assert await using(where, blocks_of) == []
    verified = await using(where, verify)
    assert (verified.hash, verified.state.position) == (log.hash, position)
    assert (verified.end, verified.hash, verified.applied) == (position, log.hash, 0)
    async with running(where) as service:
        assert (await service.state_hash()).hash == log.hash
        await play(service, 3)
        now = (await service.state_hash()).hash
    assert (await using(where, verify)).applied == 6
    assert await hash_of(where) == now


async def test_recent_events_are_kept(where: str) -> None:
    async with running(where) as service:
        await service.create(TRIAGE, None)
        old = await play(service, 20, seed=1)
        waiting = await open_round(service, [0.5, 0.5])
        cut = service.state.position
        middle = time.time()
        while time.time() == middle:
            pass  # later events have a later time
        new = await play(service, 20, seed=2)
        before = await service.state_hash()

        async with open_existing_store(where) as store:
            days, now = 1000.0 / DAY, middle + 1000.0
            planned = await plan(store, days, now)
            assert (planned.cut, planned.events) == (cut, cut)
            position = await compact(store, planned)
            assert (await blocks_of(store))[0].base == cut + 1
            verified = await verify(store)
            # The snapshot is at the end, after the remaining events.
            assert (verified.first, verified.applied) == (cut + 1, 0)
            assert position == verified.end == before.position
            again = await plan(store, days, now)
            assert again.events == 0

        # The running service continues.
        assert await service.state_hash() == before
        with pytest.raises(RequestError) as caught:
            await report_label(service, "triage", old[0], LabelReport("ill"))
        assert caught.value.code == "gone"
        assert (await service.round("triage", old[0])).context is None
        await report_label(service, "triage", new[0], LabelReport("ill"))
        assert (await service.round("triage", new[0])).context is not None
        assert await report(service, waiting, lambda arm: "ill") == "learned"
        after = await service.state_hash()
    async with running(where) as service:
        assert await service.state_hash() == after


async def test_compacted_rounds_are_dropped_from_memory(where: str) -> None:
    async with running(where) as service:
        await service.create(TRIAGE, None)

        async def batch(key: str | None = None) -> list[RoundAnswer]:
            contexts: list[Any] = [[0.5, n / BLOCK] for n in range(BLOCK)]
            return (await service.open_rounds("triage", BatchRequest(contexts), key))[0]

        async def report_all(rounds: list[RoundAnswer]) -> None:
            reports = (report(service, opened, lambda arm: "ill") for opened in rounds)
            await asyncio.gather(*reports)

        old, new = await batch("key"), await batch()
        await report_all(old + new[1:])
        ledger = service.state.order[0].ledger
        await compact_all(where)
        waiting = await open_round(service, [0.5, 0.5])  # an event after the compaction
        await until(lambda: ledger.first > 0)
        # The second block has an open round.
        assert (ledger.first, len(ledger), len(ledger.status)) == (BLOCK, 2 * BLOCK + 1, BLOCK + 1)
        for request in (
            service.round("triage", old[7].id),
            report(service, old[7], lambda arm: "ill"),
            report_label(service, "triage", old[7].id, LabelReport("ill")),
            batch("key"),
        ):
            with pytest.raises(RequestError) as caught:
                await request
            assert caught.value.code == "gone"
        assert (await service.round("triage", new[7].id)).status == "learned"
        # The state hash does not depend on dropped rounds.
        now, complete = await service.state_hash(), await using(where, verify)
        assert (complete.hash, complete.state.order[0].ledger.first) == (now.hash, 0)
        await report_all([new[0], waiting])
        after = await service.state_hash()
        assert (await using(where, verify)).hash == after.hash
    async with running(where) as service:  # from a snapshot without the dropped rounds
        await service.cascade("triage")  # loads it
        assert service.state.order[0].ledger.first == BLOCK
        assert await service.state_hash() == after
        await compact_all(where)
        await play(service, 1)
        await until(lambda: service.state.order[0].ledger.first == 2 * BLOCK)
        after = await service.state_hash()
    assert await hash_of(where) == after.hash


async def test_labels_of_compacted_rounds_are_no_longer_requested(where: str) -> None:
    policy = {"kind": "uss-laplace", "labels": 12}
    async with running(where) as service:
        await service.create(CascadeSpec("triage", ARMS, 2, policy=policy), None)

        async def disagree(rounds: int) -> list[str]:
            opened = [await open_round(service, [0.1, 0.2]) for _ in range(rounds)]
            for round_ in opened:
                assert await report(service, round_, lambda arm: arm) == "learned"
            return [round_.id for round_ in opened]

        await disagree(3)
        assert (await requested_labels(service, "triage")).wanted == 3
        await compact_all(where)
        assert await requested_labels(service, "triage") == WantedLabels(0, [])
        ids = await disagree(2)
        requests = await requested_labels(service, "triage")
        assert (requests.wanted, [request.id for request in requests.rounds]) == (2, ids)
        view = service.state.cascade("triage").view()
        assert (view.labels_wanted, detail(service.state.cascade("triage"))["wanted"]) == (2, 2)
        await compact_all(where)
        after = await service.state_hash()
    async with running(where) as service:
        assert (await service.cascade("triage")).labels_wanted == 0
        assert await service.state_hash() == after


async def test_compaction_while_the_service_writes(where: str) -> None:
    async with running(where, snapshot_every=20) as service:
        await play_sample(service)
        writing = asyncio.create_task(play(service, 60, seed=9))
        for _ in range(3):
            await compact_all(where)
        await writing
        after = (await service.state_hash()).hash
    assert await hash_of(where) == after


async def test_events_that_replicas_may_be_reading_are_kept(postgres: str) -> None:
    async with running(postgres) as service:
        await service.create(TRIAGE, None)
    assert (await using(postgres, lambda store: plan(store, keep_days=0))).events == 0


async def test_a_damaged_log_or_snapshot_is_not_compacted(sqlite: SampleLog) -> None:
    async with open_existing_store(sqlite.where) as store:
        planned = await plan(store, keep_days=0, now=time.time() + LATER)
        planned.verified.state.order[0].ledger.learned += 1  # simulates a memory error
        with pytest.raises(CorruptLogError):
            await compact(store, planned)
    change(sqlite.where, "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 7))
    with pytest.raises(CorruptLogError, match="events 7 to 7"):
        await compact_all(sqlite.where)
    blocks = await using(sqlite.where, blocks_of)
    assert sum(block.count for block in blocks) == planned.events


async def test_compaction_shrinks_the_file(tmp_path: Path) -> None:
    where = tmp_path / "log.db"
    async with running(str(where)) as service:
        await service.create(TRIAGE, None)
        for k in range(40):
            contexts: list[Any] = [[k / 40, n / 500] for n in range(500)]
            await service.open_rounds("triage", BatchRequest(contexts), f"batch {k}")
    before = where.stat().st_size
    size = sum(len(block.payload) for block in await using(str(where), blocks_of))
    await compact_all(str(where))
    assert size > 300_000
    assert where.stat().st_size < before - 0.9 * size


@pytest.mark.parametrize("method", ["VACUUM INTO", ".backup"])
async def test_a_service_starts_from_a_backup(tmp_path: Path, method: str) -> None:
    """As in docs/backup.md; the copy is written while the service runs."""
    where, copy = str(tmp_path / "log.db"), str(tmp_path / "copy.db")
    async with running(where) as service:
        await play_sample(service)
        before = await service.state_hash()
        with closing(sqlite3.connect(where)) as source, closing(sqlite3.connect(copy)) as target:
            if method == ".backup":
                source.backup(target)  # as the shell command does
            else:
                source.execute("VACUUM INTO ?", (copy,))
        await play(service, 5)  # the original continues
    verified = await using(copy, verify)
    assert (verified.end, verified.hash) == (before.position, before.hash)
    async with running(copy) as service:
        assert await service.state_hash() == before
        await play(service, 1)
