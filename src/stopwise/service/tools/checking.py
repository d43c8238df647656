"""Apply the events of a log again: to get a state back, and to check the log and its snapshots."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.policies.contextual import Contextual
from stopwise.service.events import Block, chained, encode
from stopwise.service.state import State
from stopwise.service.store.base import Snapshot, Store
from stopwise.service.tools import reading

ROUNDING = 1e-6  # relative: much more than rounding does, much less than one round


async def replay(
    store: Store, upto: int | None = None, progress: reading.Progress = reading.no_progress
) -> tuple[State, int]:
    """Apply the events of a log one by one; return the state, and the event before the first.

    That is 0, or the event of the snapshot with which a compacted log begins.
    """
    start = await reading.start_of(store)
    state, end = start.state, start.end if upto is None else upto
    began = state.position
    if not began <= end <= start.end:
        raise InvalidParameterError(f"replay up to event {began} to {start.end}, not {end}")
    async for block in reading.blocks_between(store, began, end):
        if block.end <= end:
            state.apply(block)
        else:  # as if the others had not been committed
            events = reading.read_events(block)[: end - block.base + 1]
            payload = encode(events)
            digest = chained(state.log_digest, payload)
            state.apply(Block(block.base, len(events), block.time, digest, payload))
        progress("reading", state.position, end)
    return state, began


# Not compared: another version wrote the snapshot, or the events before it are gone.
Compared = Literal["equal", "rounded", "not compared"]


class Verified(msgspec.Struct, frozen=True):
    """A log without damage."""

    first: int
    end: int
    applied: int  # events; those before the first snapshot of a compacted log are only read
    hash: str  # of the state at the end
    snapshots: dict[int, Compared]  # by position
    divergences: dict[str, int]  # by cascade: decisions that this machine would make otherwise

    @property
    def exact(self) -> bool:
        """Whether this machine computes, bit for bit, what is in the log."""
        return "rounded" not in self.snapshots.values() and not self.divergences


async def verify(store: Store, progress: reading.Progress = reading.no_progress) -> Verified:
    """Check a log from beginning to end, and raise `CorruptLogError` at the first damage."""
    await reading.check_end(store)
    start = await reading.start_of(store)
    state, began = start.state, start.state.position
    before = Counter({one.spec.name: one.divergences for one in state.order})
    due, found = await store.snapshots(), dict[int, Compared]()

    async def compare() -> None:
        while due and due[0] <= state.position:
            position = due.pop(0)
            snapshot = await store.latest_snapshot(position)
            if snapshot is not None and snapshot.position == position:  # else: deleted meanwhile
                found[position] = _compared(snapshot, state, began)

    async for block in reading.checked_blocks(store, start):
        reading.read_events(block)
        if block.end == began and block.digest != state.log_digest:
            raise CorruptLogError(f"the snapshot at event {began} is not one of this log")
        progress("reading", block.end, start.end)
    await compare()
    async for block in reading.blocks_between(store, began, start.end):
        state.apply(block)
        await compare()
        progress("checking", state.position, start.end)
    diverged = Counter({one.spec.name: one.divergences for one in state.order}) - before
    return Verified(start.first, start.end, start.end - began, state.hash(), found, diverged)


def _compared(snapshot: Snapshot, state: State, began: int) -> Compared:
    kept, position = State.restored(snapshot), snapshot.position
    if kept is None or position < began:
        return "not compared"
    if (position, snapshot.digest) != (state.position, state.log_digest):
        raise CorruptLogError(f"the snapshot at event {position} is not one of this log")
    if kept.hash() == state.hash():
        return "equal"
    if _facts(kept) == _facts(state) and all(map(_close, _numbers(kept), _numbers(state))):
        return "rounded"
    raise CorruptLogError(f"the snapshot at event {position} is not the state after that event")


def _facts(state: State) -> object:
    """Return the parts of a state that do not depend on rounding."""
    every, ledgers = state.order, [learner.ledger for learner in state.order]
    cascades = [(one.spec, one.created, one.status, one.tally) for one in every]
    rounds = [(list(o.open), o.partial, o.labels, o.learned, o.repeats) for o in ledgers]
    columns = [list(one.column_parts()) for one in ledgers]
    return state.time, state.repeats, cascades, rounds, columns


def _numbers(state: State) -> Iterator[NDArray[Any]]:
    """Yield what the policies of a state have learned."""
    for policy in (learner.policy for learner in state.order):
        if not isinstance(policy, Contextual):
            yield from policy.state().values()
            continue
        yield np.array([policy.rounds, policy.audits])
        for pair in policy.cascade.pairs():
            yield np.array(policy.observations(*pair))
            yield policy.gram(*pair)[0]


def _close(a: NDArray[Any], b: NDArray[Any]) -> bool:
    limit = ROUNDING * np.abs(a).max(initial=0.0)
    return a.shape == b.shape and np.allclose(a, b, ROUNDING, limit)
