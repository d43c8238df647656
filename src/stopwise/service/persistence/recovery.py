"""Recover the state from the newest snapshot and the later events, and write new snapshots.

Snapshots are written in a child process, so that no request waits while the state is encoded and
no replica has to load all cascades. The child runs this module with ``python -m``. It reads the
address of the store from stdin, because the address may contain a password.
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
    """Return the state at the end of the log, from the newest snapshot and the later events.

    ``follows`` are the cascades whose events are applied (None: all). ``progress`` is called as
    ``progress("reading", position, end)``. For ``isolate_failures``, see `State`.
    """
    end = 0
    for _ in range(ATTEMPTS):  # retry if the log is compacted while it is read
        end, _ = await store.end()
        state = await from_snapshot(store, follows, isolate_failures=isolate_failures)
        async for blocks in store.pages(state.position):
            base = blocks[0].base
            if base > state.position + 1:
                if max(await store.snapshots(), default=0) >= base - 1:
                    break  # compacted up to a newer snapshot
                raise CorruptLogError(
                    f"the next event in the log must be {state.position + 1}, got {base}, and no "
                    "snapshot that this version of Stopwise can read includes the missing events; "
                    "restore a backup, or use the version that wrote the log"
                )
            # In a thread, so that health checks are answered meanwhile.
            await asyncio.to_thread(apply_blocks, state, blocks)
            progress("reading", state.position, end)
        if state.position >= end:
            first = await store.first() or state.position + 1
            await asyncio.to_thread(state.forget, first)
            return state
    raise CorruptLogError(
        f"the log ends at event {end}, but no snapshot that this version of Stopwise can "
        "read includes the deleted events; restore a backup, or use the version that wrote the log"
    )


async def from_snapshot(
    store: EventStore,
    follows: Collection[str] | None = None,
    *,
    isolate_failures: bool = False,
) -> State:
    """Return the state of the newest readable snapshot, or an empty state if there is none."""
    restore = partial(restore_snapshot, isolate_failures=isolate_failures)
    for position in reversed(await store.snapshots()):
        snapshot = await store.snapshot(position)
        try:
            if snapshot is None:
                continue
            state = await asyncio.to_thread(restore, snapshot, follows)
            if state is not None:
                await _check(store, state)
                return state
        except StopwiseError as error:  # start from an earlier snapshot or event
            LOG.warning("snapshot skipped", extra={"reason": str(error)})
    return State(follows, isolate_failures=isolate_failures)


async def _check(store: EventStore, state: State) -> None:
    """Raise `CorruptLogError` if ``state``, read from a snapshot, does not belong to the log."""
    end, _ = await store.end()
    if state.position > end:
        raise CorruptLogError(
            f"the snapshot at event {state.position} is newer than the log, which ends at event "
            f"{end}"
        )
    block = await store.block_of(state.position)
    if block is not None and block.end == state.position and block.digest != state.log_digest:
        raise CorruptLogError(f"the snapshot at event {state.position} belongs to another log")


async def write_snapshot(where: str, state: State | None = None) -> int:
    """Write a snapshot of ``state``, by default the state at the end of the log.

    Return the position of the snapshot, or 0 if another process is writing one.
    """
    async with open_existing_store(where) as store:
        if not await store.claim_snapshot():
            return 0
        snapshot = take_snapshot(state or await recover_state(store))
        restore_snapshot(snapshot)  # check that it is readable before it replaces an older one
        await store.save_snapshot(snapshot)
        return snapshot.position


async def snapshot_process(where: str) -> int:
    """Run `write_snapshot` in a child process."""
    command = (sys.executable, "-m", "stopwise.service.persistence.recovery")
    child = await run_child(command, where.encode())
    if child.status != 0:
        reason = child.errors.decode().strip()
        raise StoreError(reason or f"the snapshot process exited with code {child.status}")
    return int(child.output)


if __name__ == "__main__":
    with suppress(AttributeError):  # Windows
        os.nice(19)  # requests have priority
    try:
        sys.stdout.write(str(asyncio.run(write_snapshot(sys.stdin.read()))))
    except StopwiseError as error:
        sys.exit(str(error))
