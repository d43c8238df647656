"""Delete the old events of a log; a snapshot keeps the state."""

import time
from functools import partial

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.service.ledger import OPEN
from stopwise.service.recovery import recover_state
from stopwise.service.state import State
from stopwise.service.store.base import EventStore
from stopwise.service.tools import reading
from stopwise.service.tools.checking import Verified, verify
from stopwise.service.tools.reading import Progress, no_progress

DAY = 86_400.0
STEP = 20_000  # events deleted at once: others commit in between
FOLLOWED = 60.0  # seconds: replicas that share a log may still be reading (heuristic)


class Plan(msgspec.Struct, frozen=True):
    """What compacting a log would delete."""

    verified: Verified
    state: State  # of a service that starts now
    cut: int  # the last event to delete; 0: none is old enough
    events: int
    until: float  # when the last of them was written, in seconds since 1970
    rounds: int  # opened in them
    open: int  # of these


async def plan(
    store: EventStore, keep_days: float, now: float | None = None, progress: Progress = no_progress
) -> Plan:
    """Check a log, and find the events that are older than some days."""
    verified = await verify(store, progress)
    state = await recover_state(store, progress=partial(progress, "reading"))
    oldest = (now or time.time()) - max(keep_days * DAY, FOLLOWED if store.shared else 0.0)
    cut, until, events, status = 0, 0.0, 0, bytearray()
    async for block in store.read(0):
        if block.time >= oldest or block.end > state.position:
            break
        cut, until, events = block.end, block.time, events + block.count
    for ledger in (learner.ledger for learner in state.order):
        pairs = zip(ledger.opened_at, ledger.status, strict=True)
        status += bytes(one for opened, one in pairs if verified.first <= opened <= cut)
    return Plan(verified, state, cut, events, until, len(status), status.count(OPEN))


async def compact(store: EventStore, planned: Plan, progress: Progress = no_progress) -> int:
    """Delete the events of a plan; return the position of the snapshot that replaces them."""
    state, cut, first = planned.state, planned.cut, planned.verified.first
    if max(await store.snapshots(), default=0) < cut:
        await store.save_snapshot(state.snapshot())
    snapshot = await store.snapshot(max(await store.snapshots(), default=0))
    stored = None if snapshot is None else State.restored(snapshot)
    if snapshot is not None and stored is not None and stored.position >= cut:
        async for block in reading.blocks_between(store, stored.position, state.position):
            stored.apply(block)
        # At a later position, a running service has written it.
        if stored.position > state.position or stored.hash() == state.hash():
            for upto in (*range(first + STEP, cut, STEP), cut):
                await store.drop_before(upto)
                progress("deleting", upto - first, cut - first)
            return snapshot.position
    raise CorruptLogError("the newest snapshot does not give this state; nothing was deleted")
