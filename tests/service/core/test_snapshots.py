"""A snapshot restores the state bit for bit; a damaged one is refused, and the log is read."""

import asyncio
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from stopwise.errors import CorruptLogError
from stopwise.service import messages as m
from stopwise.service import state
from stopwise.service.recovery import recover_state
from stopwise.service.state import FORMAT, MAGIC, State
from stopwise.service.store import open_store
from stopwise.service.store.base import Snapshot
from stopwise.service.store.sqlite import SqliteStore
from tests.service.core.services import folded, running

ARMS = [m.Arm("rule", 0.1), m.Arm("model", 0.2), m.Arm("person", 0.3)]
POLICY = {"kind": "uss-pd", "ridge": 5.0}  # not the default: labels scale with it
WHOLE = m.CascadeSpec("whole", ARMS, context=2, keep_open=30, policy=POLICY)
STAGED = m.CascadeSpec(
    "staged",
    ARMS,
    context=3,
    features={"kind": "per_stage", "maps": [{"kind": "identity"}] * 2, "sees": [2, 3]},
)


async def filled(where: str) -> State:
    """Write a log that has something of everything; return the state at its end."""
    async with running(where) as service:
        for spec in (WHOLE, STAGED):
            await service.create(spec, f"create-{spec.name}")
        rounds: list[m.RoundAnswer] = []
        for start in (0, 25):
            batch = m.BatchRequest([[k / 50, 0.2] for k in range(start, start + 25)])
            rounds += (await service.open_rounds("whole", batch, f"batch-{start}"))[0]
        for one in rounds[30:40]:
            await service.report("whole", one.id, m.OutputsRequest(["yes", "no", "no"]))
            await service.label("whole", one.id, m.LabelRequest("no"))
        await service.report("whole", rounds[45].id, m.OutputsRequest([None, "no"]))
        for k in range(5):
            (one,), _ = await service.open_rounds("staged", m.RoundRequest([0.1]), f"key-{k}")
            for request in (
                m.OutputsRequest(["yes"], [0.1 * k]),
                m.OutputsRequest({"model": "no"}, [0.3]),
                m.OutputsRequest({"person": "no"}),
            )[:k]:
                await service.report("staged", one.id, request)
    return service.state


@pytest.mark.parametrize("part", [50, 4096, 4 << 20])
async def test_a_snapshot_in_parts_restores_bit_for_bit(
    where: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "PART", part)

    live = await filled(where)
    made = live.snapshot()
    assert max(map(len, made.parts)) <= max(part, 4096)  # what is shown is one part
    assert part > 50 or len(made.parts) > 50
    store = open_store(where)
    await store.open()
    await store.save_snapshot(made)
    kept = await store.latest_snapshot()
    await store.close()
    assert kept == made
    restored = State.restored(made)
    assert restored is not None
    assert restored.hash() == live.hash() == (await folded(where)).hash()
    assert restored.snapshot() == made  # what the dashboard shows included
    assert (restored.position, restored.log_digest) == (live.position, live.log_digest)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    whole = asyncio.run(filled(str(tmp_path / "log.db"))).snapshot()
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
            State.restored(replace(whole, parts=(one,)))
    with pytest.raises(CorruptLogError):
        State.restored(replace(whole, parts=whole.parts[:-1]))
    with pytest.raises(CorruptLogError):
        State.restored(replace(whole, position=whole.position - 1))
    other = MAGIC + (FORMAT + 1).to_bytes(4, "little") + content[format_at.stop :]
    assert State.restored(replace(whole, parts=(other,))) is None


@pytest.mark.parametrize("kind", ["truncated", "zeroed", "flipped", "beyond", "other"])
async def test_recovery_skips_a_snapshot_that_is_wrong(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log.db"
    live = await filled(str(path))
    right = live.snapshot()
    last = right.parts[-1]
    longer = tmp_path / "longer.db"
    shutil.copy(path, longer)
    async with running(str(longer)) as service:
        await service.create(replace(WHOLE, name="later"), None)
    wrong: dict[str, Snapshot] = {
        "truncated": replace(right, parts=(*right.parts[:-1], last[:-1])),
        "zeroed": replace(right, parts=tuple(bytes(len(part)) for part in right.parts)),
        "flipped": replace(right, parts=(*right.parts[:-1], bytes([last[0] ^ 1]) + last[1:])),
        "beyond": service.state.snapshot(),
        "other": replace(right, digest=b"0" * 16),
    }
    with sqlite3.connect(path) as sql:
        sql.execute("DELETE FROM snapshot")
    store = SqliteStore(path)
    await store.open()
    await store.save_snapshot(wrong[kind])
    again = await recover_state(store)
    await store.close()
    assert (again.position, again.hash()) == (live.position, live.hash())
