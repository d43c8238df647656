"""Copies of a log: a backup while a service is writing, and its way back."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from stopwise.errors import CorruptLogError, InvalidParameterError, StoreError
from stopwise.service.settings import shown_store
from stopwise.service.store.base import START, Block, Snapshot, Store
from stopwise.service.store.opening import open_store
from stopwise.service.store.sqlite import SqliteStore
from stopwise.service.tools.folding import Chain, Progress, between, check_reached, no_progress
from stopwise.service.tools.opening import existing, is_file

TOGETHER = 500  # blocks that are written at once,
BYTES = 4 << 20  # or so many bytes


class Copied(msgspec.Struct, frozen=True):
    """A copy of a log.

    Attributes
    ----------
    events : int
        How many it holds.
    end : int
        Position of the last.
    digest : bytes
        Of the log there.
    snapshot : int or None
        Position of its snapshot.
    """

    events: int
    end: int
    digest: bytes
    snapshot: int | None


async def backup(where: str, target: Path, progress: Progress = no_progress) -> Copied:
    """Copy a log, as it is at this moment, to a new SQLite file; a service may be writing.

    Parameters
    ----------
    where : str
        Address of the log.
    target : Path
        Of the file, which must not be there; it is there whole, or not at all.
    progress : callable
        Called as ``progress(stage, event, of)``.

    Raises
    ------
    CorruptLogError
        If the log is damaged; then there is no copy.
    """
    async with existing(where) as source:
        return await _to_new_file(source, target, progress)


async def restore(backup: Path, where: str, progress: Progress = no_progress) -> Copied:
    """Copy a backup into an empty store: a new file, or a database without events.

    The events are there all at once or, whatever interrupts it, not at all. Of a compacted log the
    snapshot comes after them; a service refuses to begin without it.

    Raises
    ------
    InvalidParameterError
        If the store has events already.
    CorruptLogError
        If the backup is damaged; it is read whole before anything is written.
    """
    async with existing(str(backup)) as source:
        if is_file(where) and not Path(where).exists():
            return await _to_new_file(source, Path(where), progress)
        if is_file(where):
            async with existing(where):
                pass  # or say that it is no event log
        contents = await _contents(source)
        await _check(source, contents, "checking the backup", progress)
        store = open_store(where)
        try:
            await store.open()
            if await store.end() != (0, START) or await store.snapshots():
                raise InvalidParameterError(
                    f"{shown_store(where)} has events already; restore into an empty one"
                )
            await store.begin(0)  # or say that another process serves it
            await store.release()
            await _copy(source, store, contents, progress)
            await _check(store, contents, "checking", progress)
        finally:
            await store.close()
    return contents.copied


class _Contents(msgspec.Struct, frozen=True):
    """What is to be copied."""

    first: int
    end: int
    digest: bytes
    snapshot: Snapshot | None

    @property
    def copied(self) -> Copied:
        place = None if self.snapshot is None else self.snapshot.position
        return Copied(self.end - self.first + 1, self.end, self.digest, place)


async def _contents(source: Store) -> _Contents:
    # The log only grows, so that all up to an end seen once is a state that it really had.
    end, digest = await source.end()
    snapshot = await source.latest_snapshot(end)
    first = end + 1
    async for block in between(source, 0, end):
        first = block.base
        break
    if first > 1 and (snapshot is None or snapshot.position < first - 1):
        raise CorruptLogError(
            f"the log begins at event {first}, and there is no snapshot of what was before"
        )
    return _Contents(first, end, digest, snapshot)


async def _to_new_file(source: Store, target: Path, progress: Progress) -> Copied:
    if target.exists():
        raise InvalidParameterError(f"{target} is there already; choose a new name")
    if not target.absolute().parent.is_dir():
        raise InvalidParameterError(f"there is no folder {target.absolute().parent}")
    contents = await _contents(source)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    store = SqliteStore(beside)
    try:
        try:
            await store.open()
            await _copy(source, store, contents, progress)
            await _check(store, contents, "checking the copy", progress)
        finally:
            await store.close()
        if target.exists():  # somebody was quicker
            raise InvalidParameterError(f"{target} is there already; choose a new name")
        beside.replace(target)
    finally:
        for leftover in ("", "-owner", "-wal", "-shm"):
            beside.with_name(beside.name + leftover).unlink(missing_ok=True)
    return contents.copied


async def _copy(source: Store, target: Store, contents: _Contents, progress: Progress) -> None:
    after, snapshot = contents.first - 1, contents.snapshot
    before = snapshot.digest if snapshot is not None and snapshot.position == after else START
    chain = Chain(after, START if after == 0 else None)

    async def checked() -> AsyncIterator[list[Block]]:
        async for blocks in _together(source, after, contents.end):
            for block in blocks:
                chain.add(block)
            yield blocks
            progress("copying", chain.position, contents.end)
            await asyncio.sleep(0)
        check_reached(chain.position, contents.end)

    await target.fill(after, before, checked())
    if contents.snapshot is not None:
        await target.keep_snapshot(contents.snapshot)


async def _together(source: Store, after: int, upto: int) -> AsyncIterator[list[Block]]:
    blocks: list[Block] = []
    size = 0
    async for block in between(source, after, upto):
        blocks.append(block)
        size += len(block.payload)
        if len(blocks) == TOGETHER or size >= BYTES:
            yield blocks
            blocks, size = [], 0
    if blocks:
        yield blocks


async def _check(store: Store, contents: _Contents, stage: str, progress: Progress) -> None:
    """Read a copy from beginning to end: it must end with the digest it should."""
    after = contents.first - 1
    chain = Chain(after, START if after == 0 else None)
    async for block in between(store, after, contents.end):
        chain.add(block)
        progress(stage, chain.position, contents.end)
    if contents.end > after and (chain.position, chain.digest) != (contents.end, contents.digest):
        raise StoreError("the copy does not end as the log does; nothing of it can be relied upon")
    snapshot = await store.latest_snapshot()
    wanted = contents.snapshot
    if wanted is not None and snapshot != wanted:
        raise StoreError("the snapshot in the copy is not that of the log")
