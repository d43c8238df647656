"""Engines: the numbers of `execute`, no more work ahead than needed, and mistakes named."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.research.experiments.engines import AHEAD, Dask, Task, Threads, make_engine
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from tests.research.campaigns import SPECS, TASKS, done, expected, same, wait_until


@pytest.fixture(scope="module")
def engine() -> Iterator[Threads]:
    before = threading.active_count()
    with Threads(jobs=2) as engine:
        yield engine
    assert threading.active_count() == before


def test_the_numbers_do_not_depend_on_the_threads(engine: Threads) -> None:
    assert same(done(engine.run(TASKS)), expected())


def test_tasks_are_taken_as_workers_need_them(engine: Threads) -> None:
    taken: list[int] = []

    def endless() -> Iterator[Task]:
        for seed in range(1_000_000):
            taken.append(seed)
            yield SPECS[0], (seed,)

    results = engine.run(endless())
    for _ in range(10):
        next(results)
    assert len(taken) <= 10 + AHEAD * engine.jobs
    results.close()


def test_closing_drops_the_runs_under_way_and_those_that_have_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, dropped = [], threading.Event()

    class Endless(sw.FixedDepth):
        def _at_once(self, rounds: Any) -> Any:
            begun.append(self)
            deadline = time.monotonic() + 60
            try:
                while time.monotonic() < deadline:
                    rounds.progress("rounds", 1, 2)
            except BaseException:
                dropped.set()
                raise

    monkeypatch.setitem(sw.POLICIES, "endless", Endless)
    endless = ExperimentSpec(SPECS[0].environment, PolicySpec("endless"), rounds=2)
    engine = Threads(jobs=1)
    results = engine.run([*TASKS[:1], (endless, (0,)), (endless, (1,))])
    next(results)
    wait_until(lambda: bool(begun))
    engine.close()
    assert dropped.is_set()
    assert len(begun) == 1
    results.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        next(engine.run(TASKS))


def test_engines_have_names() -> None:
    for name, kind in (("threads", Threads), ("dask", Dask)):
        with make_engine(name, jobs=5) as made:  # never used
            assert isinstance(made, kind)
            assert made.jobs == 5
    assert make_engine().jobs == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "spark"}, "there are threads, dask"),
        ({"address": "tcp://127.0.0.1:1"}, "is for the engine 'dask'"),
        ({"jobs": 0}, "jobs must be"),
    ],
)
def test_wrong_engines_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        make_engine(**arguments)


def test_without_the_package_dask_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # how Python notes that there is none
    with pytest.raises(MissingPackageError, match=r"pip install .*\[dask\]'"):
        make_engine("dask")
