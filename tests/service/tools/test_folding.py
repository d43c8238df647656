"""Reading a log by hand gives what the service had, at any event."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service import events as codec
from stopwise.service.events import Event
from stopwise.service.messages import DecisionRequest
from stopwise.service.state import State
from stopwise.service.store.base import START, Block, chained
from stopwise.service.tools.folding import beginning, fold
from stopwise.service.tools.looking import look
from stopwise.service.tools.opening import existing
from tests.service.tools.making import TRIAGE, blocks_of, lived, opened, play, running


async def folded(where: str, upto: int | None = None) -> State:
    async with existing(where) as store:
        return await fold(store, await beginning(store), upto=upto)


def test_the_state_of_every_moment_can_be_had_again(where: str) -> None:
    async def scenario() -> None:
        seen: dict[int, str] = {}
        async with running(where, snapshot_every=10) as service:
            await service.create(TRIAGE, None)
            for k in range(12):
                await play(service, 1, seed=k)
                seen[service.state.position] = service.state_hash().hash
            policy = service.state.cascades["triage"].policy
            again = (await folded(where)).cascades["triage"].policy
            assert {name: array.tobytes() for name, array in again.state().items()} == {
                name: array.tobytes() for name, array in policy.state().items()
            }
        for position, hash_ in seen.items():
            assert (await folded(where, position)).hash() == hash_

    asyncio.run(scenario())


def test_a_moment_in_the_middle_of_a_block(where: str) -> None:
    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            request = DecisionRequest([0.1, 0.2])
            asked = [service.decide("triage", request, f"key {k}") for k in range(5)]
            await asyncio.gather(*asked)
        async with opened(where) as store:
            blocks = await blocks_of(store)
        events: list[Event] = [e for block in blocks for e in codec.decode(block.payload)]
        assert len(blocks) < len(events) == 6
        for upto in range(7):
            expected, digest = State(), START
            for k, event in enumerate(events[:upto], start=1):  # each in a block of its own
                payload = codec.encode([event])
                digest = chained(digest, payload)
                expected.apply(Block(k, 1, 0.0, digest, payload))
            assert (await folded(where, upto)).hash() == expected.hash()

    asyncio.run(scenario())


def test_beyond_the_end_and_before_the_beginning(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    async def scenario() -> None:
        async with existing(where) as store:
            end, _ = await store.end()
            with pytest.raises(InvalidParameterError, match=f"no event {end + 1}"):
                await folded(where, end + 1)
            await store.drop_before(10)
        with pytest.raises(InvalidParameterError, match="was compacted"):
            await folded(where, 5)

    asyncio.run(scenario())


def test_a_saved_policy_goes_on_like_that_of_the_service(tmp_path: Path) -> None:
    where, file = str(tmp_path / "log.db"), tmp_path / "triage.stopwise"

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await play(service, 30)
            (await folded(where)).cascades["triage"].policy.save(file)
            policy = sw.load(file)
            for k in range(40):
                x = [k / 40, 1 - k / 20]
                answer, _ = await service.decide("triage", DecisionRequest(x), None)
                assert policy.decide(x).stop == answer.stop

    asyncio.run(scenario())


def test_what_a_log_holds(where: str) -> None:
    hash_ = lived(where, snapshot_every=30)

    async def scenario() -> None:
        async with existing(where) as store:
            found = await look(store)
            blocks = await blocks_of(store)
        assert (found.first, found.end, found.blocks) == (1, blocks[-1].end, len(blocks))
        assert sum(found.kinds.values()) == found.end
        assert found.kinds["created"] == 2
        assert found.kinds["labelled"] == 4
        assert found.kinds["started"] == 8
        assert found.kinds["ended"] == 1
        assert found.kinds["decided"] == 26
        assert found.bytes == sum(len(block.payload) for block in blocks)
        assert (found.began, found.ended) == (blocks[0].time, blocks[-1].time)
        assert len(found.snapshots) == 2
        assert found.state.hash() == hash_
        if not where.startswith("postgresql"):
            assert found.file is not None
            assert found.file >= Path(where).stat().st_size

    asyncio.run(scenario())


def test_reading_makes_nothing(tmp_path: Path, postgres: str) -> None:
    async def look_at(where: str) -> None:
        async with existing(where):
            pass

    for where, told in (
        (str(tmp_path / "none.db"), "there is no file"),
        (str(tmp_path), "is not a file"),
        (postgres, "there is no event log in postgresql://"),
    ):
        for _ in range(2):  # the first time has made nothing for the second to find
            with pytest.raises(InvalidParameterError, match=told):
                asyncio.run(look_at(where))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "empty.db").write_bytes(b"")
    with pytest.raises(InvalidParameterError, match="not an event log of Stopwise"):
        asyncio.run(look_at(str(tmp_path / "text.db")))
    with pytest.raises(InvalidParameterError, match="but not an event log of Stopwise"):
        asyncio.run(look_at(str(tmp_path / "empty.db")))
    with pytest.raises(StoreError):
        asyncio.run(look_at("postgresql://127.0.0.1:1/none?connect_timeout=2"))


def test_a_log_of_the_future_is_left_alone(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    with sqlite3.connect(where) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UnsupportedVersionError, match="format 99"):
        asyncio.run(folded(where))
