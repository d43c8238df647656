"""SQLite store: lost events are detected, and a file has one name and one owner."""

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stopwise.errors import CorruptLogError, StoreError
from stopwise.service.persistence.blocks import Block
from stopwise.service.persistence.stores.base import Snapshot
from stopwise.service.persistence.stores.sqlite import SqliteStore
from tests.service.store.test_contract import append, block_after, chain, opened, read

BLOCKS = chain(1, 3, 2, 1, 4)
LAST = BLOCKS[-1]
FRAME = 24 + 4096  # bytes of a page in the write-ahead log, after 32 bytes of header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


async def write(path: Path, *blocks: Block) -> None:
    async with opened(str(path)) as store:
        await append(store, *blocks)


async def begun(path: Path) -> list[Block]:
    """Acquire the append lock; return the blocks of the log."""
    async with opened(str(path)) as store:
        return await store.begin(0)


async def recorded(path: Path) -> tuple[int, bytes] | None:
    async with opened(str(path)) as store:
        return await store.recorded_end()


async def compact(path: Path, position: int) -> None:
    async with opened(str(path)) as store:
        await store.save_snapshot(Snapshot(LAST.end, LAST.digest, (b"state",)))
        await store.drop_before(position)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda wal: wal[:-FRAME],
    "flip": lambda wal: wal[:-100] + bytes([wal[-100] ^ 1]) + wal[-99:],
    "zeroed": lambda wal: wal[: -2 * FRAME] + bytes(2 * FRAME),
}


async def killed_log(folder: Path) -> Path:
    """Return the log of a process that was killed after it had committed all blocks."""
    (folder / "open").mkdir()
    async with opened(str(folder / "open" / "log.db")) as store:
        await append(store, *BLOCKS)
        return Path(shutil.copytree(folder / "open", folder / "killed")) / "log.db"


async def test_log_of_a_killed_process_is_complete(tmp_path: Path) -> None:
    assert await begun(await killed_log(tmp_path)) == BLOCKS


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_log_that_lost_events_is_rejected(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = await killed_log(tmp_path)
    wal = beside(path, "-wal")
    wal.write_bytes(damage(wal.read_bytes()))
    with pytest.raises(CorruptLogError) as caught:
        await begun(path)
    assert f"{LAST.end}" in str(caught.value)
    assert str(beside(path, "-owner")) in str(caught.value)  # the file to delete
    assert await recorded(path) == (LAST.end, LAST.digest)  # readable without the lock
    beside(path, "-owner").unlink()
    blocks = await begun(path)
    assert blocks == BLOCKS[: len(blocks)]
    assert 0 < len(blocks) < len(BLOCKS)


@pytest.mark.parametrize("longer", [0, 1])
async def test_log_replaced_by_another_one_is_rejected(
    path: Path, tmp_path: Path, longer: int
) -> None:
    """The other log is as long, or longer."""
    await write(path, *BLOCKS)
    other = chain(*[1] * (LAST.end + longer))
    await write(tmp_path / "other.db", *other)
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(CorruptLogError):
        await begun(path)


@pytest.mark.parametrize("upto", [0, 6], ids=["", "compacted"])
async def test_record_may_be_older_than_the_log(path: Path, tmp_path: Path, upto: int) -> None:
    """As after a power failure, because the record is not synced."""
    await write(path, *BLOCKS[:2])
    shutil.copy(beside(path, "-owner"), tmp_path / "record")
    await write(path, *BLOCKS[2:])
    await compact(path, upto)
    shutil.copy(tmp_path / "record", beside(path, "-owner"))
    assert await recorded(path) == (4, BLOCKS[1].digest)
    assert await begun(path) == [block for block in BLOCKS if block.end > upto]


@pytest.mark.parametrize("record", [b"", bytes(40), b"x" * 40, None])
async def test_empty_or_damaged_record_is_ignored(path: Path, record: bytes | None) -> None:
    await write(path, *BLOCKS)
    content = beside(path, "-owner").read_bytes()
    damaged = content[:12] + bytes([content[12] ^ 1]) + content[13:]
    beside(path, "-owner").write_bytes(damaged if record is None else record)
    assert await recorded(path) is None
    assert await begun(path) == BLOCKS
    await write(path, block_after(LAST))
    assert await recorded(path) == (LAST.end + 1, block_after(LAST).digest)


@pytest.mark.parametrize("upto", [1, 5, LAST.end])
async def test_compacted_log_is_accepted(path: Path, upto: int) -> None:
    await write(path, *BLOCKS)
    await compact(path, upto)
    assert await begun(path) == [block for block in BLOCKS if block.end > upto]
    await write(path, block_after(LAST))
    assert await recorded(path) == (LAST.end + 1, block_after(LAST).digest)


async def test_end_is_checked_again_after_a_failure(path: Path) -> None:
    async with opened(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await append(store, *BLOCKS)
        with pytest.raises(StoreError):
            await store._rows("SELECT * FROM nowhere")
        await store._rows("DELETE FROM block WHERE base = ?", LAST.base)
        with pytest.raises(CorruptLogError):
            await store.begin(LAST.end)


# -- names of the file ----------------------------------------------------------------------------


async def test_file_with_two_hard_links_is_rejected(path: Path, tmp_path: Path) -> None:
    await write(path, *BLOCKS)
    (tmp_path / "second.db").hardlink_to(path)
    for name in (path, tmp_path / "second.db"):
        with pytest.raises(StoreError, match="hard link"):
            await write(name, block_after(LAST))
    (tmp_path / "second.db").unlink()
    await write(path, block_after(LAST))


async def test_symbolic_link_shares_the_lock_of_its_target(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    async with opened(str(path)) as store, opened(str(link)) as other:
        await append(store, *BLOCKS)
        assert await read(other) == BLOCKS
        with pytest.raises(StoreError):
            await other.begin(0)
    await write(link, block_after(LAST))
    assert {file.name for file in tmp_path.iterdir()} == {"link.db", "log.db", "log.db-owner"}


async def test_file_of_another_program_is_rejected(path: Path) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="customers"):
        await write(path, *BLOCKS)
    assert path.read_bytes() == before


async def test_directory_is_rejected_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory") as caught:
        await write(tmp_path, *BLOCKS)
    assert str(tmp_path / "stopwise.db") in str(caught.value)
    assert "hard link" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


async def test_damaged_pages_are_a_permanent_error(path: Path) -> None:
    await write(path, *chain(*[50] * 40))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(CorruptLogError, match="damaged"):
        await begun(path)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptLogError, match="not an event log"):
        await begun(path)


async def test_closed_store_has_no_thread_and_can_be_reopened(path: Path) -> None:
    """The traceback of an error may refer to a store long after it is closed."""
    await asyncio.to_thread(int)  # starts a thread of the event loop
    before = set(threading.enumerate())
    store = SqliteStore(path)
    for _ in range(3):
        await store.open()
        await store.begin(0)
        threads = set(threading.enumerate()) - before
        assert len(threads) == 1
        await store.close()
        for thread in threads:
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()
