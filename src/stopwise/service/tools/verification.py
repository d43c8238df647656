"""Verify an event log by applying all of its events again."""

from collections import Counter
from typing import Literal, TypeAlias

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.progress import Progress, no_progress
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import apply_block, events_of
from stopwise.service.persistence.snapshots import restore_snapshot, state_hash
from stopwise.service.persistence.stores.base import EventStore, Snapshot
from stopwise.service.tools import log_reader

# "not compared": another version wrote the snapshot, or the events before it were deleted.
Comparison: TypeAlias = Literal["equal", "not compared"]


class Verified(msgspec.Struct, frozen=True):
    """The result of verifying an undamaged log."""

    first: int  # position of the first event
    end: int  # position of the last event
    applied: int  # number of events applied after the initial snapshot of a compacted log
    state: State  # at the end
    hash: str  # of that state
    snapshots: dict[int, Comparison]  # by position
    divergences: dict[str, int]  # by cascade: decisions that this version makes differently
    times: list[float]  # of the first and the last block


async def verify(store: EventStore, progress: Progress = no_progress) -> Verified:
    """Verify a log; raise `CorruptLogError` at the first damage."""
    start = await log_reader.start_of(store)
    state = start.state
    initial = state.position
    await log_reader.check_end(store)
    divergences_before = _divergences(state)
    pending = await store.snapshots()
    comparisons: dict[int, Comparison] = {}
    times: list[float] = []

    async def compare_snapshots() -> None:
        while pending and pending[0] <= state.position:
            position = pending.pop(0)
            snapshot = await store.snapshot(position)
            if snapshot is not None:  # None: deleted since it was listed
                comparisons[position] = _compare(snapshot, state, initial)

    await compare_snapshots()  # a log may consist of a snapshot alone
    async for block in log_reader.checked_blocks(store, start):
        times = [*times[:1], block.time]
        if block.end == initial and block.digest != state.log_digest:
            raise CorruptLogError(f"the snapshot at event {initial} is not from this log")
        if block.end <= initial:
            events_of(block)  # the state includes them; only check that they can be decoded
        else:
            apply_block(state, block)
            await compare_snapshots()
        progress("verifying", block.end, start.end)
    return Verified(
        start.first,
        start.end,
        start.end - initial,
        state,
        state_hash(state),
        comparisons,
        _divergences(state) - divergences_before,
        times,
    )


def _divergences(state: State) -> Counter[str]:
    return Counter({cascade.spec.name: cascade.divergences for cascade in state.order})


def _compare(snapshot: Snapshot, state: State, initial: int) -> Comparison:
    position = snapshot.position
    restored = restore_snapshot(snapshot)
    if restored is None or position < initial:
        return "not compared"
    if (position, snapshot.digest) != (state.position, state.log_digest):
        raise CorruptLogError(f"the snapshot at event {position} is not from this log")
    if state_hash(restored) != state_hash(state):
        raise CorruptLogError(
            f"the snapshot at event {position} differs from the state after that event"
        )
    return "equal"
