"""Copy a log while a service may be writing it, and delete old events."""

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from stopwise.errors import CorruptLogError, InvalidParameterError, StoreError
from stopwise.service.events import START, Block
from stopwise.service.ledger import OPEN
from stopwise.service.recovery import recovered
from stopwise.service.settings import shown_store
from stopwise.service.state import State
from stopwise.service.store import open_store
from stopwise.service.store.base import Store
from stopwise.service.store.sqlite import SqliteStore
from stopwise.service.tools import reading
from stopwise.service.tools.checking import Verified, verify
from stopwise.service.tools.reading import Progress, Start, no_progress

DAY = 86_400.0
STEP = 20_000  # events deleted at once: others commit in between
BYTES = 1 << 20  # of blocks copied at once, at least
FOLLOWED = 60.0  # seconds: replicas that share a log may still be reading (heuristic)


async def backup(where: str, target: Path, progress: Progress = no_progress) -> Start:
    """Copy a log, as it is now, to a new SQLite file; of a damaged one nothing is written."""
    async with reading.existing(where) as source:
        await reading.check_end(source)
        return await _copy_to_file(source, target, False, progress)


async def restore(backup: Path, where: str, progress: Progress = no_progress) -> Start:
    """Copy a backup to a new file, or to a log without events: all of it or nothing."""
    async with reading.existing(str(backup)) as source:
        store = open_store(where)
        if isinstance(store, SqliteStore):
            if store.path.exists():
                async with reading.existing(where) as empty:
                    await _check_empty(empty, where)
            return await _copy_to_file(source, store.path, True, progress)
        try:
            await store.open()
            await _check_empty(store, where)
            return await _copy(source, store, progress)
        finally:
            await store.close()


async def _check_empty(store: Store, where: str) -> None:
    if await store.end() != (0, START):
        raise InvalidParameterError(f"{shown_store(where)} has events; restore to an empty log")
    # A record of events that this log does not have is of the lost log, which is now replaced.
    with suppress(CorruptLogError):
        await store.begin(0)  # fails if another process serves it
    await store.release()


async def _copy_to_file(source: Store, target: Path, replace: bool, progress: Progress) -> Start:
    beside = {end: target.with_name(f"{target.name}-{end}") for end in ("wal", "owner")}
    if beside["wal"].exists():  # SQLite would add it to the copy
        raise InvalidParameterError(f"{beside['wal']} is of another log; move it away")
    with reading.private_file(target, replace=replace) as path:
        store = SqliteStore(path)
        try:
            await store.open()
            start = await _copy(source, store, progress)
        finally:
            await store.close()
        beside["owner"].unlink(missing_ok=True)  # it records the end of the log that was here
    return start


async def _copy(source: Store, target: Store, progress: Progress) -> Start:
    start = await reading.start_of(source)
    snapshot = await source.latest_snapshot(start.end)

    async def batches() -> AsyncIterator[list[Block]]:
        batch, size = list[Block](), 0
        async for block in reading.checked_blocks(source, start):
            batch.append(block)
            size += len(block.payload)
            if size >= BYTES or block.end == start.end:
                yield batch
                progress("copying", block.end, start.end)
                batch, size = [], 0

    known = start.state.position == start.first - 1
    await target.fill(start.first - 1, start.state.log_digest if known else START, batches())
    if snapshot is not None:
        await target.keep_snapshot(snapshot)
    copy = await reading.start_of(target)
    async for block in reading.checked_blocks(target, copy):
        progress("checking the copy", block.end, copy.end)
    same = (copy.first, copy.end, copy.digest) == (start.first, start.end, start.digest)
    if not same or await target.latest_snapshot() != snapshot:
        raise StoreError("the copy differs from the log; do not use it")
    return start


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
    store: Store, keep_days: float, now: float | None = None, progress: Progress = no_progress
) -> Plan:
    """Check a log, and find the events that are older than some days."""
    verified = await verify(store, progress)
    state = await recovered(store, progress=partial(progress, "reading"))
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


async def compact(store: Store, planned: Plan, progress: Progress = no_progress) -> int:
    """Delete the events of a plan; return the position of the snapshot that replaces them."""
    state, cut, first = planned.state, planned.cut, planned.verified.first
    if max(await store.snapshots(), default=0) < cut:
        await store.keep_snapshot(state.snapshot())
    snapshot = await store.latest_snapshot()
    kept = None if snapshot is None else State.restored(snapshot)
    if snapshot is not None and kept is not None and kept.position >= cut:
        async for block in reading.blocks_between(store, kept.position, state.position):
            kept.apply(block)
        # At a later position, a running service has written it.
        if kept.position > state.position or kept.hash() == state.hash():
            for upto in (*range(first + STEP, cut, STEP), cut):
                await store.drop_before(upto)
                progress("deleting", upto - first, cut - first)
            return snapshot.position
    raise CorruptLogError("the newest snapshot does not give this state; nothing was deleted")
