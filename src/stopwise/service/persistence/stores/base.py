"""The interface of event stores, and the code that SQL stores share."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec

from stopwise.service.persistence.blocks import START, Block

FORMAT = 2  # of the tables; other formats are rejected
COLUMNS = "base, count, time, digest, payload"  # of a block
PAGE_BLOCKS = 1_000  # maximum number of blocks in a page
PAGE_BYTES = 256 << 10  # maximum size of a page: one or two thousand events


class Snapshot(msgspec.Struct, frozen=True):
    """The encoded state after an event."""

    position: int  # of that event
    digest: bytes  # of the log up to that event
    parts: tuple[bytes, ...]  # at least one, each at most 256 kB, written one at a time


class EventStore(ABC):
    """An append-only log of events with snapshots of the state, used by one task at a time.

    Methods raise `StoreError` if the store cannot be reached or written. After a failed `commit`,
    the next `begin` shows whether the block was stored.
    """

    shared: ClassVar[bool]  # whether other processes may append to the same log
    _table: ClassVar[str]  # of the blocks

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the tables if they do not exist."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; calling it again has no effect."""

    @abstractmethod
    async def begin(self, after: int) -> list[Block]:
        """Acquire the append lock until `commit` or `release`, or until the connection is lost.

        Return the blocks after position ``after``.
        """

    @abstractmethod
    async def commit(self, block: Block) -> None:
        """Append a block durably and release the lock; the block must follow the last event."""

    @abstractmethod
    async def release(self) -> None:
        """Release the lock without appending."""

    @abstractmethod
    async def end(self) -> tuple[int, bytes]:
        """Return the position of the last event and the log's digest; (0, START) if none exists."""

    async def recorded_end(self) -> tuple[int, bytes] | None:
        """Return the position and digest recorded outside of the log; None without a record.

        A log that ends before the recorded position has lost events. If a service may be writing,
        call this method before `end`.
        """
        return None

    @abstractmethod
    async def snapshots(self) -> list[int]:
        """Return the positions of the complete snapshots, in order."""

    @abstractmethod
    async def snapshot(self, position: int) -> Snapshot | None:
        """Return the complete snapshot at a position; None if there is none."""

    @abstractmethod
    async def save_snapshot(self, snapshot: Snapshot, keep: int = 2) -> None:
        """Store a snapshot part by part, between commits; then delete all but the last ``keep``."""

    async def claim_snapshot(self) -> bool:
        """Acquire the right to write snapshots until `close`; return False if it is taken."""
        return True

    @abstractmethod
    async def drop_before(self, position: int) -> None:
        """Delete the blocks that end at or before a position."""

    @abstractmethod
    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement as a separate transaction; return its rows."""

    async def read(self, after: int) -> AsyncIterator[Block]:
        """Yield the blocks after position ``after`` in order, without blocking writers."""
        async for blocks in self.pages(after):
            for block in blocks:
                yield block

    async def pages(self, after: int) -> AsyncIterator[list[Block]]:
        """Yield the blocks after position ``after`` in pages."""
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
        """Return the block that contains an event; None if it was deleted or does not exist yet."""
        query = f"SELECT {COLUMNS} FROM {self._table} WHERE base <= ? ORDER BY base DESC LIMIT 1"
        blocks = [Block(*row) for row in await self._rows(query, position)]
        return blocks[0] if blocks and position <= blocks[0].end else None

    async def first(self) -> int | None:
        """Return the position of the first event in the log; None if the log has no events."""
        return (await self._rows(f"SELECT min(base) FROM {self._table}"))[0][0]

    async def lost_events(self, required: int = 0) -> str:
        """Return a description of lost events, or "" if none up to ``required`` are lost."""
        position, expected = await self.recorded_end() or (0, START)
        end, digest = await self.end()  # last, because a running service may append meanwhile
        required = max(required, position)
        if required > end:
            return f"the log ends at event {end}, but events up to {required} were acknowledged"
        if position < end:
            block = await self.block_of(position)
            digest = expected if block is None else block.digest  # None: compacted
        return "" if digest == expected else f"event {position} differs from the acknowledged one"
