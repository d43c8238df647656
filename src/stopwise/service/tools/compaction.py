"""Delete old events whose effect a snapshot preserves."""

import time

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.progress import Progress, no_progress
from stopwise.service.persistence.blocks import apply_block
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash, take_snapshot
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.tools import log_reader
from stopwise.service.tools.verification import Verified, verify

DAY = 86_400.0
BATCH_EVENTS = 20_000  # events deleted in one statement; the service commits in between
REPLICA_MARGIN = 60.0  # seconds; replicas may still be reading events this recent (heuristic)


class Plan(msgspec.Struct, frozen=True):
    """The events that compacting a log would delete."""

    verified: Verified
    cut: int  # position of the last event to delete; 0 if none is old enough
    events: int
    until: float  # when the last of them was written, in seconds since 1970


async def plan(
    store: EventStore, keep_days: float, now: float | None = None, progress: Progress = no_progress
) -> Plan:
    """Verify a log and select the events older than ``keep_days`` days."""
    verified = await verify(store, progress)
    keep_seconds = max(keep_days * DAY, REPLICA_MARGIN if store.shared else 0.0)
    oldest = (now or time.time()) - keep_seconds
    cut = 0
    until = 0.0
    events = 0
    async for block in store.read(0):
        if block.time >= oldest or block.end > verified.end:
            break
        cut = block.end
        until = block.time
        events += block.count
    return Plan(verified, cut, events, until)


async def compact(store: EventStore, plan: Plan, progress: Progress = no_progress) -> int:
    """Delete the events of a plan; return the position of the snapshot that replaces them."""
    state = plan.verified.state
    if max(await store.snapshots(), default=0) < plan.cut:
        await store.save_snapshot(take_snapshot(state))
    snapshot = await store.snapshot(max(await store.snapshots(), default=0))
    restored = None if snapshot is None else restore_snapshot(snapshot)
    if snapshot is None or restored is None or restored.position < plan.cut:
        raise CorruptLogError("the newest snapshot is unreadable or too old; nothing was deleted")
    async for block in log_reader.blocks_between(store, restored.position, state.position):
        apply_block(restored, block)
    # A running service may have written a snapshot at a later position.
    if restored.position <= state.position and state_hash(restored) != state_hash(state):
        raise CorruptLogError(
            "the newest snapshot does not reproduce the verified state; nothing was deleted"
        )
    first = plan.verified.first
    for position in (*range(first + BATCH_EVENTS, plan.cut, BATCH_EVENTS), plan.cut):
        await store.drop_before(position)
        progress("deleting", position - first, plan.cut - first)
    return snapshot.position
