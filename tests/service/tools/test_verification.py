"""A state can be rebuilt from its log; damage is found and distinguished from what is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError
from stopwise.service.domain.events import Event, Opened, Reported
from stopwise.service.domain.state import State
from stopwise.service.persistence import blocks as codec
from stopwise.service.persistence.blocks import START, Block, apply_block, chain_digest
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.snapshots import state_hash, take_snapshot
from stopwise.service.persistence.stores.base import Snapshot
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.tools.verification import Verified, verify
from tests.service.tools.conftest import SampleLog
from tests.service.tools.sample_logs import (
    TRIAGE,
    blocks_of,
    change,
    open_round,
    play,
    running,
    using,
)


async def rebuilt(where: str) -> State:
    return (await checked(where)).state


async def checked(where: str) -> Verified:
    return await using(where, verify)


async def damaged(where: str, words: str) -> None:
    with pytest.raises(CorruptLogError, match=words):
        await checked(where)


async def newest_snapshot(where: str) -> Snapshot:
    position = (await using(where, lambda store: store.snapshots()))[-1]
    found = await using(where, lambda store: store.snapshot(position))
    assert found is not None
    return found


async def store_snapshot(where: str, snapshot: Snapshot) -> None:
    """Store a snapshot instead of the one at its position, if there is one."""
    if snapshot.position in await using(where, lambda store: store.snapshots()):
        change(where, "DELETE FROM snapshot WHERE position = ?", (snapshot.position,))
    await using(where, lambda store: store.save_snapshot(snapshot))


async def write_events(target: Path, blocks: list[list[Event]]) -> str:
    """Write a log with digests that match its events, as a forger or a defect would."""
    store, digest, position = open_store(str(target)), START, 0
    await store.open()
    for events in blocks:
        payload = codec.join_events(map(codec.encode_event, events))
        digest = chain_digest(digest, payload)
        await store.begin(position)
        await store.commit(Block(position + 1, len(events), 0.0, digest, payload))
        position += len(events)
    await store.close()
    return str(target)


async def events_of(where: str) -> list[list[Event]]:
    return [codec.decode_events(block.payload) for block in await using(where, blocks_of)]


# -- rebuilding -----------------------------------------------------------------------------------


async def test_the_state_after_every_event_can_be_rebuilt(where: str, tmp_path: Path) -> None:
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
    state = State()
    for block in await using(where, blocks_of):
        apply_block(state, block)
        assert seen.pop(state.position, state_hash(state)) == state_hash(state)
    assert not seen


async def test_how_events_are_cut_into_blocks_does_not_matter(
    sqlite: SampleLog, tmp_path: Path
) -> None:
    events = [event for block in await events_of(sqlite.where) for event in block][:6]
    one_block = await write_events(tmp_path / "one.db", [events])
    many = await write_events(tmp_path / "many.db", [[event] for event in events])
    assert state_hash(await rebuilt(one_block)) == state_hash(await rebuilt(many))


# -- events ---------------------------------------------------------------------------------------


async def test_a_log_without_damage_and_with_some(log: SampleLog) -> None:
    where, blocks = log.where, await using(log.where, blocks_of)
    found = await checked(where)
    assert found.hash == log.hash
    assert (found.first, found.end, found.applied) == (1, blocks[-1].end, found.end)
    assert (found.snapshots, found.divergences) == ({found.end: "equal"}, {})
    assert found.times == [blocks[0].time, blocks[-1].time]
    victim = blocks[40]
    flipped = bytearray(victim.payload)
    flipped[len(flipped) // 2] ^= 0x10
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (bytes(flipped), victim.base))
    await damaged(where, f"events {victim.base} to {victim.end}")
    change(where, "DELETE FROM block WHERE base = ?", (victim.base,))
    await damaged(where, f"event {victim.end + 1}")
    change(where, "DELETE FROM block WHERE base = ?", (blocks[-1].base,))
    await damaged(where, f"event {blocks[-1].base - 1}")  # the snapshot knows of a later one


async def test_an_event_that_contradicts_those_before_it(sqlite: SampleLog, tmp_path: Path) -> None:
    blocks = await events_of(sqlite.where)
    nobody = Reported(0, 9999, [0], [b'"ill"'], True, 0.0)
    forged = await write_events(tmp_path / "forged.db", [*blocks, [nobody]])
    await damaged(forged, f"event {sum(map(len, blocks)) + 1}")


async def test_another_decision_than_here_is_counted_and_no_damage(
    sqlite: SampleLog, tmp_path: Path
) -> None:
    def edit(event: Event) -> Event:
        if not isinstance(event, Opened) or event.count != 5:
            return event
        stop = bytes([(event.stops[4] + 1) % 3])  # this round stays open: nothing contradicts it
        rule_stops = event.rule_stops and event.rule_stops[:4] + stop
        return msgspec.structs.replace(event, stops=event.stops[:4] + stop, rule_stops=rule_stops)

    blocks = [[edit(event) for event in block] for block in await events_of(sqlite.where)]
    other = await write_events(tmp_path / "other.db", blocks)
    assert (await checked(other)).divergences == {"triage": 1}


# -- snapshots ------------------------------------------------------------------------------------


async def tampered(where: str, edit: Callable[[State], Any]) -> int:
    """Store a snapshot of a state that was tampered with; return its position."""
    state = await using(where, recover_state)
    edit(state)
    await store_snapshot(where, take_snapshot(state))
    return state.position


async def test_a_wrong_snapshot_is_damage_and_recovery_skips_it(sqlite: SampleLog) -> None:
    where, snapshot = sqlite.where, await newest_snapshot(sqlite.where)
    content, replace = b"".join(snapshot.parts), msgspec.structs.replace
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for other in (
        *(replace(snapshot, parts=(one,)) for one in (flipped, content[:middle], b"")),
        replace(snapshot, digest=bytes(16)),  # of another log
        replace(snapshot, position=snapshot.position - 1),
    ):
        await store_snapshot(where, other)
        await damaged(where, f"snapshot at event {other.position}")
        recovered = await using(where, recover_state)
        assert (state_hash(recovered), recovered.log_digest) == (sqlite.hash, snapshot.digest)
        change(where, "DELETE FROM snapshot WHERE position = ?", (other.position,))

    def forget(state: State) -> None:
        state.order[0].ledger.learned -= 1

    def go_beyond(state: State) -> None:
        state.position += 1

    position = await tampered(where, forget)
    await damaged(where, f"snapshot at event {position}")
    change(where, "DELETE FROM snapshot WHERE position = ?", (position,))
    await damaged(where, f"events up to {await tampered(where, go_beyond)} are missing")
    assert state_hash(await using(where, recover_state)) == sqlite.hash


async def test_a_snapshot_of_another_version_is_a_note(
    log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stopwise.service.persistence.snapshots.FORMAT", 999)
    position = await tampered(log.where, lambda state: None)
    monkeypatch.undo()
    assert (await checked(log.where)).snapshots == {position: "not compared"}


async def test_a_damaged_snapshot_before_a_compacted_log(sqlite: SampleLog) -> None:
    where, first = sqlite.where, await newest_snapshot(sqlite.where)
    async with running(where) as service:
        await play(service, 3)
    await using(where, lambda store: store.drop_before(first.position + 2))
    found = await checked(where)
    assert found.snapshots == {first.position: "not compared", found.end: "equal"}
    assert (found.first, found.applied) == (first.position + 3, 0)
    await store_snapshot(where, msgspec.structs.replace(first, parts=(bytes(500),)))
    await damaged(where, f"snapshot at event {first.position}")
