"""Executors: the numbers of `execute`, no more work ahead than needed, and mistakes named."""

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


def test_the_numbers_do_not_depend_on_the_threads(executor: ThreadExecutor) -> None:
    assert same(done(executor.run(run_task, TASKS)), expected())


def test_tasks_are_taken_as_workers_need_them(executor: ThreadExecutor) -> None:
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


def test_closing_drops_the_runs_under_way_and_those_that_have_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, dropped = [], threading.Event()

    class Endless(sw.Policy):
        def decide(self, x: Any) -> sw.Decision:
            return self.cascade.decision(0)

        def learn(self, observation: sw.Observation) -> None:
            raise NotImplementedError

        def run(self, *rounds: Any, progress: Any, **more: Any) -> Any:
            begun.append(self)
            deadline = time.monotonic() + 60
            try:
                while time.monotonic() < deadline:
                    progress("rounds", 1, 2)
            except BaseException:
                dropped.set()
                raise

    monkeypatch.setitem(sw.POLICIES, "endless", Endless)
    endless = ExperimentSpec(SPECS[0].environment, PolicySpec("endless"), rounds=2)
    executor = ThreadExecutor(jobs=1)
    results = executor.run(run_task, [*TASKS[:1], (endless, (0,)), (endless, (1,))])
    next(results)
    wait_until(lambda: bool(begun))
    executor.close()
    assert dropped.is_set()
    assert len(begun) == 1
    results.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        next(executor.run(run_task, TASKS))


def test_executors_have_names() -> None:
    for name, kind in (("threads", ThreadExecutor), ("dask", DaskExecutor)):
        with make_executor(name, jobs=5) as made:  # never used
            assert isinstance(made, kind)
            assert made.jobs == 5
    assert make_executor().jobs == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "choose from threads, dask"),
        ({"address": "tcp://127.0.0.1:1"}, "is for the executor 'dask'"),
        ({"jobs": 0}, "jobs must be"),
    ],
)
def test_wrong_executors_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make_executor(**arguments)


def test_without_the_package_dask_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # how Python notes that there is none
    with pytest.raises(MissingPackageError, match=r"pip install .*\[dask\]'"):
        make_executor("dask")
