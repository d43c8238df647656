"""Backups: whole, also while a service writes; and their way back, from any store to any other."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stopwise.errors import CorruptLogError, InvalidParameterError, StopwiseError
from stopwise.service.store.base import START
from stopwise.service.store.opening import open_store
from stopwise.service.tools.compacting import compact, plan
from stopwise.service.tools.copying import backup, restore
from stopwise.service.tools.opening import existing
from stopwise.service.tools.verifying import Verified, verify
from tests.service.tools.making import blocks_of, change, lived, opened, play, running

# Prints when some blocks are written and others are not, and waits to be killed.
RESTORES = """
import asyncio, sys, time
from pathlib import Path
from stopwise.service.tools import copying

copying.TOGETHER = 5

def stop(stage, done, of):
    if stage == "copying" and done > 15:
        print(done, flush=True)
        time.sleep(600)

asyncio.run(copying.restore(Path(sys.argv[1]), sys.argv[2], stop))
"""

WRITES = """
import asyncio, sys
from tests.service.tools.making import TRIAGE, play, running

async def forever(where):
    async with running(where, snapshot_every=50) as service:
        await service.create(TRIAGE, None)
        seed = 0
        while True:
            seed += 1
            await asyncio.gather(*(play(service, 5, seed * 10 + k) for k in range(4)))
            print(service.state.position, flush=True)

asyncio.run(forever(sys.argv[1]))
"""


def checked(where: str | Path) -> Verified:
    async def scenario() -> Verified:
        async with existing(str(where)) as store:
            return await verify(store)

    return asyncio.run(scenario())


def served(where: str) -> str:
    """Start a service, let it go on for a round, and return its state hash before that."""

    async def scenario() -> str:
        async with running(where) as service:
            found = service.state_hash().hash
            await play(service, 1)
            return found

    return asyncio.run(scenario())


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_copy_is_the_log(where: str, tmp_path: Path) -> None:
    live = lived(where, snapshot_every=30)
    target = tmp_path / "copies" / "monday.db"
    target.parent.mkdir()
    done = asyncio.run(backup(where, target))
    assert leftovers(target.parent) == {"monday.db"}

    async def both() -> None:
        async with opened(where) as one, opened(str(target)) as other:
            assert await blocks_of(one) == await blocks_of(other)
            assert await one.end() == await other.end() == (done.end, done.digest)
            assert await one.latest_snapshot() == await other.latest_snapshot()
            assert await other.snapshots() == [done.snapshot]

    asyncio.run(both())
    found = checked(target)
    assert (found.hash, found.exact, found.end) == (live, True, done.end)
    assert served(str(target)) == live


def test_a_copy_comes_back_into_either_store(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    live = lived(source)
    asyncio.run(backup(source, copy))
    asyncio.run(restore(copy, where))
    assert checked(where).hash == live
    assert served(where) == live
    with pytest.raises(InvalidParameterError, match="has events already"):
        asyncio.run(restore(copy, where))


def test_a_compacted_log_comes_back_into_either_store(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    live = lived(source)

    async def shorten() -> None:
        async with existing(source) as store:
            planned = await plan(store, keep_days=0, now=time.time() + 1)
            await compact(store, planned)

    asyncio.run(shorten())
    asyncio.run(backup(source, copy))
    assert checked(copy).hash == live
    asyncio.run(restore(copy, where))
    assert checked(where).hash == live
    assert served(where) == live
    assert checked(where).folded == 2  # what was decided and told since


def test_a_log_with_its_beginning_gone_comes_back_too(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    live = lived(source)

    async def shorten() -> None:
        async with existing(source) as store:
            await store.drop_before(20)

    asyncio.run(shorten())
    asyncio.run(backup(source, copy))
    asyncio.run(restore(copy, where))
    found = checked(where)
    assert (found.hash, found.first) == (live, 21)
    assert served(where) == live


def test_a_new_file_is_asked_for(tmp_path: Path) -> None:
    source = str(tmp_path / "source.db")
    lived(source)
    there = tmp_path / "there.db"
    there.write_bytes(b"precious")
    with pytest.raises(InvalidParameterError, match="is there already"):
        asyncio.run(backup(source, there))
    assert there.read_bytes() == b"precious"
    with pytest.raises(InvalidParameterError, match="no folder"):
        asyncio.run(backup(source, tmp_path / "nowhere" / "copy.db"))
    with pytest.raises(InvalidParameterError, match="there is no file"):
        asyncio.run(backup(str(tmp_path / "none.db"), tmp_path / "copy.db"))
    with pytest.raises(InvalidParameterError, match="not an event log"):
        asyncio.run(restore(there, str(tmp_path / "new.db")))
    assert leftovers(tmp_path) == {"source.db", "source.db-owner", "there.db"}


def test_of_a_damaged_log_there_is_no_copy(where: str, tmp_path: Path) -> None:
    lived(where)
    folder = tmp_path / "copies"
    folder.mkdir()
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 5))
    with pytest.raises(CorruptLogError, match="events 5 to 5 is not what was written"):
        asyncio.run(backup(where, folder / "copy.db"))
    assert leftovers(folder) == set()


def test_of_a_damaged_copy_nothing_is_restored(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    lived(source)
    asyncio.run(backup(source, copy))
    change(str(copy), "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 5))
    with pytest.raises(CorruptLogError, match="events 5 to 5 is not what was written"):
        asyncio.run(restore(copy, where))

    async def empty() -> None:
        store = open_store(where)
        await store.open()
        assert await store.end() == (0, START)
        await store.close()

    asyncio.run(empty())


def test_a_service_never_takes_part_of_a_copy_for_the_whole(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    live = lived(source)
    asyncio.run(backup(source, copy))

    async def make() -> None:  # an empty store, which is there already
        async with opened(where):
            pass

    asyncio.run(make())
    with subprocess.Popen(
        [sys.executable, "-c", RESTORES, str(copy), where],
        stdout=subprocess.PIPE,
        text=True,
        env={**_environment()},
    ) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) > 15
        finally:
            process.kill()

    async def scenario() -> None:
        async with running(where) as service:
            assert service.state.position == 0

    asyncio.run(scenario())
    asyncio.run(restore(copy, where))  # as if nothing had been
    assert checked(where).hash == live
    assert served(where) == live


def test_nothing_is_restored_under_a_running_service(tmp_path: Path) -> None:
    source, copy, empty = str(tmp_path / "a.db"), tmp_path / "copy.db", str(tmp_path / "b.db")
    lived(source)
    asyncio.run(backup(source, copy))

    async def scenario() -> None:
        async with running(empty) as service:
            with pytest.raises(StopwiseError, match="another process serves"):
                await restore(copy, empty)
            assert service.state.position == 0

    asyncio.run(scenario())


def test_a_copy_made_while_a_service_writes(where: str, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy-{k}.db" for k in range(3)]
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, where],
        stdout=subprocess.PIPE,
        text=True,
        env={**_environment()},
    ) as process:
        try:
            assert process.stdout is not None
            positions: list[int] = []
            ends: list[int] = []
            for copy in copies:
                positions.append(int(process.stdout.readline()))
                ends.append(asyncio.run(backup(where, copy)).end)
            positions.append(int(process.stdout.readline()))
        finally:
            process.kill()
    # the service went on writing throughout, and nothing acknowledged before a copy is missing
    assert all(known <= end for known, end in zip(positions, ends, strict=False))
    assert positions == sorted(set(positions))
    for copy, end in zip(copies, ends, strict=True):
        found = checked(copy)
        assert (found.end, found.exact) == (end, True)
    assert checked(where).end >= positions[-1]  # killed, and nothing lost


def _environment() -> dict[str, str]:
    import os

    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return {**os.environ, "PYTHONPATH": path}
