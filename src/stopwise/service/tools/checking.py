"""Apply the events of a log again: to get a state back, and to check the log and its snapshots."""

from collections import Counter
from typing import Literal

import msgspec

from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.service.events import Block, chain_digest, encode
from stopwise.service.state import State
from stopwise.service.store.base import EventStore, Snapshot
from stopwise.service.tools import reading
from stopwise.service.tools.reading import Progress, no_progress


async def rebuild(
    store: EventStore, upto: int | None = None, progress: Progress = no_progress
) -> tuple[State, int]:
    """Apply the events of a log one by one; return the state, and the event before the first.

    That is 0, or the event of the snapshot with which a compacted log begins.
    """
    start = await reading.start_of(store)
    state, end = start.state, start.end if upto is None else upto
    began = state.position
    if not began <= end <= start.end:
        raise InvalidParameterError(f"rebuild up to event {began} to {start.end}, not {end}")
    async for block in reading.blocks_between(store, began, end):
        if block.end <= end:
            state.apply(block)
        else:  # as if the others had not been committed
            events = reading.read_events(block)[: end - block.base + 1]
            payload = encode(events)
            digest = chain_digest(state.log_digest, payload)
            state.apply(Block(block.base, len(events), block.time, digest, payload))
        progress("reading", state.position, end)
    return state, began


# Not compared: another version wrote the snapshot, or the events before it are gone.
Compared = Literal["equal", "not compared"]


class Verified(msgspec.Struct, frozen=True):
    """A log without damage."""

    first: int
    end: int
    applied: int  # events; those before the first snapshot of a compacted log are only read
    hash: str  # of the state at the end
    snapshots: dict[int, Compared]  # by position
    divergences: dict[str, int]  # by cascade: decisions that this version would make otherwise
    times: list[float]  # of the first and the last block


async def verify(store: EventStore, progress: Progress = no_progress) -> Verified:
    """Check a log from beginning to end, and raise `CorruptLogError` at the first damage."""
    await reading.check_end(store)
    start = await reading.start_of(store)
    state, began = start.state, start.state.position
    before = Counter({one.spec.name: one.divergences for one in state.order})
    due, found, times = await store.snapshots(), dict[int, Compared](), list[float]()

    async def compare() -> None:
        while due and due[0] <= state.position:
            position = due.pop(0)
            snapshot = await store.latest_snapshot(position)
            if snapshot is not None and snapshot.position == position:  # else: deleted meanwhile
                found[position] = _compared(snapshot, state, began)

    async for block in reading.checked_blocks(store, start):
        reading.read_events(block)
        times = [*times[:1], block.time]
        if block.end == began and block.digest != state.log_digest:
            raise CorruptLogError(f"the snapshot at event {began} is not one of this log")
        progress("reading", block.end, start.end)
    await compare()
    async for block in reading.blocks_between(store, began, start.end):
        state.apply(block)
        await compare()
        progress("checking", state.position, start.end)
    diverged = Counter({one.spec.name: one.divergences for one in state.order}) - before
    applied, hash_ = start.end - began, state.hash()
    return Verified(start.first, start.end, applied, hash_, found, diverged, times)


def _compared(snapshot: Snapshot, state: State, began: int) -> Compared:
    stored, position = State.restored(snapshot), snapshot.position
    if stored is None or position < began:
        return "not compared"
    if (position, snapshot.digest) != (state.position, state.log_digest):
        raise CorruptLogError(f"the snapshot at event {position} is not one of this log")
    if stored.hash() != state.hash():
        raise CorruptLogError(f"the snapshot at event {position} is not the state after that event")
    return "equal"
