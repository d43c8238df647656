"""What a store of the event log must do, whichever database it is."""

from collections.abc import AsyncIterator
from typing import ClassVar, Protocol

import msgspec

from stopwise.service.events import Block


class Snapshot(msgspec.Struct, frozen=True):
    """The encoded state after an event."""

    position: int  # of that event
    digest: bytes  # of the log there
    parts: tuple[bytes, ...]  # at least one, each of at most 4 MB: they are written one by one


class EventStore(Protocol):
    """An append-only log of events, and snapshots of the state; one task uses it at a time.

    Where it cannot be reached or written, `StoreError` is raised. Whether a failed `commit` was
    stored is known after the next `begin`.
    """

    shared: ClassVar[bool]  # whether other processes may append to the same log

    async def open(self) -> None:
        """Connect, and create the tables if there are none."""
        ...

    async def close(self) -> None:
        """Disconnect; may be called twice."""
        ...

    async def begin(self, after: int) -> list[Block]:
        """Acquire the right to append until `commit` or `release`, or until the connection is lost.

        Return the blocks after position ``after``.
        """
        ...

    async def commit(self, block: Block) -> None:
        """Append a block durably and release the right; it must begin where the log ends."""
        ...

    async def release(self) -> None:
        """Release the right without appending."""
        ...

    def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks after position ``after`` in order, without blocking writers."""
        ...

    async def block_of(self, position: int) -> Block | None:
        """Return the block that holds an event; None if it was compacted or does not exist yet."""
        ...

    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the digest there; (0, START) if none."""
        ...

    async def recorded_end(self) -> tuple[int, bytes] | None:
        """Return an end recorded outside of the log, if there is one: the log reaches that far.

        Where a service may be writing, call this before `end`.
        """
        ...

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        """Return the newest complete snapshot, or the newest not after a position."""
        ...

    async def snapshots(self) -> list[int]:
        """Return the positions of the complete snapshots, in order."""
        ...

    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot, part by part between commits; then delete all but ``keep``."""
        ...

    async def drop_before(self, position: int) -> int:
        """Delete the blocks that end at or before a position; return the number of events."""
        ...
