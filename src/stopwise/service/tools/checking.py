"""Apply the events of a log again, to check it; delete old events, whose state a snapshot keeps."""

import time
from collections import Counter
from typing import Literal

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.progress import Progress, no_progress
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import apply_block, events_of
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash, take_snapshot
from stopwise.service.persistence.stores.base import EventStore, Snapshot
from stopwise.service.tools import reading

# Not compared: another version wrote the snapshot, or the events before it are gone.
Compared = Literal["equal", "not compared"]
DAY = 86_400.0
STEP = 20_000  # events deleted at once: others commit in between
FOLLOWED = 60.0  # seconds: replicas that share a log may still be reading (heuristic)


class Verified(msgspec.Struct, frozen=True):
    """A log without damage."""

    first: int
    end: int
    applied: int  # events; those before the first snapshot of a compacted log are only read
    state: State  # at the end, and its hash
    hash: str
    snapshots: dict[int, Compared]  # by position
    divergences: dict[str, int]  # by cascade: decisions that this version would make otherwise
    times: list[float]  # of the first and the last block


async def verify(store: EventStore, progress: Progress = no_progress) -> Verified:
    """Check a log; raise `CorruptLogError` at the first damage."""
    start = await reading.start_of(store)
    state, began = start.state, start.state.position
    await reading.check_end(store)
    before = Counter({one.spec.name: one.divergences for one in state.order})
    due, found, times = await store.snapshots(), dict[int, Compared](), list[float]()

    async def compare() -> None:
        while due and due[0] <= state.position:
            position = due.pop(0)
            if (snapshot := await store.snapshot(position)) is not None:  # else: deleted meanwhile
                found[position] = _compared(snapshot, state, began)

    await compare()  # a log may have nothing but a snapshot
    async for block in reading.checked_blocks(store, start):
        times = [*times[:1], block.time]
        if block.end == began and block.digest != state.log_digest:
            raise CorruptLogError(f"the snapshot at event {began} is not one of this log")
        if block.end <= began:
            events_of(block)  # which must be readable; the state has them
        else:
            apply_block(state, block)
            await compare()
        progress("checking", block.end, start.end)
    diverged = Counter({one.spec.name: one.divergences for one in state.order}) - before
    applied, hash_ = start.end - began, state_hash(state)
    return Verified(start.first, start.end, applied, state, hash_, found, diverged, times)


def _compared(snapshot: Snapshot, state: State, began: int) -> Compared:
    stored, position = restore_snapshot(snapshot), snapshot.position
    if stored is None or position < began:
        return "not compared"
    if (position, snapshot.digest) != (state.position, state.log_digest):
        raise CorruptLogError(f"the snapshot at event {position} is not one of this log")
    if state_hash(stored) != state_hash(state):
        raise CorruptLogError(f"the snapshot at event {position} is not the state after that event")
    return "equal"


class Plan(msgspec.Struct, frozen=True):
    """What compacting a log would delete."""

    verified: Verified
    cut: int  # the last event to delete; 0: none is old enough
    events: int
    until: float  # when the last of them was written, in seconds since 1970


async def plan(
    store: EventStore, keep_days: float, now: float | None = None, progress: Progress = no_progress
) -> Plan:
    """Check a log, and find the events that are older than some days."""
    verified = await verify(store, progress)
    oldest = (now or time.time()) - max(keep_days * DAY, FOLLOWED if store.shared else 0.0)
    cut, until, events = 0, 0.0, 0
    async for block in store.read(0):
        if block.time >= oldest or block.end > verified.end:
            break
        cut, until, events = block.end, block.time, events + block.count
    return Plan(verified, cut, events, until)


async def compact(store: EventStore, planned: Plan, progress: Progress = no_progress) -> int:
    """Delete the events of a plan; return the position of the snapshot that replaces them."""
    state, cut, first = planned.verified.state, planned.cut, planned.verified.first
    if max(await store.snapshots(), default=0) < cut:
        await store.save_snapshot(take_snapshot(state))
    snapshot = await store.snapshot(max(await store.snapshots(), default=0))
    stored = None if snapshot is None else restore_snapshot(snapshot)
    if snapshot is not None and stored is not None and stored.position >= cut:
        async for block in reading.blocks_between(store, stored.position, state.position):
            apply_block(stored, block)
        # At a later position, a running service has written it.
        if stored.position > state.position or state_hash(stored) == state_hash(state):
            for upto in (*range(first + STEP, cut, STEP), cut):
                await store.drop_before(upto)
                progress("deleting", upto - first, cut - first)
            return snapshot.position
    raise CorruptLogError("the newest snapshot does not give this state; nothing was deleted")
