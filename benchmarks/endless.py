"""Time and memory of a policy with a half-life over 100,000,000 rounds."""

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
    """Run three arms with four context columns; the disagreement reverses periodically."""
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
        progress(f"{done + CHUNK:,} rounds, {spent:.1f} µs per round, peak {peak:.0f} MB")
    progress("")
    times = np.array([row[1] for row in rows])
    end, start, million = np.median(times[-50:]), np.median(times[:50]), np.mean(times[:5])
    full = np.median(times[FULL // CHUNK :][:50]) if rounds > FULL else start
    minutes = (time.perf_counter() - began) / 60
    note = (
        f"{rounds:,} rounds in {minutes:.0f} minutes, including the time to draw them. The CPU "
        f"time of a round at the end (median of the last 50 chunks of {CHUNK:,} rounds), relative "
        f"to the first 50 chunks: {end / start:.2f}; to the first million rounds, with a short "
        f"history: {end / million:.2f}; to the 50 chunks after the history is full: "
        f"{end / full:.2f}."
    )
    headings = ["rounds", "µs per round", "rows stored", "policy MB", "peak MB", "mean stop"]
    displayed = rows if quick else rows[:25:5] + rows[49::50]
    return table(f"{POLICY}, half-life {HALF_LIFE:,}", headings, displayed, note), {"rows": rows}
