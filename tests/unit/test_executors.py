"""Tests of executors: results, scheduling, cancellation and invalid arguments."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.executors import AHEAD, DaskExecutor, ThreadExecutor, make_executor
from stopwise.research.experiments.campaign import Task, run_task
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from tests.research.campaigns import SPECS, TASKS, done, expected, same, wait_until


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadExecutor]:
    before = threading.active_count()
    with ThreadExecutor(jobs=2) as executor:
        yield executor
    assert threading.active_count() == before


def test_results_do_not_depend_on_the_threads(executor: ThreadExecutor) -> None:
    assert same(done(executor.run(run_task, TASKS)), expected())


def test_tasks_are_submitted_only_as_workers_need_them(executor: ThreadExecutor) -> None:
    taken: list[int] = []

    def endless() -> Iterator[Task]:
        for seed in range(1_000_000):
            taken.append(seed)
            yield SPECS[0], (seed,)

    results = executor.run(run_task, endless())
    for _ in range(10):
        next(results)
    assert len(taken) <= 10 + AHEAD * executor.jobs
    results.close()


def test_close_cancels_running_and_waiting_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, cancelled = [], threading.Event()

    class Endless(sw.Policy):
        def decide(self, x: Any) -> sw.Decision:
            return self.cascade.decision(0)

        def learn(self, observation: sw.Observation) -> None:
            raise NotImplementedError

        def run(self, *rounds: Any, progress: Any, **more: Any) -> Any:
            started.append(self)
            deadline = time.monotonic() + 60
            try:
                while time.monotonic() < deadline:
                    progress("rounds", 1, 2)
            except BaseException:
                cancelled.set()
                raise

    monkeypatch.setitem(sw.POLICIES, "endless", Endless)
    endless = ExperimentSpec(SPECS[0].environment, PolicySpec("endless"), rounds=2)
    executor = ThreadExecutor(jobs=1)
    results = executor.run(run_task, [*TASKS[:1], (endless, (0,)), (endless, (1,))])
    next(results)
    wait_until(lambda: bool(started))
    executor.close()
    assert cancelled.is_set()
    assert len(started) == 1
    results.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        next(executor.run(run_task, TASKS))


@pytest.mark.parametrize(("name", "kind"), [("threads", ThreadExecutor), ("dask", DaskExecutor)])
def test_make_executor_creates_executors_by_name(name: str, kind: type[Any]) -> None:
    with make_executor(name, jobs=5) as executor:  # starts no workers
        assert isinstance(executor, kind)
        assert executor.jobs == 5


def test_the_default_is_a_thread_for_each_available_processor() -> None:
    assert make_executor().jobs == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "choose from threads, dask"),
        ({"address": "tcp://127.0.0.1:1"}, "address requires executor 'dask'"),
        ({"jobs": 0}, "jobs must be"),
    ],
)
def test_make_executor_rejects_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make_executor(**arguments)


def test_a_missing_dask_package_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # makes the import fail
    with pytest.raises(MissingPackageError, match=r"pip install .*\[dask\]'"):
        make_executor("dask")
