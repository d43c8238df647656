"""Whether a round gets slower as history grows: a single run of a million rounds, in windows."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.peers.numpy_linucb import NumpyLinUCB
from benchmarks.report import table
from benchmarks.timing import REPEATS, cpu_seconds, play, progress
from benchmarks.workload import Workload, make

N_ARMS, N_FEATURES = 5, 10
BASELINE = "numpy LinUCB, stacked"
BLOCK = 10_000
"""Rounds handed over at a time; windows begin and end at multiples of it."""

WINDOWS = [(10_000, 20_000), (90_000, 100_000), (400_000, 500_000), (900_000, 1_000_000)]

NOTE = f"""\
The run is played {REPEATS} times, which is the same work each time, and the best time of each
{BLOCK:,} rounds counts. The rows take turns block by block; numpy LinUCB, whose rounds cannot get
slower, shows how much the machine itself drifted."""


@dataclass
class Curve:
    """One contestant's way through the run, a number for each block.

    Attributes
    ----------
    name
        What the table calls it.
    contestant
        What plays; it keeps its history from block to block.
    road
        Plays one block and returns its CPU seconds.
    nbytes
        What a policy says it holds when the run is over.
    seconds
        CPU seconds of each block.
    """

    name: str
    contestant: Any
    road: Callable[[Any, Workload], float]
    nbytes: int | None = None
    seconds: list[float] = field(default_factory=list)


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Play the long run by both roads; return the table and the result."""
    if not ours.installed():
        return "\nGrowth: stopwise is not installed", {"rows": []}
    windows = WINDOWS[:2] if quick else WINDOWS
    workload = make(windows[-1][1], N_ARMS, N_FEATURES)
    ours.check_features(N_ARMS, N_FEATURES)
    runs, resident = [], []
    for n in range(1, REPEATS + 1):
        curves, grown = _run(workload, f"growth, run {n} of {REPEATS}")
        runs.append(curves)
        resident.append(grown)

    labels = [f"{a // 1000}k–{b // 1000}k" for a, b in windows]
    columns = ["µs a round in rounds", *labels, "last/first", "bytes a round"]
    rows, blocks, by_name = [], {}, {}
    for same in zip(*runs, strict=True):
        first = same[0]
        best = np.min([curve.seconds for curve in same], axis=0) / BLOCK * 1e6
        micros = [float(best[a // BLOCK : b // BLOCK].mean()) for a, b in windows]
        stored = None if first.nbytes is None else first.nbytes / workload.n_rounds
        rows.append([first.name, *micros, micros[-1] / micros[0], stored])
        blocks[first.name] = best.tolist()
        by_name[first.name] = micros
    unit = by_name.pop(BASELINE)
    ratios = {
        name: [a / b for a, b in zip(micros, unit, strict=True)] for name, micros in by_name.items()
    }
    shown = [*rows, *([f"{name} / LinUCB", *ratio, None, None] for name, ratio in ratios.items())]
    title = f"Growth to {workload.n_rounds:,} rounds, K = {N_ARMS}, d' = {N_FEATURES}"
    # Only the first run asks the system for memory; later ones reuse what that one gave back.
    note = NOTE
    if resident[0] is not None:
        note += f"\nThe process grew by {resident[0]:.0f} bytes a round for each Stopwise policy."
    return table(title, columns, shown, note), {
        "n_arms": N_ARMS,
        "n_features": N_FEATURES,
        "rows": [dict(zip(["name", *columns[1:]], row, strict=True)) for row in rows],
        "of_numpy_linucb": ratios,
        "resident_bytes_a_round": resident[0],
        "block_rounds": BLOCK,
        "block_us": blocks,
    }


def _run(workload: Workload, title: str) -> tuple[list[Curve], float | None]:
    """Play the run once, the contestants taking turns block by block.

    Also returns the bytes a round that the process grew by after the first block, shared out
    between the two Stopwise policies: numpy LinUCB keeps no history.
    """
    at_first: int | None = None
    costs, d = workload.costs, workload.n_features
    curves = [
        Curve("Stopwise, Python API", ours.StopwisePython(costs, d), _by_python),
        Curve("Stopwise, compiled loop", ours.policy(costs, d), _by_compiled_loop),
        Curve(BASELINE, NumpyLinUCB(costs, d), _by_python),
    ]
    for start in range(0, workload.n_rounds, BLOCK):
        progress(f"{title}: round {start:,} of {workload.n_rounds:,}")
        rounds = slice(start, start + BLOCK)
        block = Workload(workload.contexts[rounds], workload.outputs[rounds], costs)
        for curve in curves:
            curve.seconds.append(curve.road(curve.contestant, block))
        if start == 0:
            at_first = _resident()
    progress("")
    at_last = _resident()
    for curve in curves:
        policy = getattr(curve.contestant, "policy", curve.contestant)
        curve.nbytes = getattr(policy, "nbytes", None)
        curve.contestant = None  # lets its history go before the next run
    if at_first is None or at_last is None:
        return curves, None
    return curves, (at_last - at_first) / (2 * (workload.n_rounds - BLOCK))


def _by_python(contestant: Any, block: Workload) -> float:
    contexts, outputs = list(block.contexts), block.outputs.tolist()
    return play(contestant, contexts, outputs) * block.n_rounds


def _by_compiled_loop(policy: Any, block: Workload) -> float:
    return cpu_seconds(lambda: policy.run(block.contexts, block.outputs))


def _resident() -> int | None:
    """Bytes of memory the process holds, where the system reports it (Linux)."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
