"""Snapshots written under load, before and after a kill, equal a fold of all events."""

import asyncio
from pathlib import Path

from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import apply_block
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash, take_snapshot
from stopwise.service.persistence.stores.base import EventStore, Snapshot
from tests.service.durability.load import Load
from tests.service.harness import process
from tests.service.tools.sample_logs import using


async def snapshots_in(store: EventStore) -> list[Snapshot]:
    snapshots = [await store.snapshot(position) for position in await store.snapshots()]
    return [snapshot for snapshot in snapshots if snapshot is not None]


async def hash_at(store: EventStore, state: State, position: int) -> str:
    """Apply the events of a log up to a position; return the state hash."""
    async for block in store.read(state.position):
        if block.end > position:
            break
        apply_block(state, block)
    assert state.position == position
    return state_hash(state)


def test_snapshot_under_load_equals_a_fold_of_all_events(tmp_path: Path, where: str) -> None:
    load = Load(3)
    with process(tmp_path, "--snapshot-every", "40", store=where) as server:
        with load.running(server.url):
            while len(asyncio.run(using(where, snapshots_in))) < 2:
                load.wait_for(20, 200, 201)
            server.end()  # possibly while a snapshot is being written
            load.use()
            load.use(server.start())
            load.wait_for(50, 200, 201)
        server.end()

    async def compared(store: EventStore) -> None:
        end, _ = await store.end()
        replayed, all_restored = State(), list[State]()
        for snapshot in await snapshots_in(store):
            restored = restore_snapshot(snapshot)
            assert restored is not None
            assert state_hash(restored) == await hash_at(store, replayed, snapshot.position)
            all_restored.append(restored)
        expected = await hash_at(store, replayed, end)
        for restored in all_restored:
            assert await hash_at(store, restored, end) == expected
            assert take_snapshot(restored) == take_snapshot(replayed)

    asyncio.run(using(where, compared))
