"""Read the blocks of an event log, and check them."""

from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import Block, chain_digest
from stopwise.service.persistence.snapshots import restore_snapshot
from stopwise.service.persistence.stores.base import EventStore
from stopwise.text import suggestion


class Start(msgspec.Struct, frozen=True):
    """The range of events in a log, and the state from which to apply them."""

    state: State  # empty, or from the first usable snapshot of a compacted log
    first: int  # position of the first event; end + 1 if there are none
    end: int  # position of the last event
    digest: bytes  # of the log at the end


async def start_of(store: EventStore) -> Start:
    """Return the range of events in a log, and the state from which to apply them."""
    end, digest = await store.end()
    first = await store.first() or end + 1
    if first == 1:
        return Start(State(), 1, end, digest)
    for position in await store.snapshots():
        snapshot = await store.snapshot(position)
        with suppress(CorruptLogError):  # `verify` reports a damaged snapshot
            state = None if snapshot is None else restore_snapshot(snapshot)
            if state is not None and state.position >= first - 1:
                return Start(state, first, end, digest)
    raise CorruptLogError(
        f"the log begins at event {first}, but no snapshot of the earlier events can be read by "
        "this version of Stopwise; restore a backup"
    )


async def check_end(store: EventStore) -> None:
    """Raise `CorruptLogError` if acknowledged events are missing or differ."""
    if problem := await store.lost_events(max(await store.snapshots(), default=0)):
        raise CorruptLogError(f"{problem}; restore a backup")


async def blocks_between(store: EventStore, after: int, upto: int) -> AsyncIterator[Block]:
    """Yield the blocks after position ``after``, up to position ``upto``."""
    blocks = store.read(after)
    while after < upto:
        block = await anext(blocks, None)
        if block is None or block.base > after + 1:
            next_event = "nothing" if block is None else f"event {block.base}"
            raise CorruptLogError(f"events are missing: {next_event} follows event {after}")
        yield block
        after = block.end


async def checked_blocks(store: EventStore, start: Start) -> AsyncIterator[Block]:
    """Yield every block of a log; raise if one does not match its digest."""
    digest = start.state.log_digest if start.state.position == start.first - 1 else None
    try:
        async for block in blocks_between(store, start.first - 1, start.end):
            # None: the previous block was compacted away, so this one cannot be checked.
            if digest is not None and chain_digest(digest, block.payload) != block.digest:
                raise CorruptLogError(f"events {block.base} to {block.end} were changed")
            digest = block.digest
            yield block
        if digest is not None and digest != start.digest:
            raise CorruptLogError(f"event {start.end}, the last one, was changed")
    except CorruptLogError:
        if (await store.first() or start.end + 1) > start.first:
            raise CorruptLogError("the log was compacted while it was read; try again") from None
        raise


def select_cascade(state: State, name: str | None) -> ServedCascade:
    """Return the cascade called ``name``, or the only cascade if ``name`` is None."""
    if name is None and len(state.order) == 1:
        return state.order[0]
    cascade = state.cascades.get(name or "")
    if cascade is None:
        if not state.cascades:
            raise InvalidParameterError("the log has no cascades")
        if name is None:
            names = ", ".join(state.cascades)
            raise InvalidParameterError(
                f"the log has several cascades; choose one with --cascade: {names}"
            )
        hint = suggestion(name, state.cascades)
        raise InvalidParameterError(f"unknown cascade {name!r}; {hint}")
    return cascade
