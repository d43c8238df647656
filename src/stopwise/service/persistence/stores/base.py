"""What a store of the event log must do, and what all SQL stores share."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec

from stopwise.service.persistence.blocks import START, Block

FORMAT = 2  # of the tables; other formats are refused
COLUMNS = "base, count, time, digest, payload"  # of a block
PAGE_BLOCKS = 1_000  # blocks that are read together, at most
PAGE_BYTES = 256 << 10  # fewer, if they have more bytes than this: one or two thousand events


class Snapshot(msgspec.Struct, frozen=True):
    """The encoded state after an event."""

    position: int  # of that event
    digest: bytes  # of the log there
    parts: tuple[bytes, ...]  # at least one, each of at most 256 kB: they are written one by one


class EventStore(ABC):
    """An append-only log of events, and snapshots of the state; one task uses it at a time.

    Where it cannot be reached or written, `StoreError` is raised. Whether a failed `commit` was
    stored is known after the next `begin`.
    """

    shared: ClassVar[bool]  # whether other processes may append to the same log
    _table: ClassVar[str]  # of the blocks

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the tables if there are none."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; may be called twice."""

    @abstractmethod
    async def begin(self, after: int) -> list[Block]:
        """Acquire the append lock until `commit` or `release`, or until the connection is lost.

        Return the blocks after position ``after``.
        """

    @abstractmethod
    async def commit(self, block: Block) -> None:
        """Append a block durably and release the lock; the block must begin where the log ends."""

    @abstractmethod
    async def release(self) -> None:
        """Release the lock without appending."""

    @abstractmethod
    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the digest there; (0, START) if none."""

    async def recorded_end(self) -> tuple[int, bytes] | None:
        """Return an end recorded outside of the log, if any: a shorter log has lost events.

        Where a service may be writing, call this before `end`.
        """
        return None

    @abstractmethod
    async def snapshots(self) -> list[int]:
        """Return the positions of the complete snapshots, in order."""

    @abstractmethod
    async def snapshot(self, position: int) -> Snapshot | None:
        """Return a complete snapshot; None if there is none, or no longer."""

    @abstractmethod
    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot, part by part between commits; then delete all but ``keep``."""

    async def claim_snapshot(self) -> bool:
        """Return whether no other process writes a snapshot now; none does until `close`."""
        return True

    @abstractmethod
    async def drop_before(self, position: int) -> None:
        """Delete the blocks that end at or before a position."""

    @abstractmethod
    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement as a transaction of its own; return its rows."""

    async def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks after position ``after`` in order, without blocking writers."""
        async for blocks in self.pages(after):
            for block in blocks:
                yield block

    async def pages(self, after: int) -> AsyncIterator[list[Block]]:
        """Yield the same blocks, many at a time."""
        page = f"""
            SELECT {COLUMNS} FROM {self._table} WHERE base IN (
                SELECT base FROM (
                    SELECT base, sum(size) OVER (ORDER BY base) - size AS ahead FROM (
                        SELECT base, length(payload) AS size FROM {self._table}
                        WHERE base > ? ORDER BY base LIMIT ?) AS following) AS page
                WHERE ahead < ?)
            ORDER BY base
        """
        while rows := await self._rows(page, after, PAGE_BLOCKS, PAGE_BYTES):
            blocks = [Block(*row) for row in rows]
            after = blocks[-1].end
            yield blocks

    async def block_of(self, position: int) -> Block | None:
        """Return the block that holds an event; None if it was compacted or does not exist yet."""
        query = f"SELECT {COLUMNS} FROM {self._table} WHERE base <= ? ORDER BY base DESC LIMIT 1"
        found = [Block(*row) for row in await self._rows(query, position)]
        return found[0] if found and position <= found[0].end else None

    async def first(self) -> int | None:
        """Return the position of the first event that is there."""
        return (await self._rows(f"SELECT min(base) FROM {self._table}"))[0][0]

    async def lost_events(self, known: int = 0) -> str:
        """Return what the log has lost, in words; ``known`` is an event that it must have."""
        position, expected = await self.recorded_end() or (0, START)
        end, digest = await self.end()  # asked last: a running service may append at any moment
        if (known := max(known, position)) > end:
            return f"acknowledged events up to {known} are missing: the log ends with event {end}"
        if position < end:
            block = await self.block_of(position)
            digest = expected if block is None else block.digest  # None: compacted away
        return "" if digest == expected else f"event {position} is not the acknowledged one"
