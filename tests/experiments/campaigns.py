"""Experiments that take moments, and processes that do them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

import stopwise as sw
from stopwise.experiments.engines import InProcess, Runs, Task
from stopwise.experiments.runs import Trace, execute
from stopwise.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec

ARMS = {"arms": [[1, 0, 0], [4, 1, 0], [6, 2, 1]], "label": [8, 3, 0]}
WHERE = EnvironmentSpec("logistic-arms", (0.05, 0.1, 0.2), ARMS)
SPECS = [
    ExperimentSpec(WHERE, PolicySpec("uss-pd"), rounds=400, checkpoints=8),
    ExperimentSpec(WHERE, PolicySpec("thompson"), rounds=400, checkpoints=8),
]
SEEDS = range(20)
WANTED = [(spec, SEEDS) for spec in SPECS]
TASKS: list[Task] = [(spec, (seed,)) for spec in SPECS for seed in SEEDS]

# A campaign that stops to be killed when it has done as many runs as it is told to.
CAMPAIGN = """
import json, sys
from stopwise.experiments.campaign import run_campaign
from stopwise.experiments.engines import make_engine
from stopwise.experiments.spec import ExperimentSpec
from stopwise.experiments.store import RunStore

path, engine, enough, specs, n_seeds = json.loads(sys.argv[1])

def progress(stage, done, of):
    print(done, flush=True)
    if done >= enough:
        sys.stdin.read()

wanted = [(ExperimentSpec.from_json(text), range(n_seeds)) for text in specs]
with RunStore(path) as store, make_engine(engine, jobs=2) as made:
    run_campaign(wanted, store, made, progress)
"""


class Journal(InProcess):
    """Notes which runs it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def run(self, tasks: Iterable[Task]) -> Runs:
        todo = list(tasks)
        self.asked = [(spec.key, seed) for spec, seeds in todo for seed in seeds]
        return super().run(todo)


def names(traces: Iterable[Trace]) -> dict[tuple[str, int], Trace]:
    """Return runs by what identifies them."""
    return {(trace.key, trace.seed): trace for trace in traces}


def expected() -> dict[tuple[str, int], Trace]:
    """Return what every road must lead to."""
    return names(execute(spec, seed) for spec in SPECS for seed in SEEDS)


def same(one: dict[tuple[str, int], Trace], other: dict[tuple[str, int], Trace]) -> bool:
    return one.keys() == other.keys() and all(one[name].agrees(other[name]) for name in one)


def python(*arguments: str) -> "subprocess.Popen[str]":
    """Start Python with this package, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(str(sw.__file__)).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def campaign(path: Path, engine: str, enough: int) -> "subprocess.Popen[str]":
    """Start a campaign and return it when it has done enough and waits."""
    texts = [spec.to_json() for spec in SPECS]
    process = python("-c", CAMPAIGN, json.dumps([str(path), engine, enough, texts, len(SEEDS)]))
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= enough:
            return process
    raise AssertionError(f"the campaign ended by itself: {process.communicate()[1]}")


def ended(process: "subprocess.Popen[str]") -> str:
    """Wait for the end of a process and return what it complained of."""
    _, complaints = process.communicate(timeout=60)
    return complaints


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute in vain"
        time.sleep(0.02)
