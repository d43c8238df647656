"""The contract of event stores, tested on SQLite and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from stopwise.errors import StoreError
from stopwise.service.persistence.blocks import START, Block, chain_digest
from stopwise.service.persistence.stores.base import EventStore, Snapshot
from stopwise.service.persistence.stores.opening import open_store

BLOB = bytes(range(256)) * 4096  # a megabyte with all byte values


def block_after(before: Block | None, payload: bytes = b"events", count: int = 1) -> Block:
    base, digest = (1, START) if before is None else (before.end + 1, before.digest)
    return Block(base, count, 1e9 + base / 3, chain_digest(digest, payload), payload)


def chain(*counts: int) -> list[Block]:
    blocks: list[Block] = []
    for count in counts:
        payload = b"%d events" % count
        blocks.append(block_after(blocks[-1] if blocks else None, payload, count))
    return blocks


@asynccontextmanager
async def opened(where: str) -> AsyncIterator[EventStore]:
    store = open_store(where)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def append(store: EventStore, *blocks: Block) -> None:
    for block in blocks:
        await store.begin(block.base - 1)
        await store.commit(block)


async def read(store: EventStore, after: int = 0) -> list[Block]:
    return [block async for block in store.read(after)]


async def test_committed_blocks_are_read_after_a_reopen(where: str) -> None:
    blocks = chain(1, 3, 2)

    async with opened(where) as store:
        await append(store, *blocks)
    async with opened(where) as store:
        assert await store.begin(1) == blocks[1:]
        await store.release()
        assert await store.begin(6) == []
        await store.release()
        assert await read(store) == blocks
        assert await read(store, after=1) == blocks[1:]
        assert await read(store, after=6) == []
        assert await store.end() == (6, blocks[-1].digest)
        assert await store.recorded_end() in (None, await store.end())
        by_position = [await store.block_of(position) for position in range(8)]
        assert by_position == [None, blocks[0], *[blocks[1]] * 3, *[blocks[2]] * 2, None]


async def test_append_lock_is_exclusive(where: str) -> None:
    """The second store waits (PostgreSQL) or is rejected (SQLite)."""
    first, second = chain(1, 1)

    async with opened(where) as holder, opened(where) as other:
        await append(holder, first)
        await holder.begin(1)
        task = asyncio.create_task(other.begin(0))
        if not other.shared:
            with pytest.raises(StoreError):
                await task
        # Reading is possible meanwhile, and sees committed blocks only.
        assert await read(other) == [first]
        assert await holder.block_of(1) == first
        assert await holder.end() == (1, first.digest)
        assert task.done() is not other.shared
        await holder.close()  # which releases the lock
        assert await (task if other.shared else other.begin(0)) == [first]
        await other.commit(second)
        assert await read(other) == [first, second]


async def test_block_that_does_not_continue_the_log_is_rejected(where: str) -> None:
    blocks = chain(2, 2, 1)

    async with opened(where) as store:
        for wrong in (block_after(blocks[0]), Block(0, 1, 0.0, START, b"")):
            await store.begin(0)
            with pytest.raises(StoreError):
                await store.commit(wrong)
        await append(store, blocks[0])
        inside = Block(2, 2, 0.0, START, b"")
        for wrong in (blocks[0], inside, blocks[2]):
            await store.begin(2)
            with pytest.raises(StoreError):
                await store.commit(wrong)
        await append(store, *blocks[1:])  # the store still works
        assert await read(store) == blocks


async def test_long_log_is_read_in_order_without_blocking_writers(where: str) -> None:
    async with opened(where) as store, opened(where) as reader:
        blocks = [block_after(None, BLOB[:300_000])]
        for _ in range(29):  # nine megabytes
            blocks.append(block_after(blocks[-1], BLOB[: 300_000 + len(blocks)]))
        await append(store, *blocks)
        late = block_after(blocks[-1])
        result: list[Block] = []
        async for block in reader.read(0):
            if not result:
                await append(store, late)
            result.append(block)
        assert result[:30] == blocks
        assert result[30:] in ([], [late])  # both are correct: it was appended during the read
        assert await read(reader, after=30) == [late]


async def test_only_the_newest_snapshots_are_kept(where: str) -> None:
    saved = {n: Snapshot(n, bytes([n]) * 16, (b"state",)) for n in (3, 5, 9)}

    async with opened(where) as store:
        for position in (3, 5):
            await store.save_snapshot(saved[position])
        assert await store.snapshots() == [3, 5]
        await store.save_snapshot(saved[9])
    async with opened(where) as store:
        assert await store.snapshots() == [5, 9]
        for position in (5, 9):
            assert await store.snapshot(position) == saved[position]
        assert await store.snapshot(3) is None
        await store.save_snapshot(saved[9], keep=1)  # again, as after a restart
        assert await store.snapshots() == [9]
        assert await store.snapshot(9) == saved[9]


async def test_blocks_are_appended_while_a_snapshot_is_written(where: str) -> None:
    snapshot = Snapshot(1, b"d" * 16, (BLOB * 4,) * 5)

    async with opened(where) as store:
        last = block_after(None)
        await append(store, last)
        task = asyncio.create_task(store.save_snapshot(snapshot))
        between = 0
        while not task.done():
            last = block_after(last)
            await append(store, last)
            between += not task.done()
        await task
        assert between >= 2
        assert await store.snapshot(1) == snapshot
        assert (await store.end())[0] == last.end


class Interrupted(tuple[bytes, ...]):
    """Parts of a snapshot whose writing fails after the second part."""

    def __iter__(self) -> Iterator[bytes]:
        yield from self[:2]
        raise KeyError("interrupted")


async def test_incomplete_snapshot_is_ignored(where: str) -> None:
    parts = (b"one", b"two", b"three")
    complete = Snapshot(1, b"d" * 16, (b"state",))
    newer = Snapshot(3, b"f" * 16, (b"newer",))

    async with opened(where) as store:
        await store.save_snapshot(complete)
        with pytest.raises(KeyError):
            await store.save_snapshot(Snapshot(2, b"e" * 16, Interrupted(parts)))
    async with opened(where) as store:
        assert await store.snapshots() == [1]
        assert await store.snapshot(1) == complete
        assert await store.snapshot(2) is None
        await store.save_snapshot(newer)
        assert await store.snapshots() == [1, 3]
        again = Snapshot(2, b"e" * 16, parts)
        await store.save_snapshot(again)
        assert await store.snapshot(2) == again


async def test_drop_before_deletes_blocks_up_to_a_position(where: str) -> None:
    blocks = chain(2, 3, 1, 2)

    async with opened(where) as store:
        await append(store, *blocks)
        await store.drop_before(1)  # in the middle of a block
        assert await read(store) == blocks
        for _ in range(2):
            await store.drop_before(6)
        assert await read(store, after=6) == blocks[3:]
        assert await store.block_of(6) is None
        assert await store.block_of(7) == blocks[3]
        assert await store.end() == (8, blocks[3].digest)
        await store.save_snapshot(Snapshot(8, blocks[3].digest, (b"state",)))
        await store.drop_before(8)
    async with opened(where) as store:
        # All blocks are deleted, but the log continues at the same position.
        assert await store.end() == (8, blocks[3].digest)
        assert await read(store, after=8) == []
        await store.begin(8)
        with pytest.raises(StoreError):
            await store.commit(block_after(None))
        late = block_after(blocks[3])
        await append(store, late)
        assert await store.end() == (9, late.digest)
        assert await read(store, after=8) == [late]
