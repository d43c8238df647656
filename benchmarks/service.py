"""The service under load on one core: decisions beside empty routes, latency, batches, recovery."""

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
from benchmarks.service_load import Load, flat_out, paced, request
from benchmarks.timing import progress

ARMS = [("rule", 0.02), ("model", 0.1), ("expert", 0.25)]
N_CONTEXT = 9
BATCH = 256
CONNECTIONS = 64
BATCHES = 16  # connections that ask for batches
CASCADE = "/v1/cascades/bench"

NOTE = f"""\
One server process on one core, the load on another: {CONNECTIONS} connections, keep-alive. Every
decision is on the disk (SQLite, synchronous=FULL) before it is answered. The empty routes run in
the same process. "JSON" takes the decisions' own lane: checks, JSON read and written, counting,
and nothing in between. "raw" answers a constant and reads no JSON. "typed" goes through Litestar
and msgspec. Medians of runs taken in turn."""


@contextmanager
def serving(store: Path) -> Iterator[int]:
    """Run the server on one core; yield its port once it is ready."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
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
    """Whether the server answers that it is ready."""
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


def teach(port: int, rounds: int) -> None:
    """Make the cascade, and let it learn so far that decisions are made, not forced."""
    arms = [{"name": name, "cost": cost} for name, cost in ARMS]
    post(port, "/v1/cascades", {"name": "bench", "arms": arms, "context": N_CONTEXT})
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, (rounds, N_CONTEXT)).round(4)
    for start in range(0, rounds, BATCH):
        batch = rows[start : start + BATCH].tolist()
        told = post(port, f"{CASCADE}/decisions:batch", {"contexts": batch})
        for x, decision in zip(batch, told["decisions"], strict=True):
            said = [bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range(decision["stop"] + 1)]
            post(port, f"{CASCADE}/decisions/{decision['id']}/outputs", {"outputs": said})
        progress(f"service: taught {start + len(batch):,} of {rounds:,} rounds")


def measure(seconds: float, repeats: int, rounds: int) -> tuple[str, dict[str, Any]]:
    """Measure everything and return the table and the result."""
    with (
        tempfile.TemporaryDirectory(prefix="stopwise-service-") as folder,
        serving(Path(folder, "log.db")) as port,
    ):
        teach(port, rounds)
        return _measured(port, seconds, repeats)


def _measured(port: int, seconds: float, repeats: int) -> tuple[str, dict[str, Any]]:
    single = [json.dumps({"context": x}).encode() for x in contexts(500)]
    rows = contexts(20 * BATCH)
    batches = [
        json.dumps({"contexts": rows[k : k + BATCH]}).encode() for k in range(0, len(rows), BATCH)
    ]
    kinds = {
        "empty, raw": ([request("/empty", body) for body in single], CONNECTIONS),
        "empty, JSON": ([request("/empty-json", body) for body in single], CONNECTIONS),
        "empty, typed": ([request("/empty-typed", body) for body in single], CONNECTIONS),
        "decisions": ([request(f"{CASCADE}/decisions", body) for body in single], CONNECTIONS),
        f"batches of {BATCH}": (
            [request(f"{CASCADE}/decisions:batch", body) for body in batches],
            BATCHES,
        ),
    }
    loads: dict[str, list[Load]] = {name: [] for name in kinds}
    for k in range(repeats):
        for name, (messages, connections) in kinds.items():
            progress(f"service: {name}, {k + 1} of {repeats}")
            loads[name].append(flat_out(port, messages, connections, seconds))
    rates = {name: statistics.median(one.rate for one in runs) for name, runs in loads.items()}
    decisions = kinds["decisions"][0]
    half: list[Load] = []
    for k in range(repeats):
        progress(f"service: decisions at half the load, {k + 1} of {repeats}")
        half.append(paced(port, decisions, CONNECTIONS, seconds, rates["decisions"] / 2))
    everything = [*half, *(one for runs in loads.values() for one in runs)]
    batch = rates[f"batches of {BATCH}"] * BATCH
    result: dict[str, Any] = {
        "requests_per_second": rates,
        "decisions_by_batch_per_second": batch,
        "share_of_empty_raw": rates["decisions"] / rates["empty, raw"],
        "share_of_empty_json": rates["decisions"] / rates["empty, JSON"],
        "share_of_empty_typed": rates["decisions"] / rates["empty, typed"],
        "batch_over_single": batch / rates["decisions"],
        "p50_ms_at_half_load": 1e3 * statistics.median(one.quantile(0.5) for one in half),
        "p99_ms_at_half_load": 1e3 * statistics.median(one.quantile(0.99) for one in half),
        "p99_ms_at_half_load_all": [1e3 * one.quantile(0.99) for one in half],
        "failed": sum(one.failed for one in everything),
        "runs": {name: [one.rate for one in runs] for name, runs in loads.items()},
    }
    lines = [
        (
            name,
            f"{rate:,.0f}",
            f"{rate * (BATCH if name.startswith('batch') else 1) / rates['empty, raw']:.2f}",
            f"{1e3 * statistics.median(one.quantile(0.5) for one in loads[name]):.1f}",
            f"{1e3 * statistics.median(one.quantile(0.99) for one in loads[name]):.1f}",
        )
        for name, rate in rates.items()
    ]
    lines.append(
        (
            "decisions at half the load",
            f"{rates['decisions'] / 2:,.0f}",
            "",
            f"{result['p50_ms_at_half_load']:.1f}",
            f"{result['p99_ms_at_half_load']:.1f}",
        )
    )
    head = ("", "requests/s", "answers, empty = 1", "p50 ms", "p99 ms")
    summary = (
        f"Decisions: {result['share_of_empty_json']:.0%} of the empty JSON route, "
        f"{result['share_of_empty_raw']:.0%} of the raw one, "
        f"{result['share_of_empty_typed']:.0%} of the typed one. "
        f"Batches: {result['batch_over_single']:.1f} times as many decisions a second."
    )
    return table("The service on one core", head, lines, f"{summary}\n{NOTE}"), result


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Measure the service."""
    return measure(1.0, 1, 512) if quick else measure(5.0, 5, 2048)
