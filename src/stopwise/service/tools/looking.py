"""What a log holds, at a glance."""

import msgspec

from stopwise.service.state import State
from stopwise.service.store.base import Store
from stopwise.service.store.sqlite import SqliteStore
from stopwise.service.tools.folding import Progress, between, no_progress, read_events, state_of

KINDS: tuple[str, ...] = (
    "created",
    "retired",
    "decided",
    "told",
    "started",
    "stepped",
    "ended",
    "labelled",
)


class Sight(msgspec.Struct, frozen=True):
    """What a log holds.

    Attributes
    ----------
    first, end : int
        Positions of its first and last event.
    blocks : int
        In which they were committed.
    kinds : dict of str to int
        Events by kind.
    bytes : int
        Of all events.
    file : int or None
        Size of the SQLite file and what lies beside it.
    began, ended : float or None
        When the first and the last event was written, in seconds since 1970.
    snapshots : dict of int to int
        By position, their bytes.
    state : State
        What it amounts to.
    """

    first: int
    end: int
    blocks: int
    kinds: dict[str, int]
    bytes: int
    file: int | None
    began: float | None
    ended: float | None
    snapshots: dict[int, int]
    state: State


async def look(store: Store, progress: Progress = no_progress) -> Sight:
    """Count what a log holds."""
    state = await state_of(store, progress)
    kinds: dict[str, int] = dict.fromkeys(KINDS, 0)
    first, blocks, size = state.position + 1, 0, 0
    began = ended = None
    async for block in between(store, 0, state.position):
        first = min(first, block.base)
        blocks += 1
        size += len(block.payload)
        began, ended = block.time if began is None else began, block.time
        for event in read_events(block):
            kinds[type(event).__name__.lower()] += 1
        progress("counting", block.end, state.position)
    snapshots: dict[int, int] = {}
    for position in await store.snapshots():
        snapshot = await store.latest_snapshot(position)
        if snapshot is not None and snapshot.position == position:
            snapshots[position] = len(snapshot.payload)
    return Sight(
        first,
        state.position,
        blocks,
        kinds,
        size,
        _file_size(store),
        began,
        ended,
        snapshots,
        state,
    )


def _file_size(store: Store) -> int | None:
    if not isinstance(store, SqliteStore):
        return None
    files = (store.path.with_name(store.path.name + end) for end in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
