"""Copies are complete, also while a service writes; old events go, and the state stays."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import CorruptLogError, InvalidParameterError, StoreError
from stopwise.service.events import START
from stopwise.service.messages import BatchRequest, LabelRequest, OutputsRequest
from stopwise.service.recovery import recovered
from stopwise.service.refusals import Refusal
from stopwise.service.tools.checking import Verified, replay, verify
from stopwise.service.tools.copying import DAY, FOLLOWED, Plan, backup, compact, plan, restore
from stopwise.service.tools.reading import existing
from tests.service.tools.making import (
    TRIAGE,
    blocks_of,
    change,
    live,
    lived,
    open_round,
    opened,
    play,
    running,
)

LATER = FOLLOWED + 60

# Prints when some blocks are written and others are not, and waits to be killed.
RESTORES = """
import asyncio, sys, time
from pathlib import Path
from stopwise.service.tools import copying

copying.BYTES = 500

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


def started(program: str, *arguments: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def checked(where: str | Path) -> Verified:
    async def scenario() -> Verified:
        async with existing(str(where)) as store:
            return await verify(store)

    return asyncio.run(scenario())


def served(where: str) -> str:
    """Start a service, play a round, and return its state hash before that."""

    async def scenario() -> str:
        async with running(where) as service:
            found = (await service.state_hash()).hash
            await play(service, 1)
            return found

    return asyncio.run(scenario())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- backup and restore ---------------------------------------------------------------------------


def test_a_copy_is_the_log(where: str, tmp_path: Path) -> None:
    hash_ = lived(where)
    target = tmp_path / "copies" / "monday.db"
    target.parent.mkdir()
    done = asyncio.run(backup(where, target))
    assert names(target.parent) == {"monday.db"}

    async def both() -> None:
        async with opened(where) as one, opened(str(target)) as other:
            assert await blocks_of(one) == await blocks_of(other)
            assert await one.end() == await other.end() == (done.end, done.digest)
            assert await one.latest_snapshot() == await other.latest_snapshot()

    asyncio.run(both())
    found = checked(target)
    assert (found.hash, found.exact, found.end) == (hash_, True, done.end)
    assert served(str(target)) == hash_


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_only_the_owner_can_read_a_copy(where: str, tmp_path: Path) -> None:
    lived(where)
    copy, restored = tmp_path / "copy.db", tmp_path / "restored.db"
    asyncio.run(backup(where, copy))
    asyncio.run(restore(copy, str(restored)))
    assert copy.stat().st_mode & 0o777 == 0o600
    assert restored.stat().st_mode & 0o777 == 0o600


def test_a_copy_comes_back_to_either_store(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    hash_ = lived(source)
    asyncio.run(backup(source, copy))
    asyncio.run(restore(copy, where))
    assert checked(where).hash == hash_
    assert served(where) == hash_
    with pytest.raises(InvalidParameterError):
        asyncio.run(restore(copy, where))


def test_a_compacted_log_comes_back_to_either_store(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    hash_ = lived(source)
    asyncio.run(compacted(source))
    asyncio.run(backup(source, copy))
    assert checked(copy).hash == hash_
    asyncio.run(restore(copy, where))
    assert checked(where).hash == hash_
    assert served(where) == hash_
    assert checked(where).applied == 2  # what was opened and reported since


def test_a_log_without_its_beginning_comes_back_too(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    hash_ = lived(source)

    async def shorten() -> None:
        async with existing(source) as store:
            await store.drop_before(20)

    asyncio.run(shorten())
    asyncio.run(backup(source, copy))
    asyncio.run(restore(copy, where))
    found = checked(where)
    assert (found.hash, found.first) == (hash_, 21)
    assert served(where) == hash_


def test_a_copy_needs_a_new_name(tmp_path: Path) -> None:
    source = str(tmp_path / "source.db")
    lived(source)
    there = tmp_path / "there.db"
    there.write_bytes(b"precious")
    for where, target in (
        (source, there),
        (source, tmp_path / "nowhere" / "copy.db"),
        (str(tmp_path / "none.db"), tmp_path / "copy.db"),
    ):
        with pytest.raises(InvalidParameterError):
            asyncio.run(backup(where, target))
    with pytest.raises(InvalidParameterError):
        asyncio.run(restore(there, str(tmp_path / "new.db")))
    with pytest.raises(InvalidParameterError):
        asyncio.run(restore(Path(source), str(there)))
    assert there.read_bytes() == b"precious"
    assert names(tmp_path) == {"source.db", "source.db-owner", "there.db"}


@pytest.mark.parametrize("damage", ["changed", "end missing"])
def test_no_copy_of_a_damaged_log(damage: str, tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    folder = tmp_path / "copies"
    folder.mkdir()
    if damage == "changed":
        change(where, "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 5))
    else:
        change(where, "DELETE FROM snapshot WHERE position > ?", (0,))
        change(where, "DELETE FROM block WHERE base > ?", (50,))
    with pytest.raises(CorruptLogError):
        asyncio.run(backup(where, folder / "copy.db"))
    assert names(folder) == set()


def test_nothing_is_restored_of_a_damaged_copy(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    lived(source)
    asyncio.run(backup(source, copy))
    change(str(copy), "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 5))
    with pytest.raises(CorruptLogError, match="events 5 to 5"):
        asyncio.run(restore(copy, where))

    async def empty() -> None:
        async with opened(where) as store:
            assert await store.end() == (0, START)

    asyncio.run(empty())


@pytest.mark.parametrize("started_since", [False, True])
def test_a_backup_takes_the_place_of_a_lost_log(started_since: bool, tmp_path: Path) -> None:
    where, copy = tmp_path / "log.db", tmp_path / "copy.db"
    hash_ = lived(str(where))
    asyncio.run(backup(str(where), copy))
    served(str(where))  # acknowledged after the backup
    where.unlink()

    async def start() -> None:
        async with opened(str(where)) as store:
            await store.begin(0)

    if started_since:  # which creates an empty log, and finds that events are missing
        with pytest.raises(CorruptLogError):
            asyncio.run(start())
    asyncio.run(restore(copy, str(where)))
    assert checked(where).hash == hash_
    assert served(str(where)) == hash_


def test_what_another_log_left_is_not_taken_for_part_of_a_copy(tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    lived(source)
    (tmp_path / "copy.db-wal").write_bytes(b"the newest events of a log that was moved away")
    with pytest.raises(InvalidParameterError):
        asyncio.run(backup(source, copy))
    assert not copy.exists()


def test_no_service_takes_part_of_a_copy_for_the_whole(where: str, tmp_path: Path) -> None:
    source, copy = str(tmp_path / "source.db"), tmp_path / "copy.db"
    hash_ = lived(source)
    asyncio.run(backup(source, copy))

    async def create() -> None:  # an empty log
        async with opened(where):
            pass

    asyncio.run(create())
    with started(RESTORES, str(copy), where) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) > 15
        finally:
            process.kill()

    async def scenario() -> None:
        async with running(where) as service:
            assert service.state.position == 0

    asyncio.run(scenario())
    asyncio.run(restore(copy, where))  # as if nothing had happened
    assert checked(where).hash == hash_
    assert served(where) == hash_


def test_nothing_is_restored_under_a_running_service(tmp_path: Path) -> None:
    source, copy, empty = str(tmp_path / "a.db"), tmp_path / "copy.db", str(tmp_path / "b.db")
    lived(source)
    asyncio.run(backup(source, copy))

    async def scenario() -> None:
        async with running(empty) as service:
            with pytest.raises(StoreError):
                await restore(copy, empty)
            assert service.state.position == 0

    asyncio.run(scenario())


def test_a_copy_made_while_a_service_writes(where: str, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy-{k}.db" for k in range(3)]
    with started(WRITES, where) as process:
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
    # the service kept writing, and nothing acknowledged before a copy is missing
    assert all(known <= end for known, end in zip(positions, ends, strict=False))
    assert positions == sorted(set(positions))
    for copy, end in zip(copies, ends, strict=True):
        found = checked(copy)
        assert (found.end, found.exact) == (end, True)
    assert checked(where).end >= positions[-1]  # killed, and nothing lost


# -- compact --------------------------------------------------------------------------------------


async def compacted(where: str, keep_days: float = 0.0, now: float | None = None) -> int:
    async with existing(where) as store:
        return await compact(store, await plan(store, keep_days, now or time.time() + LATER))


async def state_hash(where: str) -> str:
    async with existing(where) as store:
        return (await recovered(store)).hash()


def test_recovery_gives_the_same_state(where: str) -> None:
    hash_ = lived(where)

    async def scenario() -> None:
        position = await compacted(where)
        async with existing(where) as store:
            assert await blocks_of(store) == []
            state, began = await replay(store)
            found = await verify(store)
        assert (state.hash(), began) == (hash_, position)
        assert await state_hash(where) == hash_
        assert (found.end, found.hash, found.applied) == (position, hash_, 0)
        async with running(where) as service:
            assert (await service.state_hash()).hash == hash_
            await play(service, 3)
            now = (await service.state_hash()).hash
        assert await state_hash(where) == now
        async with existing(where) as store:
            assert (await verify(store)).applied == 6

    asyncio.run(scenario())


def test_a_snapshot_is_written_where_there_is_none(where: str) -> None:
    hash_ = lived(where)
    change(where, "DELETE FROM snapshot WHERE position > ?", (0,))
    asyncio.run(compacted(where))
    assert asyncio.run(state_hash(where)) == hash_


def test_the_last_days_are_kept(where: str) -> None:
    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            old = await play(service, 20, seed=1)
            waiting = await open_round(service, [0.5, 0.5])
            cut = service.state.position
            middle = time.time()
            while time.time() == middle:
                pass  # later events have a later time
            new = await play(service, 20, seed=2)
            before = await service.state_hash()

            async with opened(where) as store:
                days, now = 1000.0 / DAY, middle + 1000.0
                planned = await plan(store, days, now)
                assert (planned.cut, planned.events) == (cut, cut)
                assert (planned.rounds, planned.open) == (21, 1)
                position = await compact(store, planned)
                assert (await blocks_of(store))[0].base == cut + 1
                found = await verify(store)
                # the snapshot stands at the end, and what is kept lies before it
                assert (found.first, found.applied) == (cut + 1, 0)
                assert position == found.end == before.position
                again = await plan(store, days, now)
                assert (again.events, again.rounds) == (0, 0)

            # the service has been running all the time, and goes on
            assert await service.state_hash() == before
            with pytest.raises(Refusal) as caught:
                await service.label("triage", old[0], LabelRequest("ill"))
            assert caught.value.status == 410
            assert (await service.round("triage", old[0])).context is None
            await service.label("triage", new[0], LabelRequest("ill"))
            assert (await service.round("triage", new[0])).context is not None
            outputs: list[Any] = ["ill"] * ((waiting.stop or 0) + 1)
            answer = await service.report("triage", waiting.id, OutputsRequest(outputs))
            assert answer.status == "learned"
            after = await service.state_hash()
        async with running(where) as service:
            assert await service.state_hash() == after

    asyncio.run(scenario())


def test_a_service_writes_meanwhile(where: str) -> None:
    async def scenario() -> None:
        async with running(where, snapshot_every=20) as service:
            await live(service)
            writing = asyncio.create_task(play(service, 60, seed=9))
            for _ in range(3):
                await compacted(where)
            await writing
            after = await service.state_hash()
            assert await state_hash(where) == after.hash
        assert await state_hash(where) == after.hash

    asyncio.run(scenario())


def test_what_replicas_may_be_reading_is_kept(postgres: str) -> None:
    async def scenario() -> Plan:
        async with existing(postgres) as store:
            return await plan(store, keep_days=0)

    lived(postgres)
    assert asyncio.run(scenario()).events == 0


async def count(where: str) -> int:
    async with opened(where) as store:
        return sum(block.count for block in await blocks_of(store))


def test_nothing_of_a_damaged_log_is_deleted(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 7))
    before = asyncio.run(count(where))
    with pytest.raises(CorruptLogError, match="events 7 to 7"):
        asyncio.run(compacted(where))
    assert asyncio.run(count(where)) == before


def test_nothing_is_deleted_if_the_snapshot_is_not_the_state(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    async def scenario() -> None:
        async with existing(where) as store:
            planned = await plan(store, keep_days=0, now=time.time() + 1)
            planned.state.order[0].ledger.learned += 1  # as if memory had erred
            with pytest.raises(CorruptLogError):
                await compact(store, planned)
        assert await count(where) == planned.events

    asyncio.run(scenario())


def test_the_file_shrinks(tmp_path: Path) -> None:
    where = tmp_path / "log.db"

    async def scenario() -> None:
        async with running(str(where)) as service:
            await service.create(TRIAGE, None)
            for k in range(40):
                contexts: list[Any] = [[k / 40, n / 500] for n in range(500)]
                await service.open_rounds("triage", BatchRequest(contexts), f"batch {k}")
        before = where.stat().st_size
        async with existing(str(where)) as store:
            size = sum(len(block.payload) for block in await blocks_of(store))
        await compacted(str(where))
        assert size > 300_000
        assert where.stat().st_size < before - 0.9 * size

    asyncio.run(scenario())
