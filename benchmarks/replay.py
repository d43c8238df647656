"""Speed and peak memory of the replay of a long log on one core."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress

N_ARMS, N_CONTEXT = 3, 9
COSTS = (0.02, 0.1, 0.25)
ROUNDS = 1_000_000
BLOCK = 65_536
"""Rounds per row group."""

NOTE = """\
One process on one core: reading Parquet, features, deciding, learning and counting. Seconds are CPU
time of the process, memory is its peak."""


def write_log(path: Path, rounds: int, seed: int = 0) -> None:
    """Write a full-depth log with labels; equal seeds give equal logs.

    Contexts are uniform in [−1, 1]⁹. A direction h is the difficulty; arm i errs with probability
    μ(6·h(x) − τ_i) with increasing τ, and one draw decides for all arms of a round, so every depth
    is optimal for some contexts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(seed)
    direction = random.normal(size=N_CONTEXT)
    direction *= 0.5 * np.sqrt(3.0) / np.linalg.norm(direction)
    thresholds = np.linspace(2.5, 7.0, N_ARMS)
    fields = [(f"context.x{k}", pa.float64()) for k in range(N_CONTEXT)]
    fields += [(f"output.arm{i}", pa.int8()) for i in range(N_ARMS)]
    with pq.ParquetWriter(path, pa.schema([*fields, ("label", pa.int8())])) as writer:
        for start in range(0, rounds, BLOCK):
            n = min(BLOCK, rounds - start)
            contexts = random.uniform(-1.0, 1.0, (n, N_CONTEXT))
            rates = 1.0 / (1.0 + np.exp(thresholds - 6.0 * (contexts @ direction)[:, None]))
            labels = random.integers(0, 2, n, dtype=np.int8)
            errs = random.random(n)[:, None] < rates
            outputs = np.where(errs, 1 - labels[:, None], labels[:, None])
            columns = [*contexts.T, *outputs.T, labels]
            arrays = [
                pa.array(np.ascontiguousarray(c), type=f.type)
                for c, f in zip(columns, writer.schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=writer.schema))
            progress(f"replay: writing round {start + n:,} of {rounds:,}")


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Write a log, replay it in a new process, and return the table and the result."""
    return measure(100_000 if quick else ROUNDS)


def measure(rounds: int) -> tuple[str, dict[str, Any]]:
    """Measure the replay of this many rounds."""
    with tempfile.TemporaryDirectory(prefix="stopwise-replay-") as folder:
        path = Path(folder, "log.parquet")
        write_log(path, rounds)
        size = path.stat().st_size
        progress(f"replay: {rounds:,} rounds")
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.replay", "--child", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    progress("")
    result: dict[str, Any] = json.loads(child.stdout)
    seconds = result["seconds"]
    total = seconds["all"]
    rows = [
        [name, spent, spent / rounds * 1e6, 100 * spent / total] for name, spent in seconds.items()
    ]
    title = (
        f"Replay of {rounds:,} rounds, K = {N_ARMS}, d' = {N_CONTEXT + 1}: "
        f"{rounds / total:,.0f} rounds per second, peak memory {result['peak'] / 1e9:.2f} GB, "
        f"{result['policy_bytes'] / rounds:.0f} bytes per round in the policy"
    )
    text = table(title, ["", "seconds", "µs per round", "%"], rows, NOTE)
    return text, {
        "rounds": rounds,
        "rounds_a_second": rounds / total,
        "bytes_in_file": size,
        **result,
    }


def _child(path: Path) -> None:
    """Replay in this process on one core and print the measurements."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import pyarrow

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)

    import stopwise as sw
    from stopwise.logs import log as logs
    from stopwise.logs.replay import replay, tally

    _warm_up(path, sw, logs, replay)
    before = _peak()
    clock = _Clock()
    clock.wrap_steps(logs.Log, "chunks", "reading and checking")
    clock.wrap(replay.Candidate, "run", "deciding and learning")
    clock.wrap(tally.Tally, "add", "counting")
    candidates: list[Any] = []
    kind: Any = replay.Candidate
    prepared = kind.prepared
    kind.prepared = lambda *arguments: candidates.append(prepared(*arguments)) or candidates[-1]
    log = logs.Log(path)
    cascade = sw.Cascade(costs=COSTS, names=log.arms)
    start = time.process_time()
    result = replay.replay(log, cascade, ["uss-pd"])
    total = time.process_time() - start
    best = result.policies[0]
    spent = dict(clock.spent)
    spent["other"] = total - sum(spent.values())
    spent["all"] = total
    print(
        json.dumps(
            {
                "seconds": spent,
                "peak": _peak(),
                "peak_before": before,
                "policy_bytes": candidates[0].policy.nbytes,
                "effort": candidates[0].policy.effort,
                "depths": [share.value for share in best.depths],
                "loss": best.loss and best.loss.value,
            }
        )
    )


def _warm_up(path: Path, sw: Any, logs: Any, replay: Any) -> None:
    """Replay the first rounds of the log, so that imports are not timed."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        short = Path(folder, "short.parquet")
        with pq.ParquetFile(path) as file:
            pq.write_table(file.read_row_group(0).slice(0, 2_000), short)
        log = logs.Log(short)
        replay.replay(log, sw.Cascade(costs=COSTS, names=log.arms), ["uss-pd"])


class _Clock:
    """Adds up the CPU seconds of calls."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def wrap(self, owner: Any, name: str, label: str) -> None:
        call = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self._add(label, start)

        static = isinstance(vars(owner).get(name), staticmethod)
        setattr(owner, name, staticmethod(timed) if static else timed)

    def wrap_steps(self, owner: Any, name: str, label: str) -> None:
        call = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            steps = iter(call(*arguments, **options))
            while True:
                start = time.process_time()
                step = next(steps, None)
                self._add(label, start)
                if step is None:
                    return
                yield step

        setattr(owner, name, timed)

    def _add(self, label: str, start: float) -> None:
        self.spent[label] = self.spent.get(label, 0.0) + time.process_time() - start


def _peak() -> int:
    """Return the peak memory of the process in bytes (Linux; 0 elsewhere)."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    """Parse the command line: ``python -m benchmarks.replay [ROUNDS]``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(options.child)
        return
    text, _ = measure(options.rounds)
    print(text)


if __name__ == "__main__":
    main()
