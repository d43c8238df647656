"""From the log to the state: the newest snapshot, then every event since."""

import asyncio
import logging
from collections.abc import Callable

from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.service.state import State
from stopwise.service.store.base import Store

LOG = logging.getLogger("stopwise.service")
ATTEMPTS = 5
Progress = Callable[[int, int], object]


async def recovered(
    store: Store, *, snapshots: bool = True, progress: Progress = lambda done, of: None
) -> State:
    """Return what the log amounts to.

    Parameters
    ----------
    store : Store
        Of the log.
    snapshots : bool
        Whether to begin at the newest snapshot; else every event there is happens again.
    progress : callable
        Called as ``progress(position, end)`` after every block.
    """
    end = 0
    for _ in range(ATTEMPTS):  # the log may be compacted while it is read
        end, _ = await store.end()
        state = await from_snapshot(store) if snapshots else State()
        whole = True
        async for block in store.read(state.position):
            if block.base > state.position + 1:
                # Compacted: the log begins with a snapshot, whatever was asked for.
                later = await from_snapshot(store)
                if later.position < block.base - 1:
                    raise CorruptLogError(
                        f"the log goes on at event {block.base} where {state.position + 1} should "
                        "be, and there is no snapshot of what was between"
                    )
                if later.position > block.base - 1:
                    whole, snapshots = False, True
                    break
                state = later
            state.apply(block)
            progress(state.position, end)
            await asyncio.sleep(0)  # others have their turn: health checks, above all
        if whole and state.position < end:  # nothing left but a snapshot
            state = await from_snapshot(store)
        if whole and state.position >= end:
            return state
    raise CorruptLogError(
        f"the log has {end} events, and there is no snapshot of them that can be read"
    )


async def from_snapshot(store: Store) -> State:
    """Return the state of the newest snapshot that belongs to this log; empty if none."""
    for position in reversed(await store.snapshots()):
        snapshot = await store.latest_snapshot(position)
        try:
            state = None if snapshot is None else State.restored(snapshot)
            if state is not None:
                await _check(store, state)
        except StopwiseError as error:  # the log is the truth: one can begin before it
            LOG.warning("a snapshot is passed over", extra={"reason": str(error)})
            continue
        if state is not None:
            return state
    return State()


async def _check(store: Store, state: State) -> None:
    """Refuse a snapshot of what is not in the log."""
    end, _ = await store.end()
    if state.position > end:
        raise CorruptLogError(
            f"the snapshot at event {state.position} is of more than the log's {end} events"
        )
    block = await store.block_of(state.position)
    if block is not None and block.end == state.position and block.digest != state.log_digest:
        raise CorruptLogError(f"the snapshot at event {state.position} is of another log")
