"""A log can be applied again; damage is found, and what is not damage is told from it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.policies.base import Policy
from stopwise.service import events as codec
from stopwise.service.events import START, Block, Event, Opened, Reported, chained
from stopwise.service.recovery import recovered
from stopwise.service.state import State
from stopwise.service.store.base import Snapshot
from stopwise.service.tools.checking import Verified, replay, verify
from stopwise.service.tools.reading import existing
from tests.service.tools.making import (
    TRIAGE,
    at_once,
    blocks_of,
    change,
    lived,
    open_round,
    opened,
    play,
    running,
)


async def replayed(where: str, upto: int | None = None) -> State:
    async with existing(where) as store:
        return (await replay(store, upto))[0]


def checked(where: str) -> Verified:
    async def scenario() -> Verified:
        async with existing(where) as store:
            return await verify(store)

    return asyncio.run(scenario())


def blocks(where: str) -> list[Block]:
    async def scenario() -> list[Block]:
        async with opened(where) as store:
            return await blocks_of(store)

    return asyncio.run(scenario())


def newest_snapshot(where: str) -> Snapshot:
    async def scenario() -> Snapshot:
        async with opened(where) as store:
            found = await store.latest_snapshot()
            assert found is not None
            return found

    return asyncio.run(scenario())


def store_snapshot(where: str, snapshot: Snapshot) -> None:
    """Store a snapshot instead of the one at its position, if there is one."""

    async def scenario() -> None:
        async with opened(where) as store:
            if snapshot.position in await store.snapshots():
                change(where, "DELETE FROM snapshot WHERE position = ?", (snapshot.position,))
            await store.keep_snapshot(snapshot)

    asyncio.run(scenario())


def rewritten(
    where: str, target: Path, edit: Callable[[int, Event], Event], more: list[Event] | None = None
) -> None:
    """Write a log with other events and digests that match, as a forger or a defect would."""

    async def scenario() -> None:
        digest, position = START, 0
        made: list[Block] = []
        async with opened(where) as store, opened(str(target)) as other:
            for block in await blocks_of(store):
                events = [
                    edit(position + k, event)
                    for k, event in enumerate(codec.decode(block.payload), start=1)
                ]
                payload = codec.encode(events)
                digest = chained(digest, payload)
                made.append(Block(block.base, block.count, block.time, digest, payload))
                position = block.end
            if more:
                payload = codec.encode(more)
                made.append(Block(position + 1, len(more), 0.0, chained(digest, payload), payload))
            await other.fill(0, START, at_once(made))

    asyncio.run(scenario())


# -- replay ---------------------------------------------------------------------------------------


def test_the_state_after_every_event_can_be_had_again(where: str) -> None:
    async def scenario() -> None:
        seen: dict[int, str] = {}
        async with running(where) as service:
            await service.create(TRIAGE, None)
            for k in range(12):
                await play(service, 1, seed=k)
                seen[service.state.position] = (await service.state_hash()).hash
            policy = service.state.cascades["triage"].policy
            again = (await replayed(where)).cascades["triage"].policy
            assert {name: array.tobytes() for name, array in again.state().items()} == {
                name: array.tobytes() for name, array in policy.state().items()
            }
        for position, hash_ in seen.items():
            assert (await replayed(where, position)).hash() == hash_

    asyncio.run(scenario())


def test_an_event_in_the_middle_of_a_block(where: str) -> None:
    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await asyncio.gather(*(open_round(service, [0.1, 0.2]) for _ in range(5)))
        async with opened(where) as store:
            found = await blocks_of(store)
        events: list[Event] = [e for block in found for e in codec.decode(block.payload)]
        assert len(found) < len(events) == 6
        for upto in range(7):
            expected, digest = State(), START
            for k, event in enumerate(events[:upto], start=1):  # each in a block of its own
                payload = codec.encode([event])
                digest = chained(digest, payload)
                expected.apply(Block(k, 1, 0.0, digest, payload))
            assert (await replayed(where, upto)).hash() == expected.hash()

    asyncio.run(scenario())


def test_events_that_the_log_does_not_have(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    async def scenario() -> None:
        async with existing(where) as store:
            end, _ = await store.end()
            with pytest.raises(InvalidParameterError):
                await replayed(where, end + 1)
            await store.drop_before(10)
        with pytest.raises(InvalidParameterError):
            await replayed(where, 5)

    asyncio.run(scenario())


def test_a_saved_policy_continues_like_that_of_the_service(tmp_path: Path) -> None:
    where, file = str(tmp_path / "log.db"), tmp_path / "triage.stopwise"

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await play(service, 30)
            (await replayed(where)).cascades["triage"].policy.save(file)
            policy = sw.load(file)
            for k in range(40):
                x = [k / 40, 1 - k / 20]
                assert policy.decide(x).stop == (await open_round(service, x)).stop

    asyncio.run(scenario())


# -- events ---------------------------------------------------------------------------------------


def test_a_log_without_damage(where: str) -> None:
    hash_ = lived(where)
    found = checked(where)
    assert found.hash == hash_
    assert (found.first, found.end, found.applied) == (1, blocks(where)[-1].end, found.end)
    assert found.snapshots == {found.end: "equal"}
    assert found.exact


@pytest.mark.parametrize("at", [0, 0.5, 1])
def test_a_byte_flipped_in_a_block(where: str, at: float) -> None:
    lived(where)
    victim = blocks(where)[40]
    damaged = bytearray(victim.payload)
    damaged[round(at * (len(damaged) - 1))] ^= 0x10
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (bytes(damaged), victim.base))
    with pytest.raises(CorruptLogError, match=f"events {victim.base} to {victim.end}"):
        checked(where)
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (victim.payload, victim.base))
    assert checked(where).exact


def test_a_missing_block(where: str) -> None:
    lived(where)
    victim = blocks(where)[30]
    change(where, "DELETE FROM block WHERE base = ?", (victim.base,))
    with pytest.raises(CorruptLogError, match=f"event {victim.end + 1}"):
        checked(where)


def test_an_event_that_contradicts_those_before_it(tmp_path: Path) -> None:
    where, forged = str(tmp_path / "log.db"), tmp_path / "forged.db"
    lived(where)
    end = blocks(where)[-1].end
    nobody = Reported(0, 9999, [0], [b'"ill"'], True, 0.0)
    rewritten(where, forged, lambda _, event: event, [nobody])
    with pytest.raises(CorruptLogError, match=f"event {end + 1}"):
        checked(str(forged))


def test_another_decision_than_here_is_counted_and_no_damage(tmp_path: Path) -> None:
    where, other = str(tmp_path / "log.db"), tmp_path / "other.db"
    lived(where)

    def edit(position: int, event: Event) -> Event:
        del position
        if not isinstance(event, Opened) or event.count != 5:
            return event
        stop = bytes([(event.stops[4] + 1) % 3])  # this round stays open: nothing contradicts it
        rule_stops = event.rule_stops and event.rule_stops[:4] + stop
        return msgspec.structs.replace(event, stops=event.stops[:4] + stop, rule_stops=rule_stops)

    rewritten(where, other, edit)
    found = checked(str(other))
    assert found.divergences == {"triage": 1}
    assert not found.exact


def test_an_empty_log(where: str) -> None:
    async def create() -> None:
        async with opened(where):
            pass

    asyncio.run(create())
    assert checked(where).end == 0


# -- the end --------------------------------------------------------------------------------------


def without_snapshots(where: str) -> None:
    change(where, "DELETE FROM snapshot WHERE position > ?", (0,))


def test_a_missing_end_that_a_snapshot_knows(where: str) -> None:
    lived(where)
    last = blocks(where)[-1]
    change(where, "DELETE FROM block WHERE base = ?", (last.base,))
    with pytest.raises(CorruptLogError, match=f"event {last.base - 1}"):
        checked(where)


def test_acknowledged_events_are_missing(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    without_snapshots(where)
    assert checked(where).snapshots == {}
    last = blocks(where)[-1]
    change(where, "DELETE FROM block WHERE base = ?", (last.base,))
    with pytest.raises(CorruptLogError, match=f"{last.end}"):
        checked(where)
    Path(f"{where}-owner").unlink()  # without the record, nothing is known of the last event
    assert checked(where).end == last.base - 1


def test_another_event_than_the_acknowledged_one(tmp_path: Path) -> None:
    where, other = str(tmp_path / "log.db"), tmp_path / "other.db"
    lived(where)
    without_snapshots(where)

    def edit(position: int, event: Event) -> Event:
        del position
        return msgspec.structs.replace(event, time=event.time + 1)

    rewritten(where, other, edit)
    Path(f"{other}-owner").unlink()
    assert checked(str(other)).end == checked(where).end
    Path(f"{where}-owner").rename(f"{other}-owner")
    with pytest.raises(CorruptLogError, match=f"event {checked(where).end} "):
        checked(str(other))


def test_a_record_older_than_the_end(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    record = Path(f"{where}-owner").read_bytes()

    async def scenario() -> None:
        async with running(where) as service:
            await play(service, 2)

    asyncio.run(scenario())
    Path(f"{where}-owner").write_bytes(record)  # as after a crash of the machine
    assert checked(where).exact


# -- snapshots ------------------------------------------------------------------------------------


def tampered(where: str, edit: Callable[[State], None]) -> int:
    """Store a snapshot of a state that was tampered with; return its position."""

    async def scenario() -> Snapshot:
        async with opened(where) as store:
            state = await recovered(store)
            edit(state)
            return state.snapshot()

    snapshot = asyncio.run(scenario())
    store_snapshot(where, snapshot)
    return snapshot.position


def shifted(where: str, by: float) -> Callable[[State], None]:
    """Return what puts a policy in place that saw contexts smaller by a share of them."""

    def smaller(position: int, event: Event) -> Event:
        del position
        if not isinstance(event, Opened):
            return event
        contexts = np.frombuffer(event.contexts) * (1 - by)
        return msgspec.structs.replace(event, contexts=contexts.tobytes())

    async def scenario() -> Policy:
        async with opened(target) as store:
            return (await recovered(store)).order[0].policy

    target = f"{where}-{by}"
    rewritten(where, Path(target), smaller)
    policy = asyncio.run(scenario())

    def edit(state: State) -> None:
        state.order[0].policy = policy

    return edit


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flipped, id="flipped"),
        pytest.param(lambda content: content[: len(content) // 2], id="truncated"),
        pytest.param(lambda content: content[:20], id="nearly empty"),
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: bytes(len(content)), id="zeroed"),
    ],
)
def test_a_damaged_snapshot_is_a_problem(damage: Callable[[bytes], bytes], where: str) -> None:
    lived(where)
    snapshot = newest_snapshot(where)
    content = damage(b"".join(snapshot.parts))
    store_snapshot(where, Snapshot(snapshot.position, snapshot.digest, (content,)))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {snapshot.position}"):
        checked(where)

    async def position() -> int:
        async with opened(where) as store:
            return (await recovered(store)).position

    assert asyncio.run(position()) == blocks(where)[-1].end  # the log needs no snapshot


def test_a_snapshot_of_another_version_is_a_note(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(where)
    monkeypatch.setattr("stopwise.service.state.FORMAT", 999)
    position = tampered(where, lambda state: None)
    monkeypatch.undo()
    found = checked(where)
    assert found.snapshots == {position: "not compared"}
    assert found.exact


def test_a_damaged_snapshot_before_a_compacted_log(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    first = newest_snapshot(where)

    async def scenario() -> None:
        async with running(where) as service:
            await play(service, 3)
        async with opened(where) as store:
            await store.drop_before(first.position + 2)

    asyncio.run(scenario())
    found = checked(where)
    assert found.snapshots == {first.position: "not compared", found.end: "equal"}
    assert (found.first, found.applied) == (first.position + 3, 0)
    store_snapshot(where, msgspec.structs.replace(first, parts=(bytes(500),)))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {first.position}"):
        checked(where)


def test_a_snapshot_of_another_state(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    def forget(state: State) -> None:
        state.order[0].ledger.learned -= 1

    position = tampered(where, forget)
    with pytest.raises(CorruptLogError, match=f"snapshot at event {position}"):
        checked(where)


def test_a_snapshot_of_another_log(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    snapshot = newest_snapshot(where)
    for other in (
        msgspec.structs.replace(snapshot, digest=bytes(16)),
        msgspec.structs.replace(snapshot, position=snapshot.position - 1),
    ):
        store_snapshot(where, other)
        with pytest.raises(CorruptLogError, match=f"snapshot at event {other.position}"):
            checked(where)
        change(where, "DELETE FROM snapshot WHERE position = ?", (other.position,))


def test_rounding_is_told_from_damage(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    hash_ = lived(where)
    position = tampered(where, shifted(where, 1e-13))
    found = checked(where)
    assert (found.snapshots, found.hash) == ({position: "rounded"}, hash_)
    assert not found.exact
    tampered(where, shifted(where, 1e-3))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {position}"):
        checked(where)
