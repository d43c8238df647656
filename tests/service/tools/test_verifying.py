"""Damage is found and named; what is no damage is told from it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stopwise.errors import CorruptLogError
from stopwise.policies.base import Policy
from stopwise.service import events as codec
from stopwise.service.events import Decided, Event, Told
from stopwise.service.recovery import recovered
from stopwise.service.state import State
from stopwise.service.store.base import START, Block, Snapshot, chained
from stopwise.service.tools import words
from stopwise.service.tools.opening import existing
from stopwise.service.tools.verifying import Verified, verify
from tests.service.tools.making import at_once, blocks_of, change, lived, opened


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


def test_a_log_without_damage(where: str) -> None:
    live = lived(where, snapshot_every=30)
    found = checked(where)
    assert found.hash == live
    assert (found.first, found.folded, found.unfolded) == (1, found.end, 0)
    assert len(found.snapshots) == 2
    assert found.snapshots[-1] == found.end
    assert found.exact
    assert found.unread == []
    text = " ".join(words.of_verified(found))
    assert f"events 1 to {found.end}" in text
    assert live in text


def test_a_byte_flipped_in_a_block_is_named(where: str) -> None:
    lived(where)
    victim = blocks(where)[40]
    for at in (0, len(victim.payload) // 2, len(victim.payload) - 1):
        damaged = bytearray(victim.payload)
        damaged[at] ^= 0x10
        change(where, "UPDATE block SET payload = ? WHERE base = ?", (bytes(damaged), victim.base))
        with pytest.raises(CorruptLogError) as caught:
            checked(where)
        assert f"events {victim.base} to {victim.end} is not what was written" in str(caught.value)
        assert f"Events 1 to {victim.base - 1} are whole" in str(caught.value)
    change(where, "UPDATE block SET payload = ? WHERE base = ?", (victim.payload, victim.base))
    assert checked(where).exact


def test_a_missing_block_is_named(where: str) -> None:
    lived(where)
    victim = blocks(where)[30]
    change(where, "DELETE FROM block WHERE base = ?", (victim.base,))
    with pytest.raises(
        CorruptLogError,
        match=f"goes on at event {victim.end + 1} where {victim.base} should be",
    ):
        checked(where)


def test_a_missing_end_is_noticed_where_a_snapshot_knew_it(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    last = blocks(where)[-1]
    change(where, "DELETE FROM block WHERE base = ?", (last.base,))
    with pytest.raises(CorruptLogError, match=f"snapshot of event {last.end}.*end is missing"):
        checked(where)


def test_an_event_that_cannot_be_is_named(tmp_path: Path) -> None:
    where, forged = str(tmp_path / "log.db"), tmp_path / "forged.db"
    lived(where)
    end = blocks(where)[-1].end
    nobody = Told(0, 9999, [0], [b'"ill"'], True, 0.0)
    rewritten(where, forged, lambda _, event: event, [nobody])
    with pytest.raises(CorruptLogError, match=f"event {end + 1} contradicts those before it"):
        checked(str(forged))


def test_another_decision_than_here_is_counted_and_no_damage(tmp_path: Path) -> None:
    where, other = str(tmp_path / "log.db"), tmp_path / "other.db"
    lived(where)
    batches = [
        (position, event)
        for block in blocks(where)
        for position, event in enumerate(codec.decode(block.payload), start=block.base)
        if isinstance(event, Decided) and len(event.stops) == 5
    ]
    ((at, batch),) = batches
    stops = bytearray(batch.stops)
    stops[4] = (stops[4] + 1) % 3  # the last of it stays open, so that nothing contradicts it

    def edit(position: int, event: Event) -> Event:
        if position != at:
            return event
        wanted = batch.wanted and batch.wanted[:4] + bytes(stops[4:])
        return msgspec.structs.replace(batch, stops=bytes(stops), wanted=wanted)

    rewritten(where, other, edit)
    found = checked(str(other))
    assert found.divergences == {"triage": 1}
    assert found.diverged_at == at
    assert not found.exact
    text = " ".join(words.of_verified(found))
    assert "1 of triage" in text
    assert "no damage" in text


def keep(where: str, edit: Callable[[State], None], *, at: int | None = None) -> int:
    """Store a snapshot of a state that was tampered with; return its position."""

    async def scenario() -> int:
        async with opened(where) as store:
            state = await recovered(store)
            good = state.snapshot()
            edit(state)
            made = state.snapshot()
            position = good.position if at is None else at
            await store.keep_snapshot(Snapshot(position, good.digest, made.payload))
            return position

    return asyncio.run(scenario())


def shifted(where: str, by: float) -> Callable[[State], None]:
    """Return what puts a policy in place that saw contexts smaller by a share of them."""

    def smaller(position: int, event: Event) -> Event:
        del position
        if not isinstance(event, Decided):
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


def test_a_damaged_snapshot_is_named(where: str) -> None:
    lived(where)

    async def newest() -> Snapshot:
        async with opened(where) as store:
            found = await store.latest_snapshot()
            assert found is not None
            return found

    snapshot = asyncio.run(newest())
    damaged = bytearray(snapshot.payload)
    damaged[len(damaged) // 2] ^= 1
    change(
        where,
        "UPDATE snapshot SET payload = ? WHERE position = ?",
        (bytes(damaged), snapshot.position),
    )
    with pytest.raises(CorruptLogError, match=f"snapshot at event {snapshot.position} is damaged"):
        checked(where)
    assert asyncio.run(_recovered(where)) == blocks(where)[-1].end  # the log needs no snapshot


async def _recovered(where: str) -> int:
    async with opened(where) as store:
        return (await recovered(store)).position


def test_a_snapshot_of_something_else_is_named(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)

    def forget(state: State) -> None:
        state.order[0].ledger.learned -= 1

    position = keep(where, forget)
    with pytest.raises(
        CorruptLogError, match=f"snapshot at event {position} is not what the events"
    ):
        checked(where)


def test_last_bits_of_another_version_are_told_from_damage(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    live = lived(where)
    position = keep(where, shifted(where, 1e-13))
    found = checked(where)
    assert (found.unlike, found.snapshots, found.hash) == ([position], [], live)
    assert "last bits" in " ".join(words.of_verified(found))
    keep(where, shifted(where, 1e-3))
    with pytest.raises(CorruptLogError, match=f"snapshot at event {position}"):
        checked(where)


def test_an_empty_log(where: str) -> None:
    async def make() -> None:
        async with opened(where):
            pass

    asyncio.run(make())
    assert words.of_verified(checked(where)) == ["The log is empty."]
