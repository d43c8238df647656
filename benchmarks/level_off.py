"""Disk and memory of a service over many rounds with regular compaction."""

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
STEPS = 10  # compactions and measurements
BATCH = 500
KEEP_OPEN = 1_000
LOST = 0.1  # share of rounds whose outputs never arrive
NOTE = f"""\
K = 3, d' = 10, keep_open = {KEEP_OPEN:,}; the outputs of {LOST:.0%} of the rounds never arrive. At
each row, the log is compacted to its snapshot. "policy" is the memory of the policy, "rounds" that
of the ledger (43 bytes each, since the last compaction or the oldest open round), "process" all.
Rounds are dropped shortly after a compaction, so at the next row."""


async def measure(folder: Path, rounds: int, policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Run rounds on a service; return its disk and memory at each step."""
    url = str(folder / "log.db")
    service = Service(open_store(url), Settings(store=url, max_batch=BATCH))
    await service.start()
    while not service.ready:
        await asyncio.sleep(0.01)
    arms = [m.Arm(name, cost) for name, cost in ARMS]
    features = {"kind": "polynomial", "degree": 1}
    spec = m.CascadeSpec(
        "bench", arms, N_CONTEXT, features=features, policy=policy, keep_open=KEEP_OPEN
    )
    await service.create(spec, None)
    random, rows = np.random.default_rng(0), list[dict[str, Any]]()
    while (played := len(service.state.order[0].ledger)) < rounds:
        xs = random.uniform(-1, 1, (BATCH, N_CONTEXT)).round(4)
        opened, _ = await service.open_rounds("bench", m.BatchRequest(xs.tolist()), None)
        reports = []
        for x, round_ in zip(xs, opened, strict=True):
            if random.random() >= LOST:
                outputs: list[Any] = [
                    bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range((round_.stop or 0) + 1)
                ]
                reports.append(service.report("bench", round_.id, m.OutputsRequest(outputs)))
        await asyncio.gather(*reports)
        if (played + BATCH) * STEPS // rounds > played * STEPS // rounds:
            progress(f"level off: {played + BATCH:,} of {rounds:,} rounds")
            rows.append(await _row(service, folder, url))
    await service.stop()
    return rows


async def _row(service: Service, folder: Path, url: str) -> dict[str, Any]:
    async with open_existing_store(url) as store:
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
    """Run rounds with compaction; ``policy`` has options such as ``{"half_life": 10000}``."""
    settings = {"kind": "uss-laplace"} | (policy or {})
    with tempfile.TemporaryDirectory(prefix="stopwise-level-") as folder:
        results = asyncio.run(measure(Path(folder), 40_000 if quick else ROUNDS, settings))
    rows = [[row["rounds"], *(float(value) for value in [*row.values()][1:-1])] for row in results]
    head = ("rounds", "disk MB", "policy MB", "rounds MB", "process MB")
    # Growth in the second half of the rounds, relative to the first.
    half, last = results[len(results) // 2 - 1], results[-1]
    grown = {
        name: (last[name] - half[name]) / max(half[name], 1e-9)
        for name in ("disk_mb", "policy_mb", "rounds_mb")
    }
    growth = ", ".join(f"{name[:-3]} {share:+.0%}" for name, share in grown.items())
    note = f"Policy {settings}. The second half of the rounds: {growth}.\n{NOTE}"
    title = "Disk and memory of a service, compacted"
    return table(title, head, rows, note), {"policy": settings, "rows": results, "grown": grown}
