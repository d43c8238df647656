"""Snapshots restore the state bit for bit, and damaged ones are rejected."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from stopwise.errors import CorruptLogError
from stopwise.service.domain.state import State
from stopwise.service.persistence import snapshots
from stopwise.service.persistence.snapshots import (
    FORMAT,
    MAGIC,
    restore_snapshot,
    state_hash,
    take_snapshot,
)
from stopwise.service.persistence.stores.opening import open_store
from tests.service.core.services import folded, running
from tests.service.tools.sample_logs import play_sample


async def filled(where: str) -> State:
    """Write a log with events of every kind; return the state at its end."""
    async with running(where) as service:
        await play_sample(service)
    return service.state


@pytest.mark.parametrize("part", [500, 4 << 20])
async def test_snapshot_in_parts_restores_bit_for_bit(
    where: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PART", part)

    live = await filled(where)
    snapshot = take_snapshot(live)
    # The data of the dashboard is a single part.
    assert max(map(len, snapshot.parts)) <= max(part, 4096)
    assert part > 500 or len(snapshot.parts) > 50
    store = open_store(where)
    await store.open()
    await store.save_snapshot(snapshot)
    stored = await store.snapshot(snapshot.position)
    await store.close()
    assert stored == snapshot
    restored = restore_snapshot(snapshot)
    assert restored is not None
    assert state_hash(restored) == state_hash(live) == state_hash(await folded(where))
    assert take_snapshot(restored) == snapshot  # including the data of the dashboard
    assert (restored.position, restored.log_digest) == (live.position, live.log_digest)


def test_damaged_snapshot_is_rejected(tmp_path: Path) -> None:
    intact = take_snapshot(asyncio.run(filled(str(tmp_path / "log.db"))))
    content, rng = b"".join(intact.parts), random.Random(1)
    size, format_at = len(content), range(len(MAGIC), len(MAGIC) + 4)
    cuts = [0, 4, len(MAGIC), 12, 44, 45, size // 2, size - 1]
    damaged = [content[:cut] for cut in cuts]
    damaged += [content[:cut] + bytes(size - cut) for cut in cuts]  # zeroed after the cut
    damaged += [content + b"\0"]
    for k in [*range(60), *(rng.randrange(60, size) for _ in range(100))]:
        if k not in format_at:
            flipped = bytearray(content)
            flipped[k] ^= 1 << rng.randrange(8)
            damaged.append(bytes(flipped))
    for corrupt in set(damaged) - {content}:
        with pytest.raises(CorruptLogError):
            restore_snapshot(replace(intact, parts=(corrupt,)))
    with pytest.raises(CorruptLogError):
        restore_snapshot(replace(intact, parts=intact.parts[:-1]))
    with pytest.raises(CorruptLogError):
        restore_snapshot(replace(intact, position=intact.position - 1))
    other = MAGIC + (FORMAT + 1).to_bytes(4, "little") + content[format_at.stop :]
    assert restore_snapshot(replace(intact, parts=(other,))) is None
