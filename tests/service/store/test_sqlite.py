"""SQLite: the recorded end of the log finds lost events, and a file has one name and one owner."""

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
from tests.service.store.test_contract import append, chain, made, opened, read

BLOCKS = chain(1, 3, 2, 1, 4)
LAST = BLOCKS[-1]
FRAME = 24 + 4096  # bytes of a page in the write-ahead log, after 32 bytes of header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


async def write(path: Path, *blocks: Block) -> None:
    async with opened(str(path)) as store:
        await append(store, *blocks)


async def begun(path: Path) -> list[Block]:
    """Acquire the right to append, and return what the log holds."""
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


async def test_lost_events_are_refused(tmp_path: Path) -> None:
    """In the files of a process that had committed all blocks and was killed."""
    (tmp_path / "open").mkdir()
    async with opened(str(tmp_path / "open" / "log.db")) as store:
        await append(store, *BLOCKS)
        killed = Path(shutil.copytree(tmp_path / "open", tmp_path / "killed"))
    for name, damage in DAMAGES.items():
        path = Path(shutil.copytree(killed, tmp_path / name)) / "log.db"
        wal = beside(path, "-wal")
        wal.write_bytes(damage(wal.read_bytes()))
        with pytest.raises(CorruptLogError) as caught:
            await begun(path)
        assert f"{LAST.end}" in str(caught.value)
        assert str(beside(path, "-owner")) in str(caught.value)  # what to delete
        assert await recorded(path) == (LAST.end, LAST.digest)  # readable without ownership
        beside(path, "-owner").unlink()
        found = await begun(path)
        assert found == BLOCKS[: len(found)]
        assert 0 < len(found) < len(BLOCKS)
    assert await begun(killed / "log.db") == BLOCKS


@pytest.mark.parametrize("more", [0, 1])
async def test_another_log_in_its_place_is_refused(path: Path, tmp_path: Path, more: int) -> None:
    """Also if it is as long, or longer."""
    await write(path, *BLOCKS)
    other = chain(*[1] * (LAST.end + more))
    await write(tmp_path / "other.db", *other)
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(CorruptLogError):
        await begun(path)


@pytest.mark.parametrize("upto", [0, 6], ids=["", "compacted"])
async def test_a_record_may_be_older_than_the_log(path: Path, tmp_path: Path, upto: int) -> None:
    """As after a power cut: the record is not synced."""
    await write(path, *BLOCKS[:2])
    shutil.copy(beside(path, "-owner"), tmp_path / "record")
    await write(path, *BLOCKS[2:])
    await compact(path, upto)
    shutil.copy(tmp_path / "record", beside(path, "-owner"))
    assert await recorded(path) == (4, BLOCKS[1].digest)
    assert await begun(path) == [block for block in BLOCKS if block.end > upto]


@pytest.mark.parametrize("record", [b"", bytes(40), b"x" * 40, None])
async def test_a_blank_or_damaged_record_is_ignored(path: Path, record: bytes | None) -> None:
    await write(path, *BLOCKS)
    content = beside(path, "-owner").read_bytes()
    damaged = content[:12] + bytes([content[12] ^ 1]) + content[13:]
    beside(path, "-owner").write_bytes(damaged if record is None else record)
    assert await recorded(path) is None
    assert await begun(path) == BLOCKS
    await write(path, made(LAST))
    assert await recorded(path) == (LAST.end + 1, made(LAST).digest)


@pytest.mark.parametrize("upto", [1, 5, LAST.end])
async def test_a_compacted_log_is_accepted(path: Path, upto: int) -> None:
    await write(path, *BLOCKS)
    await compact(path, upto)
    assert await begun(path) == [block for block in BLOCKS if block.end > upto]
    await write(path, made(LAST))
    assert await recorded(path) == (LAST.end + 1, made(LAST).digest)


async def test_the_end_is_checked_again_after_a_failure(path: Path) -> None:
    async with opened(str(path)) as store:
        assert isinstance(store, SqliteStore)
        await append(store, *BLOCKS)
        with pytest.raises(StoreError):
            await store._rows("SELECT * FROM nowhere")
        await store._rows("DELETE FROM block WHERE base = ?", LAST.base)
        with pytest.raises(CorruptLogError):
            await store.begin(LAST.end)


# -- names of the file ----------------------------------------------------------------------------


async def test_a_file_with_a_second_name_is_refused(path: Path, tmp_path: Path) -> None:
    await write(path, *BLOCKS)
    (tmp_path / "second.db").hardlink_to(path)
    for name in (path, tmp_path / "second.db"):
        with pytest.raises(StoreError, match="hard link"):
            await write(name, made(LAST))
    (tmp_path / "second.db").unlink()
    await write(path, made(LAST))


async def test_a_symbolic_link_is_the_file_itself(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    async with opened(str(path)) as store, opened(str(link)) as other:
        await append(store, *BLOCKS)
        assert await read(other) == BLOCKS
        with pytest.raises(StoreError):
            await other.begin(0)
    await write(link, made(LAST))
    assert {file.name for file in tmp_path.iterdir()} == {"link.db", "log.db", "log.db-owner"}


async def test_a_file_of_another_program_is_refused(path: Path) -> None:

    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="customers"):
        await write(path, *BLOCKS)
    assert path.read_bytes() == before


async def test_a_directory_is_refused_as_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory") as caught:
        await write(tmp_path, *BLOCKS)
    assert str(tmp_path / "stopwise.db") in str(caught.value)  # what to write instead
    assert "hard link" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


async def test_damaged_pages_are_not_a_failure_that_may_pass(path: Path) -> None:
    await write(path, *chain(*[50] * 40))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(CorruptLogError, match="damaged"):
        await begun(path)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptLogError, match="not an event log"):
        await begun(path)


async def test_a_closed_store_has_no_thread_and_can_be_opened_again(path: Path) -> None:
    """A store may be referred to long after it is closed, by the traceback of an error."""
    await asyncio.to_thread(int)  # starts a thread of the loop
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
