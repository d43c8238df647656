"""Latency of requests while a service with a long history writes a snapshot."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.service import ARMS, CASCADE, N_CONTEXT, ready
from benchmarks.service_load import Load, paced, request
from benchmarks.timing import progress
from stopwise.records import RecordedRounds
from stopwise.service.domain.events import Created
from stopwise.service.domain.ledger import LEARNED
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import START
from stopwise.service.persistence.snapshots import take_snapshot
from stopwise.service.persistence.stores.sqlite import SqliteStore
from stopwise.service.serve import free_address
from stopwise.service.settings import Settings

SIZES = (1_000_000, 10_000_000)
CHUNK = 500_000
RATE = 200.0  # requests per second
EVERY = 2_000  # events between snapshots
CONNECTIONS = 16
NOTE = f"""\
K = 3, d' = 10. The rounds are learned in batches and loaded from a snapshot; then {RATE:.0f} rounds
per second are opened over loopback, each committed before it is answered. "before" is until the
snapshot is due, "during" until it is stored. The load runs on the same machine."""


def trained_state(rounds: int) -> State:
    """Return the state, as of event 1, of a cascade that has learned from this many rounds."""
    state = State()
    arms = [Arm(name, cost) for name, cost in ARMS]
    features = {"kind": "polynomial", "degree": 1}
    state.apply_created(Created(CascadeSpec("bench", arms, N_CONTEXT, features=features), 0.0))
    cascade, random = state.order[0], np.random.default_rng(0)
    ledger, counts, k = cascade.ledger, cascade.counts, len(ARMS)
    for start in range(0, rounds, CHUNK):
        n = min(CHUNK, rounds - start)
        x = random.uniform(-1, 1, (n, N_CONTEXT))
        outputs = x[:, :1] + 0.2 * np.arange(k) * x[:, 1 : k + 1] > 0
        differ = np.stack([outputs[:, i] != outputs[:, j] for i, j in cascade.arms.pairs()], axis=1)
        recorded = RecordedRounds(x, differ.astype(np.uint8), np.full(n, k), np.zeros(n, np.bool_))
        cascade.policy.observe_many(recorded, np.full(n, k - 1))
        ledger.status.frombytes(bytes([LEARNED]) * n)
        ledger.stops.frombytes(bytes([k - 1]) * n)
        ledger.rule_stops.frombytes(bytes([k - 1]) * n)
        ledger.outputs.frombytes(random.bytes(8 * k * n))
        for column in (ledger.opened_at, ledger.ended_at):
            column.frombytes(np.ones(n, np.int64).tobytes())
        ledger.learned += n
        counts.outputs_total += n
        progress(f"snapshots: learned {start + n:,} of {rounds:,} rounds")
    state.position, state.log_digest = 1, START
    return state


async def store_snapshot(path: Path, rounds: int) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.save_snapshot(take_snapshot(trained_state(rounds)))
    await store.close()


def snapshots_written(port: int) -> int:
    """Return the number of snapshots that the service has written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    line = next(line for line in lines if line.startswith("stopwise_snapshots_total "))
    return int(float(line.split()[1]))


def peak(pid: int) -> float:
    """Return the peak memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def measure(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(
        prefix="stopwise-snapshots-", ignore_cleanup_errors=True
    ) as folder:
        path = Path(folder, "log.db")
        asyncio.run(store_snapshot(path, rounds))
        _, port = free_address(Settings(port=0))
        flags = ["--store", str(path), "--port", str(port), "--snapshot-every", str(EVERY)]
        command = [sys.executable, "-m", "stopwise", "serve", *flags]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not ready(port):
                time.sleep(0.2)
            progress(f"snapshots: {rounds:,} rounds, under load")
            served = peak(process.pid)
            body = json.dumps({"context": [0.9] + [0.0] * (N_CONTEXT - 1)}).encode()
            message = [request(f"{CASCADE}/rounds", body)]
            paced(port, message, 1, 2.0, 20.0)  # the first decisions solve for the estimates
            quiet = paced(port, message, CONNECTIONS, 0.5 * EVERY / RATE, RATE)
            began, loads = time.perf_counter(), list[Load]()
            done = threading.Event()

            def watch() -> None:
                while snapshots_written(port) == 0 and time.perf_counter() < began + 300:
                    time.sleep(1)
                done.set()

            watcher = threading.Thread(target=watch)
            watcher.start()
            while not done.is_set():
                loads.append(paced(port, message, CONNECTIONS, 2.0, RATE))
            watcher.join()
            busy = sorted(wait for load in loads for wait in load.latencies)
            return {
                "rounds": rounds,
                "before_ms": 1e3 * max(quiet.latencies),
                "during_ms": 1e3 * busy[-1],
                "during_p99_ms": 1e3 * busy[int(0.99 * len(busy))],
                "over_20_ms": sum(wait > 0.02 for wait in busy),
                "requests": len(busy),
                "failed": sum(load.failed for load in [quiet, *loads]),
                "seconds": time.perf_counter() - began,
                "served_mb": served,
                "peak_mb": peak(process.pid),
            }
        finally:
            process.kill()  # a graceful stop would write another snapshot
            process.wait()


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Measure the longest latency before and while a snapshot is written."""
    results = [measure(rounds) for rounds in ((100_000,) if quick else SIZES)]
    columns = ("before_ms", "during_ms", "during_p99_ms", "over_20_ms", "served_mb", "peak_mb")
    head = ("rounds", "longest ms before", "during", "p99 during", "over 20 ms", "MB", "peak MB")
    rows = [(f"{row['rounds']:,}", *(round(row[name], 1) for name in columns)) for row in results]
    return table("Requests while a snapshot is written", head, rows, NOTE), {"sizes": results}
