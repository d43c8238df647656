"""Forgetting old events: what they amount to stays, in a snapshot.

A service may be running meanwhile. Nothing is forgotten before the whole log was checked, a
snapshot of it is stored, and that snapshot was read back.
"""

import time

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.service.ledger import OPEN
from stopwise.service.state import State
from stopwise.service.store.base import Store
from stopwise.service.tools.folding import Progress, no_progress, state_of
from stopwise.service.tools.verifying import Verified, verify

DAY = 86_400.0
STEP = 20_000  # events dropped at once: others commit in between
# Replicas that share a log may still be reading what was written just now (heuristic: they
# follow within a second).
FOLLOWED = 60.0


class Plan(msgspec.Struct, frozen=True):
    """What compacting a log would forget.

    Attributes
    ----------
    verified : Verified
        The log, which is without damage.
    state : State
        What a service has, starting now.
    cut : int
        The last event to be forgotten; 0 if none is old enough.
    events, bytes : int
        How many are, and what they occupy.
    until : float
        When the last of them was written, in seconds since 1970.
    decisions : int
        Decisions taken in them: no look-ups and no labels any more.
    open : int
        Of these, still waiting for outputs, which may still be told.
    """

    verified: Verified
    state: State
    cut: int
    events: int
    bytes: int
    until: float
    decisions: int
    open: int


class Compacted(msgspec.Struct, frozen=True):
    """A log that was compacted.

    Attributes
    ----------
    events : int
        How many were forgotten.
    snapshot : int
        The event whose snapshot stands for them, and for those up to it.
    written : bool
        Whether that snapshot was written for it.
    """

    events: int
    snapshot: int
    written: bool


async def plan(
    store: Store,
    *,
    keep_days: float,
    now: float | None = None,
    progress: Progress = no_progress,
) -> Plan:
    """Check a log, and find out what of it is older than some days.

    Raises
    ------
    CorruptLogError
        If it is damaged: then nothing may be forgotten.
    """
    verified = await verify(store, progress)
    state = await state_of(store, progress)
    seconds = keep_days * DAY
    if store.shared:
        seconds = max(seconds, FOLLOWED)
    oldest_kept = (time.time() if now is None else now) - seconds
    cut = events = size = 0
    until = 0.0
    async for block in store.read(0):
        if block.time >= oldest_kept or block.end > state.position:
            break
        cut, until = block.end, block.time
        events += block.count
        size += len(block.payload)
    decisions = waiting = 0
    for learner in state.order:
        ledger = learner.ledger
        for number, position in enumerate(ledger.decided_at):
            if position > cut:
                break
            decisions += position >= verified.first
            waiting += ledger.state_of(number) == OPEN and position >= verified.first
    return Plan(verified, state, cut, events, size, until, decisions, waiting)


async def compact(store: Store, planned: Plan, progress: Progress = no_progress) -> Compacted:
    """Forget what was planned.

    Raises
    ------
    CorruptLogError
        If the snapshot does not amount to what the log did; then nothing was forgotten.
    """
    state, cut = planned.state, planned.cut
    newest = max(await store.snapshots(), default=0)
    written = newest < cut
    if written:
        await store.keep_snapshot(state.snapshot())
        newest = state.position
    await _compare(store, newest, state)
    gone, start = 0, planned.verified.first - 1
    for position in (*range(start + STEP, cut, STEP), cut):
        gone += await store.drop_before(position)
        progress("forgetting", position - start, cut - start)
    await _compare(store, newest, state)
    return Compacted(gone, newest, written)


async def _compare(store: Store, position: int, state: State) -> None:
    """Make sure that a service would have the same state from a snapshot as from the log."""
    snapshot = await store.latest_snapshot()
    kept = None if snapshot is None else State.restored(snapshot)
    if snapshot is None or kept is None or snapshot.position < position:
        raise CorruptLogError(
            f"the snapshot at event {position} is not there, or cannot be read; nothing more is "
            "forgotten"
        )
    if snapshot.position > state.position:
        return  # a running service has written a newer one
    async for block in store.read(kept.position):
        if block.end > state.position:
            break
        kept.apply(block)
    if kept.hash() != state.hash():
        raise CorruptLogError(
            f"the snapshot at event {snapshot.position} is not what the log amounts to; nothing "
            "more is forgotten"
        )
