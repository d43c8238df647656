"""Throughput and latency of the service on one core, compared with empty routes."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.service_load import Load, full_speed, paced, request
from benchmarks.timing import progress

ARMS = [("rule", 0.02), ("model", 0.1), ("expert", 0.25)]
N_CONTEXT = 9
BATCH = 256
CONNECTIONS = 64
BATCHES = 16  # connections for batches
CASCADE = "/v1/cascades/bench"

NOTE = f"""\
One server process on one core, the load on another: {CONNECTIONS} connections, keep-alive. Every
decision is committed (SQLite, synchronous=FULL) before it is answered. The empty routes run in the
same process: "JSON" does what every route does (routing, checks, JSON decoding and encoding,
counting), "raw" returns a constant without reading JSON. Medians of interleaved runs."""


@contextmanager
def serving(store: Path) -> Iterator[int]:
    """Run the server on one core; yield its port once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "benchmarks.service_app", str(store), str(port)]
    process = subprocess.Popen(command)
    try:
        while not ready(port):
            if process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.2)
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})
        yield port
    finally:
        process.terminate()
        process.wait(30)
        os.sched_setaffinity(0, set(cores))


def ready(port: int) -> bool:
    """Return whether the server reports that it is ready."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
    except OSError:
        return False
    return True


def post(port: int, path: str, body: object) -> Any:
    message = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(message, timeout=60) as answer:
        return json.load(answer)


def contexts(n: int) -> list[list[float]]:
    return np.random.default_rng(0).uniform(-1, 1, (n, N_CONTEXT)).round(4).tolist()


def train(port: int, rounds: int) -> None:
    """Create the cascade and train it past the forced rounds."""
    arms = [{"name": name, "cost": cost} for name, cost in ARMS]
    post(port, "/v1/cascades", {"name": "bench", "arms": arms, "context": N_CONTEXT})
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, (rounds, N_CONTEXT)).round(4)
    for start in range(0, rounds, BATCH):
        batch = rows[start : start + BATCH].tolist()
        opened = post(port, f"{CASCADE}/rounds:batch", {"contexts": batch})
        for x, round_ in zip(batch, opened["rounds"], strict=True):
            outputs = [bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range(round_["stop"] + 1)]
            post(port, f"{CASCADE}/rounds/{round_['id']}/outputs", {"outputs": outputs})
        progress(f"service: trained on {start + len(batch):,} of {rounds:,} rounds")


def measure(seconds: float, repeats: int, rounds: int) -> tuple[str, dict[str, Any]]:
    """Measure everything and return the table and the result."""
    with (
        tempfile.TemporaryDirectory(prefix="stopwise-service-") as folder,
        serving(Path(folder, "log.db")) as port,
    ):
        train(port, rounds)
        return _measure(port, seconds, repeats)


def _measure(port: int, seconds: float, repeats: int) -> tuple[str, dict[str, Any]]:
    single = [json.dumps({"context": x}).encode() for x in contexts(500)]
    rows = contexts(20 * BATCH)
    batches = [
        json.dumps({"contexts": rows[k : k + BATCH]}).encode() for k in range(0, len(rows), BATCH)
    ]
    kinds = {
        "empty, raw": ([request("/empty", body) for body in single], CONNECTIONS),
        "empty, JSON": ([request("/empty-json", body) for body in single], CONNECTIONS),
        "rounds": ([request(f"{CASCADE}/rounds", body) for body in single], CONNECTIONS),
        f"batches of {BATCH}": (
            [request(f"{CASCADE}/rounds:batch", body) for body in batches],
            BATCHES,
        ),
    }
    loads: dict[str, list[Load]] = {name: [] for name in kinds}
    for k in range(repeats):
        for name, (messages, connections) in kinds.items():
            progress(f"service: {name}, {k + 1} of {repeats}")
            loads[name].append(full_speed(port, messages, connections, seconds))
    rates = {name: statistics.median(load.rate for load in runs) for name, runs in loads.items()}
    rounds = kinds["rounds"][0]
    half: list[Load] = []
    for k in range(repeats):
        progress(f"service: rounds at half the load, {k + 1} of {repeats}")
        half.append(paced(port, rounds, CONNECTIONS, seconds, rates["rounds"] / 2))
    alone: dict[str, list[float]] = {"empty, JSON": [], "rounds": []}
    for k in range(repeats):
        for name, waits in alone.items():
            progress(f"service: one connection, {name}, {k + 1} of {repeats}")
            waits.append(full_speed(port, kinds[name][0], 1, seconds).quantile(0.5))
    p50 = {name: statistics.median(waits) for name, waits in alone.items()}
    all_loads = [*half, *(load for runs in loads.values() for load in runs)]
    batch = rates[f"batches of {BATCH}"] * BATCH
    result: dict[str, Any] = {
        "requests_per_second": rates,
        "rounds_by_batch_per_second": batch,
        "share_of_empty_raw": rates["rounds"] / rates["empty, raw"],
        "share_of_empty_json": rates["rounds"] / rates["empty, JSON"],
        "batch_over_single": batch / rates["rounds"],
        "p50_ms_at_half_load": 1e3 * statistics.median(load.quantile(0.5) for load in half),
        "p99_ms_at_half_load": 1e3 * statistics.median(load.quantile(0.99) for load in half),
        "p99_ms_at_half_load_all": [1e3 * load.quantile(0.99) for load in half],
        "p50_ms_alone": 1e3 * p50["rounds"],
        "p50_over_empty_alone": p50["rounds"] / p50["empty, JSON"],
        "failed": sum(load.failed for load in all_loads),
        "runs": {name: [load.rate for load in runs] for name, runs in loads.items()},
    }
    lines = [
        (
            name,
            f"{rate:,.0f}",
            f"{rate * (BATCH if name.startswith('batch') else 1) / rates['empty, raw']:.2f}",
            f"{1e3 * statistics.median(load.quantile(0.5) for load in loads[name]):.1f}",
            f"{1e3 * statistics.median(load.quantile(0.99) for load in loads[name]):.1f}",
        )
        for name, rate in rates.items()
    ]
    lines.append(
        (
            "rounds at half the load",
            f"{rates['rounds'] / 2:,.0f}",
            "",
            f"{result['p50_ms_at_half_load']:.1f}",
            f"{result['p99_ms_at_half_load']:.1f}",
        )
    )
    head = ("", "requests/s", "answers, empty = 1", "p50 ms", "p99 ms")
    summary = (
        f"Rounds: {result['share_of_empty_json']:.0%} of the empty JSON route, "
        f"{result['share_of_empty_raw']:.0%} of the raw one. One connection: p50 "
        f"{result['p50_ms_alone']:.2f} ms, {result['p50_over_empty_alone']:.1f} times the empty "
        "JSON route. "
        f"Batches: {result['batch_over_single']:.1f} times as many rounds per second."
    )
    return table("The service on one core", head, lines, f"{summary}\n{NOTE}"), result


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Measure the service."""
    return measure(1.0, 1, 512) if quick else measure(5.0, 5, 2048)
