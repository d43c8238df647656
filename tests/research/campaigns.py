"""Short experiments, and helpers for processes that run them."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import numpy as np

from stopwise.executors import Arguments, ThreadExecutor
from stopwise.research.experiments.campaign import Result, Task
from stopwise.research.experiments.runs import Trace, execute
from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec

T = TypeVar("T")
Runs: TypeAlias = dict[tuple[str, int], Trace]

ARMS = {"arms": [[1, 0, 0], [4, 1, 0], [6, 2, 1]], "label": [8, 3, 0]}
WHERE = EnvironmentSpec("logistic-arms", (0.05, 0.1, 0.2), ARMS)
PAIR = EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2]]})  # without labels
SPECS = [
    ExperimentSpec(WHERE, PolicySpec("uss-pd"), rounds=400, checkpoints=8),
    ExperimentSpec(WHERE, PolicySpec("thompson"), rounds=400, checkpoints=8),
]
SEEDS = range(20)
CAMPAIGN = [(spec, SEEDS) for spec in SPECS]
TASKS: list[Task] = [(spec, (seed,)) for spec in SPECS for seed in SEEDS]


class Journal(ThreadExecutor):
    """Records submitted tasks; a single thread executes them in order."""

    def __init__(self) -> None:
        super().__init__(jobs=1)
        self.submitted: list[Task] = []

    def run(self, work: Callable[..., T], tasks: Iterable[Arguments]) -> Generator[T, None, None]:
        self.submitted = cast("list[Task]", list(tasks))
        return super().run(work, self.submitted)

    @property
    def runs(self) -> list[tuple[str, int]]:
        return [(spec.key, seed) for spec, seeds in self.submitted for seed in seeds]


def made_trace(seed: int, curve: list[float], /, **fields: Any) -> Trace:
    """Return an artificial trace."""
    trace = Trace(
        key="k",
        seed=seed,
        rounds=np.array([5, 10]),
        regret=np.array(curve),
        total_cost=np.array(curve) + 100,
        undominated=np.array(curve) / 10,
        depths=np.array([4, 6]),
    )
    return msgspec.structs.replace(trace, **fields)


def by_name(traces: Iterable[Trace]) -> Runs:
    return {(trace.key, trace.seed): trace for trace in traces}


def done(results: Iterable[Result]) -> Runs:
    return by_name(trace for _, traces in results for trace in traces)


@lru_cache(maxsize=1)
def expected() -> Runs:
    """Return the traces that every executor must produce."""
    return by_name(execute(spec, seed) for spec in SPECS for seed in SEEDS)


def same(left: Runs, right: Runs) -> bool:
    return left.keys() == right.keys() and all(left[name].agrees(right[name]) for name in left)


def python(*arguments: str) -> "subprocess.Popen[str]":
    """Start Python with this package in a new process group."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: "subprocess.Popen[str]") -> str:
    """Wait for a process to exit and return its standard error."""
    return process.communicate(timeout=60)[1]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timeout after a minute"
        time.sleep(0.02)
