"""Verification of logs: rebuilding the state, and detecting damage."""

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


async def rebuild(where: str) -> State:
    return (await verify_log(where)).state


async def verify_log(where: str) -> Verified:
    return await using(where, verify)


async def expect_damage(where: str, message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        await verify_log(where)


async def newest_snapshot(where: str) -> Snapshot:
    position = (await using(where, lambda store: store.snapshots()))[-1]
    snapshot = await using(where, lambda store: store.snapshot(position))
    assert snapshot is not None
    return snapshot


async def store_snapshot(where: str, snapshot: Snapshot) -> None:
    """Store a snapshot, replacing any at its position."""
    if snapshot.position in await using(where, lambda store: store.snapshots()):
        change(where, "DELETE FROM snapshot WHERE position = ?", (snapshot.position,))
    await using(where, lambda store: store.save_snapshot(snapshot))


async def write_events(target: Path, blocks: list[list[Event]]) -> str:
    """Write a log with valid digests, as a defect or an attacker could."""
    store = open_store(str(target))
    digest = START
    position = 0
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
    hashes: dict[int, str] = {}
    async with running(where) as service:
        await service.create(TRIAGE, None)
        for k in range(12):
            await play(service, 1, seed=k)
            hashes[service.state.position] = (await service.state_hash()).hash
        file = tmp_path / "triage.stopwise"
        (await rebuild(where)).cascades["triage"].policy.save(file)
        policy = sw.load(file)  # continues like the policy of the service
        for k in range(20):
            x = [k / 20, 1 - k / 10]
            assert policy.decide(x).stop == (await open_round(service, x)).stop
    state = State()
    for block in await using(where, blocks_of):
        apply_block(state, block)
        assert hashes.pop(state.position, state_hash(state)) == state_hash(state)
    assert not hashes


async def test_the_state_does_not_depend_on_blocks(sqlite: SampleLog, tmp_path: Path) -> None:
    events = [event for block in await events_of(sqlite.where) for event in block][:6]
    one_block = await write_events(tmp_path / "one.db", [events])
    many = await write_events(tmp_path / "many.db", [[event] for event in events])
    assert state_hash(await rebuild(one_block)) == state_hash(await rebuild(many))


# -- events ---------------------------------------------------------------------------------------


async def test_changed_and_missing_events_are_detected(log: SampleLog) -> None:
    where, blocks = log.where, await using(log.where, blocks_of)
    verified = await verify_log(where)
    assert verified.hash == log.hash
    assert (verified.first, verified.end, verified.applied) == (1, blocks[-1].end, verified.end)
    assert (verified.snapshots, verified.divergences) == ({verified.end: "equal"}, {})
    assert verified.times == [blocks[0].time, blocks[-1].time]
    victim = blocks[40]
    flipped = bytearray(victim.payload)
    flipped[len(flipped) // 2] ^= 0x10
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (bytes(flipped), victim.base))
    await expect_damage(where, f"events {victim.base} to {victim.end}")
    change(where, "DELETE FROM block WHERE base = ?", (victim.base,))
    await expect_damage(where, f"event {victim.end + 1}")
    change(where, "DELETE FROM block WHERE base = ?", (blocks[-1].base,))
    await expect_damage(where, f"event {blocks[-1].base - 1}")  # the snapshot is later


async def test_a_contradictory_event_is_detected(sqlite: SampleLog, tmp_path: Path) -> None:
    blocks = await events_of(sqlite.where)
    unknown_round = Reported(0, 9999, [0], [b'"ill"'], True, 0.0)
    forged = await write_events(tmp_path / "forged.db", [*blocks, [unknown_round]])
    await expect_damage(forged, f"event {sum(map(len, blocks)) + 1}")


async def test_a_different_decision_is_counted_as_divergence(
    sqlite: SampleLog, tmp_path: Path
) -> None:
    def edit(event: Event) -> Event:
        if not isinstance(event, Opened) or event.count != 5:
            return event
        stop = bytes([(event.stops[4] + 1) % 3])  # of a round that stays open
        rule_stops = event.rule_stops and event.rule_stops[:4] + stop
        return msgspec.structs.replace(event, stops=event.stops[:4] + stop, rule_stops=rule_stops)

    blocks = [[edit(event) for event in block] for block in await events_of(sqlite.where)]
    other = await write_events(tmp_path / "other.db", blocks)
    assert (await verify_log(other)).divergences == {"triage": 1}


# -- snapshots ------------------------------------------------------------------------------------


async def store_edited_snapshot(where: str, edit: Callable[[State], Any]) -> int:
    """Store a snapshot of an edited state; return its position."""
    state = await using(where, recover_state)
    edit(state)
    await store_snapshot(where, take_snapshot(state))
    return state.position


async def test_a_damaged_snapshot_is_detected_and_recovery_skips_it(sqlite: SampleLog) -> None:
    where, snapshot = sqlite.where, await newest_snapshot(sqlite.where)
    content, replace = b"".join(snapshot.parts), msgspec.structs.replace
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for other in (
        *(replace(snapshot, parts=(part,)) for part in (flipped, content[:middle], b"")),
        replace(snapshot, digest=bytes(16)),  # of another log
        replace(snapshot, position=snapshot.position - 1),
    ):
        await store_snapshot(where, other)
        await expect_damage(where, f"snapshot at event {other.position}")
        recovered = await using(where, recover_state)
        assert (state_hash(recovered), recovered.log_digest) == (sqlite.hash, snapshot.digest)
        change(where, "DELETE FROM snapshot WHERE position = ?", (other.position,))

    def forget(state: State) -> None:
        state.order[0].ledger.learned -= 1

    def go_beyond(state: State) -> None:
        state.position += 1

    position = await store_edited_snapshot(where, forget)
    await expect_damage(where, f"snapshot at event {position}")
    change(where, "DELETE FROM snapshot WHERE position = ?", (position,))
    await expect_damage(
        where, f"events up to {await store_edited_snapshot(where, go_beyond)} were acknowledged"
    )
    assert state_hash(await using(where, recover_state)) == sqlite.hash


async def test_a_snapshot_of_another_version_is_not_compared(
    log: SampleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stopwise.service.persistence.snapshots.FORMAT", 999)
    position = await store_edited_snapshot(log.where, lambda state: None)
    monkeypatch.undo()
    assert (await verify_log(log.where)).snapshots == {position: "not compared"}


async def test_a_damaged_snapshot_of_a_compacted_log_is_detected(sqlite: SampleLog) -> None:
    where, first = sqlite.where, await newest_snapshot(sqlite.where)
    async with running(where) as service:
        await play(service, 3)
    await using(where, lambda store: store.drop_before(first.position + 2))
    verified = await verify_log(where)
    assert verified.snapshots == {first.position: "not compared", verified.end: "equal"}
    assert (verified.first, verified.applied) == (first.position + 3, 0)
    await store_snapshot(where, msgspec.structs.replace(first, parts=(bytes(500),)))
    await expect_damage(where, f"snapshot at event {first.position}")
