"""Replay of a log of 100 tenants: equal bytes from every executor, and the gain of two cores."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.replay import COSTS, write_log
from benchmarks.report import table
from benchmarks.timing import progress

ROUNDS, TENANTS, WORKERS = 10_000_000, 100, 4
POLICIES = ("uss-pd",)

NOTE = """\
Wall-clock seconds of a new process, including the start of the cluster; CPU seconds are those of
the process and its children. "load" is that of the machine in the minute before. In "one killed", a
worker is killed after the first task. Compare rows of an idle machine."""


def write_tenants(path: Path, rounds: int) -> None:
    """Write the log of `benchmarks.replay` with a random column of tenants."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = path.with_name("plain.parquet")
    write_log(plain, rounds)
    random = np.random.default_rng(1)
    names = pa.array([f"tenant {k:02d}" for k in range(TENANTS)])
    with pq.ParquetFile(plain) as file:
        schema = file.schema_arrow.append(pa.field("tenant", pa.string()))
        with pq.ParquetWriter(path, schema) as writer:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                tenants = names.take(pa.array(random.integers(0, TENANTS, len(rows))))
                writer.write_table(rows.append_column("tenant", tenants))
    plain.unlink()


EXECUTORS: dict[str, dict[str, Any]] = {
    "threads, 1": {"executor": "threads", "jobs": 1},
    "threads, 2": {"executor": "threads", "jobs": 2},
    "Dask, 1 worker": {"executor": "dask", "jobs": 1},
    "Dask, 2 workers": {"executor": "dask", "jobs": 2},
    f"Dask, {WORKERS} workers": {"executor": "dask", "jobs": WORKERS},
    f"Dask, {WORKERS} workers, one killed": {"executor": "dask", "jobs": WORKERS, "kill": True},
}


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Write a log and replay it with every executor; return the table and the result."""
    return measure(200_000 if quick else ROUNDS)


def measure(rounds: int) -> tuple[str, dict[str, Any]]:
    """Measure the replay of this many rounds."""
    rows, results = [], {}
    with tempfile.TemporaryDirectory(prefix="stopwise-tenants-") as folder:
        path = Path(folder, "log.parquet")
        write_tenants(path, rounds)
        for name, options in EXECUTORS.items():
            progress(f"tenants: {name}")
            out = Path(folder, f"{len(results)}.json")
            arguments = [str(path), str(out), json.dumps(options)]
            child = subprocess.run(
                [sys.executable, "-m", "benchmarks.tenants", "--child", *arguments],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            results[name] = json.loads(child.stdout) | {"json": out.read_bytes()}
    progress("")
    first = next(iter(results.values()))["json"]
    for name, result in results.items():
        result["same_bytes"] = result.pop("json") == first
        single = results[f"{name.partition(',')[0]}, 1{' worker' * name.startswith('Dask')}"]
        result["of_one"] = result["seconds"] / single["seconds"]
        same = "yes" if result["same_bytes"] else "NO"
        rows.append([name, *(result[key] for key in ("seconds", "of_one", "cpu", "load")), same])
    title = f"Replay of {rounds:,} rounds of {TENANTS} tenants by {', '.join(POLICIES)}"
    columns = ["", "seconds", "relative to one", "CPU s", "load", "same bytes"]
    return table(title, columns, rows, NOTE), {
        "rounds": rounds,
        "tenants": TENANTS,
        "executors": results,
    }


def _child(path: Path, out: Path, options: dict[str, Any]) -> None:
    """Replay in this process and its workers, and print the measurements."""
    import pyarrow

    import stopwise as sw

    pyarrow.set_cpu_count(1)
    log = sw.Log(path)
    cascade = sw.Cascade(COSTS, names=log.arms)
    kill, load = options.pop("kill", False), os.getloadavg()[0]

    def report(stage: str, done: int, of: int) -> None:
        nonlocal kill
        if stage == "replaying" and kill:
            kill = False
            os.kill(_workers()[0], signal.SIGKILL)

    start = time.perf_counter()
    replayed = sw.replay(log, cascade, POLICIES, by="tenant", progress=report, **options)
    seconds = time.perf_counter() - start
    out.write_bytes(replayed.to_json())
    print(json.dumps({"seconds": seconds, "cpu": sum(os.times()[:4]), "load": load}))


def _workers() -> list[int]:
    """Return the process ids of Dask's workers, the spawned children of this process (Linux)."""
    threads = Path("/proc/self/task").iterdir()
    children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [int(pid) for pid, line in commands.items() if b"spawn_main" in line]


def main() -> None:
    """Parse the command line: ``python -m benchmarks.tenants [ROUNDS]``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tenants", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        path, out, words = options.child
        _child(Path(path), Path(out), json.loads(words))
        return
    print(measure(options.rounds)[0])


if __name__ == "__main__":
    main()
