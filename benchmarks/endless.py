"""Time and memory of a policy with a half-life, over very many rounds in one process."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress
from stopwise import Cascade, Polynomial, make

ROUNDS, QUICK, CHUNK = 100_000_000, 2_000_000, 200_000
HALF_LIFE, POLICY = 100_000, "uss-laplace"
FULL = 32 * HALF_LIFE  # rounds after which the history no longer grows


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Play three arms and four numbers a context; disagreement turns around now and then."""
    rounds = QUICK if quick else ROUNDS
    policy: Any = make(
        POLICY,
        Cascade([0.02, 0.1, 0.15]),
        features=Polynomial(1),
        context_dim=4,
        half_life=HALF_LIFE / 20 if quick else HALF_LIFE,
    )
    rows: list[tuple[Any, ...]] = []
    began = time.perf_counter()
    for done in range(0, rounds, CHUNK):
        random = np.random.default_rng(done)
        contexts = random.uniform(-1, 1, (CHUNK, 4))
        sign = 1 if done // (10 * HALF_LIFE) % 2 else -1
        chance = np.array([0.35, 0.2, 0.1]) * (0.5 + (sign * contexts[:, :1] > 0))
        outputs = (random.random((CHUNK, 3)) < chance).astype(np.int64)
        start = time.process_time()
        stops = policy.run(contexts, outputs)
        spent = (time.process_time() - start) / CHUNK * 1e6
        stored = policy.effort["rows_stored"]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        rows.append((done + CHUNK, spent, stored, policy.nbytes / 1e6, peak, float(stops.mean())))
        progress(f"{done + CHUNK:,} rounds, {spent:.1f} µs a round, peak {peak:.0f} MB")
    progress("")
    times = np.array([row[1] for row in rows])
    end, start, million = np.median(times[-50:]), np.median(times[:50]), np.mean(times[:5])
    full = np.median(times[FULL // CHUNK :][:50]) if rounds > FULL else start
    minutes = (time.perf_counter() - began) / 60
    note = (
        f"{rounds:,} rounds in {minutes:.0f} minutes, drawing them included. A round at the end "
        f"(CPU time, median of the last 50 parts of {CHUNK:,} rounds) takes {end / start:.2f} of "
        f"one in the first 50, {end / million:.2f} of one in the first million, while the history "
        f"is short, and {end / full:.2f} of one in the 50 after the history is full."
    )
    headings = ["rounds", "µs a round", "rows stored", "MB of the policy", "peak MB", "mean stop"]
    shown = rows if quick else rows[:25:5] + rows[49::50]
    return table(f"{POLICY}, half-life {HALF_LIFE:,}", headings, shown, note), {"rows": rows}
