"""Reading a log by hand, from its first event: what it amounts to, without believing snapshots."""

from collections.abc import AsyncIterator, Callable

import msgspec

from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.service import events as codec
from stopwise.service.events import Event
from stopwise.service.recovery import recovered
from stopwise.service.state import State
from stopwise.service.store.base import START, Block, Store, chained

Progress = Callable[[str, int, int], object]  # stage, done, of


def no_progress(stage: str, done: int, of: int) -> None:
    """Say nothing about how far it is."""


class Beginning(msgspec.Struct, frozen=True):
    """Where a log can be read from.

    Attributes
    ----------
    state : State
        Before the first event that can happen again: empty, or of a snapshot.
    first : int
        Position of the first event that is there; beyond the end if none is.
    end : int
        Position of the last event at the time of asking.
    digest : bytes
        Of the log at ``end``.
    """

    state: State
    first: int
    end: int
    digest: bytes

    @property
    def compacted(self) -> bool:
        """Whether events at the beginning were forgotten."""
        return self.first > 1


async def beginning(store: Store) -> Beginning:
    """Find out where a log begins: with its first event, or, once compacted, with a snapshot.

    Of a compacted log the oldest snapshot is taken: what follows it can be checked.
    """
    end, digest = await store.end()
    first = await _first(store)
    if first is None:
        first = end + 1
    if first == 1:
        return Beginning(State(), 1, end, digest)
    for position in await store.snapshots():
        if position < first - 1:
            continue
        snapshot = await store.latest_snapshot(position)
        state = None if snapshot is None else State.restored(snapshot)
        if state is not None:
            return Beginning(state, first, end, digest)
    raise CorruptLogError(
        f"the log begins at event {first}, and there is no snapshot of what was before that this "
        "version of Stopwise can read"
    )


async def state_of(store: Store, progress: Progress = no_progress) -> State:
    """Return what a service has that starts now: the newest snapshot, and the events since."""
    return await recovered(store, progress=lambda done, of: progress("reading", done, of))


async def fold(
    store: Store,
    start: Beginning,
    *,
    upto: int | None = None,
    progress: Progress = no_progress,
) -> State:
    """Let the events of a log happen again, one after the other.

    Parameters
    ----------
    store : Store
        Of the log.
    start : Beginning
        Where it begins; its state goes on from there.
    upto : int, optional
        Stop after this event; default: the end.
    progress : callable
        Called as ``progress("reading", event, of)``.

    Raises
    ------
    CorruptLogError
        At the first event that cannot be; the message names it.
    InvalidParameterError
        If the log does not reach, or no longer has, the event to stop after.
    """
    state, end = start.state, start.end if upto is None else upto
    if end > start.end:
        raise InvalidParameterError(f"the log has {start.end:,} events, and so no event {end:,}")
    if end < state.position:
        raise InvalidParameterError(
            f"the log was compacted: it can be read again after event {state.position:,}, not at "
            f"{end:,}"
        )
    async for block in between(store, state.position, end):
        if block.end <= end:
            state.apply(block)
        else:
            _apply_some(state, block, end)
        progress("reading", state.position, end)
    check_reached(state.position, end)
    return state


def _apply_some(state: State, block: Block, upto: int) -> None:
    """Let the first events of a block happen, as if nothing had been committed with them."""
    Chain(state.position, state.log_digest).add(block)
    events = read_events(block)[: upto - state.position]
    payload = codec.encode(events)
    digest = chained(state.log_digest, payload)
    state.apply(Block(block.base, len(events), block.time, digest, payload))


async def between(store: Store, after: int, upto: int) -> AsyncIterator[Block]:
    """Yield the blocks with events beyond one position and up to another."""
    if after >= upto:
        return
    blocks = store.read(after)
    async for block in blocks:
        if block.base > upto:
            return
        yield block
        if block.end >= upto:
            return


async def whole(store: Store, start: Beginning, upto: int, digest: bytes) -> AsyncIterator[Block]:
    """Yield every block up to a position, where the log has this digest; each is checked.

    Raises
    ------
    CorruptLogError
        If a block is missing, or not what was written, or the log was compacted meanwhile.
    """
    if start.state.position == start.first - 1:
        chain = Chain(start.first - 1, start.state.log_digest)
    else:
        chain = Chain(start.first - 1, None)
    try:
        async for block in between(store, start.first - 1, upto):
            chain.add(block)
            yield block
        check_reached(chain.position, upto)
        if chain.digest is not None and chain.digest != digest:
            raise CorruptLogError(f"the digest at the end, event {upto}, does not match")
        newest = max(await store.snapshots(), default=0)
        if newest > (await store.end())[0]:
            raise CorruptLogError(
                f"there is a snapshot of event {newest}, but the log ends with event {upto}: its "
                "end is missing"
            )
    except CorruptLogError:
        first = await _first(store)
        if first is None or first > start.first:
            raise CorruptLogError("the log was compacted while it was read: try again") from None
        raise


def read_events(block: Block) -> list[Event]:
    """Return the events of a block; whether they are what was written is another's question."""
    try:
        found = codec.decode(block.payload)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(
            f"the block of events {block.base} to {block.end} cannot be read: {error}"
        ) from error
    if len(found) != block.count:
        raise CorruptLogError(f"the block at event {block.base} has lost some of its events")
    return found


class Chain:
    """Checks that blocks follow each other and are what was written, without letting them happen.

    Parameters
    ----------
    after : int
        Position before the first block.
    digest : bytes or None
        The log's digest there; None if nobody knows it any more: then the first block is believed.
    """

    def __init__(self, after: int = 0, digest: bytes | None = START) -> None:
        self.position = after
        self.digest = digest

    def add(self, block: Block) -> None:
        """Check a block."""
        if block.base != self.position + 1:
            raise CorruptLogError(
                f"the log goes on at event {block.base} where {self.position + 1} should be"
            )
        if self.digest is not None and chained(self.digest, block.payload) != block.digest:
            raise CorruptLogError(
                f"the block of events {block.base} to {block.end} is not what was written: its "
                "digest does not match"
            )
        self.position, self.digest = block.end, block.digest


def check_reached(position: int, end: int) -> None:
    """Complain if a log ended before its end."""
    if position < end:
        raise CorruptLogError(
            f"the log breaks off after event {position}, and had {end} when reading began: was it "
            "compacted meanwhile? Then try again"
        )


async def _first(store: Store) -> int | None:
    async for block in store.read(0):
        return block.base
    return None
