"""From the log to the state: the newest snapshot, then every event since."""

import asyncio
import logging
from collections.abc import Callable

from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.service.state import State
from stopwise.service.store.base import Store

LOG = logging.getLogger("stopwise.service")
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
    end, _ = await store.end()
    state = await from_snapshot(store) if snapshots else State()
    async for block in store.read(state.position):
        if block.base != state.position + 1 and state.position == 0:
            # Compacted: the log begins with a snapshot, whatever was asked for.
            state = await from_snapshot(store, at_most=block.base - 1)
            if block.base != state.position + 1:
                raise CorruptLogError(
                    f"the log begins at event {block.base}, and there is no snapshot of what was "
                    "before"
                )
        state.apply(block)
        progress(state.position, end)
        await asyncio.sleep(0)  # others have their turn: health checks, above all
    if state.position < end:  # nothing left but a snapshot
        state = await from_snapshot(store)
    if state.position < end:
        raise CorruptLogError(
            f"the log has {end} events, and there is no snapshot of them that can be read"
        )
    return state


async def from_snapshot(store: Store, at_most: int | None = None) -> State:
    """Return the state of the newest snapshot that this version can read; empty if none."""
    for position in reversed(await store.snapshots()):
        if at_most is not None and position > at_most:
            continue
        snapshot = await store.latest_snapshot(position)
        try:
            state = None if snapshot is None else State.restored(snapshot)
        except StopwiseError as error:  # the log is the truth: one can begin before it
            LOG.warning("a snapshot is passed over", extra={"reason": str(error)})
            continue
        if state is not None:
            return state
    return State()
