"""Disk and memory of a service over many rounds, with compaction: do they level off?"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth import _resident
from benchmarks.report import table
from benchmarks.service import ARMS, N_CONTEXT
from benchmarks.timing import progress
from stopwise.service.domain import messages as m
from stopwise.service.persistence.stores.opening import open_existing_store, open_store
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.tools.compaction import compact, plan

ROUNDS = 200_000
STEPS = 10  # at which the log is compacted and everything is measured
BATCH = 500
KEEP_OPEN = 1_000
LOST = 0.1  # of rounds whose outputs never come
NOTE = f"""\
K = 3, d' = 10, keep_open = {KEEP_OPEN:,}; the outputs of {LOST:.0%} of the rounds never come. At
each row the log is compacted to its snapshot. "policy" is the memory of what was learned, "rounds"
that of the ledger (43 bytes each, from the last compaction or the oldest open one on), "process"
all. They are forgotten a little after the log was compacted, so at the next row."""


async def measured(folder: Path, rounds: int, policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Play rounds on a service; return what it takes at each step."""
    where = str(folder / "log.db")
    service = Service(open_store(where), Settings(store=where, max_batch=BATCH))
    await service.start()
    while not service.ready:
        await asyncio.sleep(0.01)
    arms = [m.Arm(name, cost) for name, cost in ARMS]
    features = {"kind": "polynomial", "degree": 1}
    spec = m.CascadeSpec(
        "bench", arms, N_CONTEXT, features=features, policy=policy, keep_open=KEEP_OPEN
    )
    await service.create(spec, None)
    random, found = np.random.default_rng(0), list[dict[str, Any]]()
    while (played := len(service.state.order[0].ledger)) < rounds:
        xs = random.uniform(-1, 1, (BATCH, N_CONTEXT)).round(4)
        opened, _ = await service.open_rounds("bench", m.BatchRequest(xs.tolist()), None)
        reports = []
        for x, one in zip(xs, opened, strict=True):
            if random.random() >= LOST:
                said: list[Any] = [
                    bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range((one.stop or 0) + 1)
                ]
                reports.append(service.report("bench", one.id, m.OutputsRequest(said)))
        await asyncio.gather(*reports)
        if (played + BATCH) * STEPS // rounds > played * STEPS // rounds:
            progress(f"level off: {played + BATCH:,} of {rounds:,} rounds")
            found.append(await _row(service, folder, where))
    await service.stop()
    return found


async def _row(service: Service, folder: Path, where: str) -> dict[str, Any]:
    async with open_existing_store(where) as store:
        await compact(store, await plan(store, 0.0))
    cascade = service.state.order[0]
    policy: Any = cascade.policy
    columns = cascade.ledger.columns()
    return {
        "rounds": len(cascade.ledger),
        "disk_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        "policy_mb": policy.nbytes / 1e6,
        "rounds_mb": sum(len(column) * column.itemsize for column in columns) / 1e6,
        "process_mb": (_resident() or 0) / 1e6,
        "open": len(cascade.ledger.open),
    }


def run(quick: bool = False, policy: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Play rounds with compaction; ``policy`` are settings such as ``{"half_life": 10000}``."""
    settings = {"kind": "uss-laplace"} | (policy or {})
    with tempfile.TemporaryDirectory(prefix="stopwise-level-") as folder:
        found = asyncio.run(measured(Path(folder), 40_000 if quick else ROUNDS, settings))
    rows = [[one["rounds"], *(float(value) for value in [*one.values()][1:-1])] for one in found]
    head = ("rounds", "disk MB", "policy MB", "rounds MB", "process MB")
    # What the second half of the rounds added, beside the first.
    half, last = found[len(found) // 2 - 1], found[-1]
    grown = {
        name: (last[name] - half[name]) / max(half[name], 1e-9)
        for name in ("disk_mb", "policy_mb", "rounds_mb")
    }
    words = ", ".join(f"{name[:-3]} {share:+.0%}" for name, share in grown.items())
    note = f"Policy {settings}. The second half of the rounds: {words}.\n{NOTE}"
    title = "Disk and memory of a service, compacted"
    return table(title, head, rows, note), {"policy": settings, "rows": found, "grown": grown}
