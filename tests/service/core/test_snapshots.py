"""A snapshot restores the state bit for bit; a damaged one is refused, and the log is read."""

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
from tests.service.tools.sample_logs import live


async def filled(where: str) -> State:
    """Write a log that has something of everything; return the state at its end."""
    async with running(where) as service:
        await live(service)
    return service.state


@pytest.mark.parametrize("part", [500, 4 << 20])
async def test_a_snapshot_in_parts_restores_bit_for_bit(
    where: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PART", part)

    live = await filled(where)
    made = take_snapshot(live)
    assert max(map(len, made.parts)) <= max(part, 4096)  # what is shown is one part
    assert part > 500 or len(made.parts) > 50
    store = open_store(where)
    await store.open()
    await store.save_snapshot(made)
    kept = await store.snapshot(made.position)
    await store.close()
    assert kept == made
    restored = restore_snapshot(made)
    assert restored is not None
    assert state_hash(restored) == state_hash(live) == state_hash(await folded(where))
    assert take_snapshot(restored) == made  # what the dashboard shows included
    assert (restored.position, restored.log_digest) == (live.position, live.log_digest)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    whole = take_snapshot(asyncio.run(filled(str(tmp_path / "log.db"))))
    content, rng = b"".join(whole.parts), random.Random(1)
    size, format_at = len(content), range(len(MAGIC), len(MAGIC) + 4)
    cuts = [0, 4, len(MAGIC), 12, 44, 45, size // 2, size - 1]
    damaged = [content[:cut] for cut in cuts]
    damaged += [content[:cut] + bytes(size - cut) for cut in cuts]  # zeroed from there on
    damaged += [content + b"\0"]
    for k in [*range(60), *(rng.randrange(60, size) for _ in range(100))]:
        if k not in format_at:
            flipped = bytearray(content)
            flipped[k] ^= 1 << rng.randrange(8)
            damaged.append(bytes(flipped))
    for one in set(damaged) - {content}:
        with pytest.raises(CorruptLogError):
            restore_snapshot(replace(whole, parts=(one,)))
    with pytest.raises(CorruptLogError):
        restore_snapshot(replace(whole, parts=whole.parts[:-1]))
    with pytest.raises(CorruptLogError):
        restore_snapshot(replace(whole, position=whole.position - 1))
    other = MAGIC + (FORMAT + 1).to_bytes(4, "little") + content[format_at.stop :]
    assert restore_snapshot(replace(whole, parts=(other,))) is None
