"""A state can be rebuilt from its log; damage is found, and what is not damage is told from it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.service import events as codec
from stopwise.service.events import START, Block, Event, Opened, Reported, chain_digest
from stopwise.service.recovery import recover_state
from stopwise.service.state import State
from stopwise.service.store import open_store
from stopwise.service.store.base import Snapshot
from stopwise.service.tools.checking import Verified, rebuild, verify
from stopwise.service.tools.reading import existing
from tests.service.tools.conftest import Lived
from tests.service.tools.making import (
    TRIAGE,
    blocks_of,
    change,
    open_round,
    play,
    running,
    with_store,
)


async def rebuilt(where: str, upto: int | None = None) -> State:
    async with existing(where) as store:
        return (await rebuild(store, upto))[0]


def checked(where: str) -> Verified:
    return with_store(where, verify)


def blocks(where: str) -> list[Block]:
    return with_store(where, blocks_of)


def newest_snapshot(where: str) -> Snapshot:
    found = with_store(where, lambda store: store.latest_snapshot())
    assert found is not None
    return found


def store_snapshot(where: str, snapshot: Snapshot) -> None:
    """EventStore a snapshot instead of the one at its position, if there is one."""
    if snapshot.position in with_store(where, lambda store: store.snapshots()):
        change(where, "DELETE FROM snapshot WHERE position = ?", (snapshot.position,))
    with_store(where, lambda store: store.save_snapshot(snapshot))


def rewritten(
    where: str, target: Path, edit: Callable[[Event], Event], more: list[Event] | None = None
) -> str:
    """Write a log with other events and digests that match, as a forger or a defect would."""

    async def scenario() -> None:
        async with existing(where) as source:
            found = await blocks_of(source)
        edited = [[edit(event) for event in codec.decode(block.payload)] for block in found]
        store, digest, position = open_store(str(target)), START, 0
        await store.open()
        for events in [*edited, *([more] if more else [])]:
            payload = codec.encode(events)
            digest = chain_digest(digest, payload)
            await store.begin(position)
            await store.commit(Block(position + 1, len(events), 0.0, digest, payload))
            position += len(events)
        await store.close()

    asyncio.run(scenario())
    return str(target)


# -- rebuilding -----------------------------------------------------------------------------------


def test_the_state_after_every_event_can_be_rebuilt(where: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: dict[int, str] = {}
        async with running(where) as service:
            await service.create(TRIAGE, None)
            for k in range(12):
                await play(service, 1, seed=k)
                seen[service.state.position] = (await service.state_hash()).hash
            file = tmp_path / "triage.stopwise"
            (await rebuilt(where)).cascades["triage"].policy.save(file)
            policy = sw.load(file)  # it continues like that of the service
            for k in range(20):
                x = [k / 20, 1 - k / 10]
                assert policy.decide(x).stop == (await open_round(service, x)).stop
        for position, hash_ in seen.items():
            assert (await rebuilt(where, position)).hash() == hash_

    asyncio.run(scenario())


def test_an_event_in_the_middle_of_a_block(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await asyncio.gather(*(open_round(service, [0.1, 0.2]) for _ in range(5)))
        async with existing(where) as store:
            found = await blocks_of(store)
        events: list[Event] = [e for block in found for e in codec.decode(block.payload)]
        assert len(found) < len(events) == 6
        for upto in range(7):
            expected, digest = State(), START
            for k, event in enumerate(events[:upto], start=1):  # each in a block of its own
                payload = codec.encode([event])
                digest = chain_digest(digest, payload)
                expected.apply(Block(k, 1, 0.0, digest, payload))
            assert (await rebuilt(where, upto)).hash() == expected.hash()

    asyncio.run(scenario())


def test_events_that_the_log_does_not_have(sqlite: Lived) -> None:
    end, _ = with_store(sqlite.where, lambda store: store.end())
    with pytest.raises(InvalidParameterError):
        asyncio.run(rebuilt(sqlite.where, end + 1))
    with_store(sqlite.where, lambda store: store.drop_before(10))
    with pytest.raises(InvalidParameterError):
        asyncio.run(rebuilt(sqlite.where, 5))


# -- events ---------------------------------------------------------------------------------------


def test_a_log_without_damage(log: Lived) -> None:
    found = checked(log.where)
    assert found.hash == log.hash
    assert (found.first, found.end, found.applied) == (1, blocks(log.where)[-1].end, found.end)
    assert (found.snapshots, found.divergences) == ({found.end: "equal"}, {})


def test_a_byte_flipped_in_a_block_and_a_missing_block(log: Lived) -> None:
    where, victim = log.where, blocks(log.where)[40]
    damaged = bytearray(victim.payload)
    damaged[len(damaged) // 2] ^= 0x10
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (bytes(damaged), victim.base))
    with pytest.raises(CorruptLogError, match=f"events {victim.base} to {victim.end}"):
        checked(where)
    change(where, "DELETE FROM block WHERE base = ?", (victim.base,))
    with pytest.raises(CorruptLogError, match=f"event {victim.end + 1}"):
        checked(where)


def test_an_event_that_contradicts_those_before_it(sqlite: Lived, tmp_path: Path) -> None:
    end = blocks(sqlite.where)[-1].end
    nobody = Reported(0, 9999, [0], [b'"ill"'], True, 0.0)
    forged = rewritten(sqlite.where, tmp_path / "forged.db", lambda event: event, [nobody])
    with pytest.raises(CorruptLogError, match=f"event {end + 1}"):
        checked(forged)


def test_another_decision_than_here_is_counted_and_no_damage(sqlite: Lived, tmp_path: Path) -> None:
    def edit(event: Event) -> Event:
        if not isinstance(event, Opened) or event.count != 5:
            return event
        stop = bytes([(event.stops[4] + 1) % 3])  # this round stays open: nothing contradicts it
        rule_stops = event.rule_stops and event.rule_stops[:4] + stop
        return msgspec.structs.replace(event, stops=event.stops[:4] + stop, rule_stops=rule_stops)

    other = rewritten(sqlite.where, tmp_path / "other.db", edit)
    assert checked(other).divergences == {"triage": 1}


# -- the end --------------------------------------------------------------------------------------


def test_a_missing_end_that_a_snapshot_knows(log: Lived) -> None:
    last = blocks(log.where)[-1]
    change(log.where, "DELETE FROM block WHERE base = ?", (last.base,))
    with pytest.raises(CorruptLogError, match=f"event {last.base - 1}"):
        checked(log.where)


def test_acknowledged_events_are_missing(sqlite: Lived) -> None:
    where, last = sqlite.where, blocks(sqlite.where)[-1]
    change(where, "DELETE FROM snapshot WHERE position > ?", (0,))
    assert checked(where).snapshots == {}
    change(where, "DELETE FROM block WHERE base = ?", (last.base,))
    with pytest.raises(CorruptLogError, match=f"{last.end}"):
        checked(where)
    Path(f"{where}-owner").unlink()  # without the record, nothing is known of the last event
    assert checked(where).end == last.base - 1


def test_another_event_than_the_acknowledged_one(sqlite: Lived, tmp_path: Path) -> None:
    def edit(event: Event) -> Event:
        return msgspec.structs.replace(event, time=event.time + 1)

    other = rewritten(sqlite.where, tmp_path / "other.db", edit)
    end = checked(other).end
    Path(f"{sqlite.where}-owner").rename(f"{other}-owner")
    with pytest.raises(CorruptLogError, match=f"event {end} "):
        checked(other)


def test_a_record_older_than_the_end_is_no_damage(sqlite: Lived) -> None:
    record = Path(f"{sqlite.where}-owner").read_bytes()

    async def scenario() -> None:
        async with running(sqlite.where) as service:
            await play(service, 2)

    asyncio.run(scenario())
    Path(f"{sqlite.where}-owner").write_bytes(record)  # as after a crash of the machine
    assert checked(sqlite.where).divergences == {}


# -- snapshots ------------------------------------------------------------------------------------


def tampered(where: str, edit: Callable[[State], Any]) -> int:
    """EventStore a snapshot of a state that was tampered with; return its position."""
    state = with_store(where, recover_state)
    edit(state)
    store_snapshot(where, state.snapshot())
    return state.position


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flipped, id="flipped"),
        pytest.param(lambda content: content[: len(content) // 2], id="truncated"),
        pytest.param(lambda content: b"", id="empty"),
    ],
)
def test_a_damaged_snapshot_is_a_problem(damage: Callable[[bytes], bytes], sqlite: Lived) -> None:
    where, snapshot = sqlite.where, newest_snapshot(sqlite.where)
    content = damage(b"".join(snapshot.parts))
    store_snapshot(where, Snapshot(snapshot.position, snapshot.digest, (content,)))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {snapshot.position}"):
        checked(where)
    assert with_store(where, recover_state).hash() == sqlite.hash  # the log needs no snapshot


def test_a_snapshot_of_another_version_is_a_note(
    log: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stopwise.service.state.FORMAT", 999)
    position = tampered(log.where, lambda state: None)
    monkeypatch.undo()
    assert checked(log.where).snapshots == {position: "not compared"}


def test_a_damaged_snapshot_before_a_compacted_log(sqlite: Lived) -> None:
    where, first = sqlite.where, newest_snapshot(sqlite.where)

    async def scenario() -> None:
        async with running(where) as service:
            await play(service, 3)

    asyncio.run(scenario())
    with_store(where, lambda store: store.drop_before(first.position + 2))
    found = checked(where)
    assert found.snapshots == {first.position: "not compared", found.end: "equal"}
    assert (found.first, found.applied) == (first.position + 3, 0)
    store_snapshot(where, msgspec.structs.replace(first, parts=(bytes(500),)))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {first.position}"):
        checked(where)


def test_a_snapshot_of_another_state_or_another_log(sqlite: Lived) -> None:
    where, snapshot = sqlite.where, newest_snapshot(sqlite.where)
    for other in (
        msgspec.structs.replace(snapshot, digest=bytes(16)),
        msgspec.structs.replace(snapshot, position=snapshot.position - 1),
    ):
        store_snapshot(where, other)
        with pytest.raises(CorruptLogError, match=f"snapshot at event {other.position}"):
            checked(where)
        change(where, "DELETE FROM snapshot WHERE position = ?", (other.position,))

    def forget(state: State) -> None:
        state.order[0].ledger.learned -= 1

    position = tampered(where, forget)
    with pytest.raises(CorruptLogError, match=f"snapshot at event {position}"):
        checked(where)
