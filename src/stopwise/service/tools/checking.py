"""Apply the events of a log again: to check it and its snapshots, and to get its state."""

from collections import Counter
from typing import Literal

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.service.events import events_of
from stopwise.service.state import State
from stopwise.service.store.base import EventStore, Snapshot
from stopwise.service.tools import reading
from stopwise.service.tools.reading import Progress, no_progress

# Not compared: another version wrote the snapshot, or the events before it are gone.
Compared = Literal["equal", "not compared"]


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
            state.apply(block)
            await compare()
        progress("checking", block.end, start.end)
    diverged = Counter({one.spec.name: one.divergences for one in state.order}) - before
    applied, hash_ = start.end - began, state.hash()
    return Verified(start.first, start.end, applied, state, hash_, found, diverged, times)


def _compared(snapshot: Snapshot, state: State, began: int) -> Compared:
    stored, position = State.restored(snapshot), snapshot.position
    if stored is None or position < began:
        return "not compared"
    if (position, snapshot.digest) != (state.position, state.log_digest):
        raise CorruptLogError(f"the snapshot at event {position} is not one of this log")
    if stored.hash() != state.hash():
        raise CorruptLogError(f"the snapshot at event {position} is not the state after that event")
    return "equal"
