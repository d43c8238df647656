"""Recovery: the newest snapshot, then every event since; so the next snapshot is written, too.

It is written in a process of its own: no request waits while a state is copied, and no replica
needs all of it. ``python -m`` runs this module; the address of the store, which may contain a
password, comes on stdin.
"""

import asyncio
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from stopwise.errors import CorruptLogError, StopwiseError, StoreError
from stopwise.progress import Progress, no_progress
from stopwise.service.child_process import run_child
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import apply_blocks
from stopwise.service.persistence.snapshots import restore_snapshot, take_snapshot
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.server_log import LOG

ATTEMPTS = 5


async def recover_state(
    store: EventStore,
    follows: Collection[str] | None = None,
    progress: Progress = no_progress,
    *,
    isolate_failures: bool = False,
) -> State:
    """Return the state at the end of the log, from the newest snapshot and the events since.

    ``follows`` are the cascades whose events are applied (None: all). ``progress`` is called as
    ``progress("reading", position, end)``. ``isolate_failures``: see `State`.
    """
    end = 0
    for _ in range(ATTEMPTS):  # the log may be compacted while it is read
        end, _ = await store.end()
        state = await from_snapshot(store, follows, isolate_failures=isolate_failures)
        async for blocks in store.pages(state.position):
            base = blocks[0].base
            if base > state.position + 1:
                if max(await store.snapshots(), default=0) >= base - 1:
                    break  # compacted to a newer snapshot
                raise CorruptLogError(
                    f"the log goes on at event {base} where {state.position + 1} should be, "
                    "and this version of Stopwise can read no snapshot of the events between: "
                    "restore a backup, or use the version that wrote the log"
                )
            # In a thread: health checks are answered meanwhile.
            await asyncio.to_thread(apply_blocks, state, blocks)
            progress("reading", state.position, end)
        if state.position >= end:
            first = await store.first() or state.position + 1
            await asyncio.to_thread(state.forget, first)
            return state
    raise CorruptLogError(
        f"the log has {end} events, and this version of Stopwise can read no snapshot of them: "
        "restore a backup, or use the version that wrote the log"
    )


async def from_snapshot(
    store: EventStore,
    follows: Collection[str] | None = None,
    *,
    isolate_failures: bool = False,
) -> State:
    """Return the state of the newest snapshot that belongs to this log; empty if none."""
    restored = partial(restore_snapshot, isolate_failures=isolate_failures)
    for position in reversed(await store.snapshots()):
        snapshot = await store.snapshot(position)
        try:
            if snapshot is None:
                continue
            state = await asyncio.to_thread(restored, snapshot, follows)
            if state is not None:
                await _check(store, state)
                return state
        except StopwiseError as error:  # the log has it all: start before it
            LOG.warning("a snapshot is skipped", extra={"reason": str(error)})
    return State(follows, isolate_failures=isolate_failures)


async def _check(store: EventStore, state: State) -> None:
    """Refuse a snapshot that does not belong to the log."""
    end, _ = await store.end()
    if state.position > end:
        raise CorruptLogError(
            f"the snapshot at event {state.position} is of more than the log's {end} events"
        )
    block = await store.block_of(state.position)
    if block is not None and block.end == state.position and block.digest != state.log_digest:
        raise CorruptLogError(f"the snapshot at event {state.position} is of another log")


async def write_snapshot(where: str, state: State | None = None) -> int:
    """Write a snapshot of a log or of the state at its end; return its position, 0 if others do."""
    async with open_existing_store(where) as store:
        if not await store.claim_snapshot():
            return 0
        snapshot = take_snapshot(state or await recover_state(store))
        restore_snapshot(snapshot)  # it must be readable, since it replaces an older one that is
        await store.save_snapshot(snapshot)
        return snapshot.position


async def snapshot_process(where: str) -> int:
    """Run `write_snapshot` in another process, which ends with this call."""
    command = (sys.executable, "-m", "stopwise.service.persistence.recovery")
    finished = await run_child(command, where.encode())
    if finished.status != 0:
        reason = finished.errors.decode().strip()
        raise StoreError(reason or f"it ended with code {finished.status}")
    return int(finished.output)


if __name__ == "__main__":
    with suppress(AttributeError):  # Windows
        os.nice(19)  # requests come first
    try:
        sys.stdout.write(str(asyncio.run(write_snapshot(sys.stdin.read()))))
    except StopwiseError as error:
        sys.exit(str(error))
