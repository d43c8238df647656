"""Time and memory per round over a run of a million rounds."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import uss_pd
from benchmarks.peers.numpy_linucb import NumpyLinUCB
from benchmarks.report import table
from benchmarks.timing import REPEATS, cpu_seconds, play, progress
from benchmarks.workload import Workload, make

N_ARMS, N_FEATURES = 5, 10
BASELINE = "numpy LinUCB, stacked"
BLOCK = 10_000
"""Rounds per call; windows begin and end at multiples of it."""

WINDOWS = [(10_000, 20_000), (90_000, 100_000), (400_000, 500_000), (900_000, 1_000_000)]

NOTE = f"""\
The run is repeated {REPEATS} times with the same work, and the best time of each {BLOCK:,} rounds
counts. The rows take turns block by block; numpy LinUCB, whose rounds cannot get slower, shows the
drift of the machine."""


@dataclass
class Curve:
    """The times of one learner, block by block.

    Attributes
    ----------
    name
        Its name in the table.
    contestant
    learner
    run_block
        Runs one block and returns its CPU seconds.
    nbytes
        Memory that a policy reports at the end of the run.
    seconds
        CPU seconds of each block.
    """

    name: str
    learner: Any
    run_block: Callable[[Any, Workload], float]
    nbytes: int | None = None
    seconds: list[float] = field(default_factory=list)


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run the long run with both interfaces; return the table and the result."""
    if not uss_pd.installed():
        return "\nGrowth: stopwise is not installed", {"rows": []}
    windows = WINDOWS[:2] if quick else WINDOWS
    workload = make(windows[-1][1], N_ARMS, N_FEATURES)
    uss_pd.check_features(N_ARMS, N_FEATURES)
    runs, resident = [], []
    for n in range(1, REPEATS + 1):
        curves, grown = _run(workload, f"growth, run {n} of {REPEATS}")
        runs.append(curves)
        resident.append(grown)

    labels = [f"{a // 1000}k–{b // 1000}k" for a, b in windows]
    columns = ["µs per round in rounds", *labels, "last/first", "bytes per round"]
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
    table_rows = [
        *rows,
        *([f"{name} / LinUCB", *ratio, None, None] for name, ratio in ratios.items()),
    ]
    title = f"Growth to {workload.n_rounds:,} rounds, K = {N_ARMS}, d' = {N_FEATURES}"
    # Only the first run allocates from the system; later ones reuse its memory.
    note = NOTE
    if resident[0] is not None:
        note += f"\nThe process grew by {resident[0]:.0f} bytes per round for each Stopwise policy."
    return table(title, columns, table_rows, note), {
        "n_arms": N_ARMS,
        "n_features": N_FEATURES,
        "rows": [dict(zip(["name", *columns[1:]], row, strict=True)) for row in rows],
        "of_numpy_linucb": ratios,
        "resident_bytes_a_round": resident[0],
        "block_rounds": BLOCK,
        "block_us": blocks,
    }


def _run(workload: Workload, title: str) -> tuple[list[Curve], float | None]:
    """Run once, with the learners taking turns block by block.

    Also return the growth of the process after the first block in bytes per round, divided between
    the two Stopwise policies, because numpy LinUCB keeps no history.
    """
    at_first: int | None = None
    costs, d = workload.costs, workload.n_features
    curves = [
        Curve("Stopwise, Python API", uss_pd.StopwisePython(costs, d), _by_python),
        Curve("Stopwise, compiled loop", uss_pd.policy(costs, d), _by_compiled_loop),
        Curve(BASELINE, NumpyLinUCB(costs, d), _by_python),
    ]
    for start in range(0, workload.n_rounds, BLOCK):
        progress(f"{title}: round {start:,} of {workload.n_rounds:,}")
        rounds = slice(start, start + BLOCK)
        block = Workload(workload.contexts[rounds], workload.outputs[rounds], costs)
        for curve in curves:
            curve.seconds.append(curve.run_block(curve.learner, block))
        if start == 0:
            at_first = _resident()
    progress("")
    at_last = _resident()
    for curve in curves:
        policy = getattr(curve.learner, "policy", curve.learner)
        curve.nbytes = getattr(policy, "nbytes", None)
        curve.learner = None  # frees its history before the next run
    if at_first is None or at_last is None:
        return curves, None
    return curves, (at_last - at_first) / (2 * (workload.n_rounds - BLOCK))


def _by_python(learner: Any, block: Workload) -> float:
    contexts, outputs = list(block.contexts), block.outputs.tolist()
    return play(learner, contexts, outputs) * block.n_rounds


def _by_compiled_loop(policy: Any, block: Workload) -> float:
    return cpu_seconds(lambda: policy.run(block.contexts, block.outputs))


def _resident() -> int | None:
    """Return the resident memory of the process in bytes (Linux only)."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
