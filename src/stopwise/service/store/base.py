"""What a store of the event log must do, whichever database it is.

Events are kept in blocks: a block is what was committed together. Blocks are numbered by the
position of their first event, which is the only order there is, and each carries the digest of
itself and all before it.
"""

from collections.abc import AsyncIterable, AsyncIterator
from hashlib import blake2b
from typing import ClassVar, Protocol

import msgspec

START = bytes(16)  # the digest before the first block


class Block(msgspec.Struct, frozen=True):
    """Events that were committed together.

    Attributes
    ----------
    base : int
        Position of its first event; the log's first event has position 1.
    count : int
        How many events it holds.
    time : float
        When it was written, in seconds since 1970.
    digest : bytes
        Of this payload and, through the digest before it, of the whole log up to here.
    payload : bytes
        The events, encoded.
    """

    base: int
    count: int
    time: float
    digest: bytes
    payload: bytes

    @property
    def end(self) -> int:
        """Position of its last event."""
        return self.base + self.count - 1


class Snapshot(msgspec.Struct, frozen=True):
    """The whole state after an event, from which recovery may begin.

    Attributes
    ----------
    position : int
        The last event that it contains.
    digest : bytes
        The log's digest there.
    payload : bytes
        The state, encoded.
    """

    position: int
    digest: bytes
    payload: bytes


def chained(before: bytes, payload: bytes) -> bytes:
    """Return the digest of a log whose digest was ``before`` and which goes on with ``payload``.

    Examples
    --------
    >>> chained(START, b"one") == chained(START, b"one")
    True
    >>> chained(START, b"one") == chained(START, b"two")
    False
    """
    return blake2b(before + payload, digest_size=16).digest()


class Store(Protocol):
    """A log of events that only grows, and the snapshots of what it amounts to.

    One task uses a store at a time. Failures to reach or to write it raise `StoreError`; what
    a failed `commit` left is found out by the next `begin`.

    Attributes
    ----------
    shared : bool
        Whether others may append to the same log.
    """

    shared: ClassVar[bool]

    async def open(self) -> None:
        """Connect, and make the tables if there are none."""
        ...

    async def close(self) -> None:
        """Disconnect; may be called twice."""
        ...

    async def begin(self, after: int) -> list[Block]:
        """Take the right to append; return the blocks beyond position ``after``.

        Nobody else can append until `commit` or `release`, or until this connection is lost.
        """
        ...

    async def commit(self, block: Block) -> None:
        """Append a block durably and give up the right; it must begin where the log ends."""
        ...

    async def release(self) -> None:
        """Give up the right without appending."""
        ...

    def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks beyond position ``after`` in order, without holding anything up."""
        ...

    async def block_of(self, position: int) -> Block | None:
        """Return the block that holds an event; None if it was compacted away or is to come."""
        ...

    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the digest there; (0, START) if none."""
        ...

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        """Return the newest whole snapshot, or the newest not beyond a position."""
        ...

    async def snapshots(self) -> list[int]:
        """Return the positions of the whole snapshots, in order."""
        ...

    async def keep_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot, then drop all but the newest ``keep``.

        Written in parts, between which others may append, so that commits need not wait long.
        """
        ...

    async def drop_before(self, position: int) -> int:
        """Forget the blocks that end at or before a position; return how many events went."""
        ...

    async def fill(self, after: int, digest: bytes, blocks: AsyncIterable[list[Block]]) -> None:
        """Append blocks of a copy of a log, some at a time, but all of them or none.

        They follow position ``after``, where ``digest`` is the log's: the end of this one, or, if
        it is empty, the place at which it shall begin, as one that was compacted does. Nobody sees
        or appends any until the last of them is there.
        """
        ...
