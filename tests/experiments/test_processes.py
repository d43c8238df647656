"""Several processes: the same numbers, and a clear word when one is lost."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from itertools import chain

import pytest

import stopwise as sw
from stopwise.errors import EngineError
from stopwise.experiments.engines import Processes
from stopwise.experiments.runs import Trace
from stopwise.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
from tests.experiments.campaigns import TASKS, names, same

Runs = dict[tuple[str, int], Trace]


@pytest.fixture(scope="module")
def engine() -> Iterator[Processes]:
    with Processes(jobs=2) as engine:
        yield engine
    assert not multiprocessing.active_children()


def test_the_numbers_are_those_of_one_process(engine: Processes, expected: Runs) -> None:
    assert same(names(chain.from_iterable(engine.run(TASKS))), expected)


def test_results_come_as_they_are_finished(engine: Processes) -> None:
    asked: list[int] = []

    def endless() -> Iterator[tuple[ExperimentSpec, tuple[int, ...]]]:
        for seed in range(1_000_000):
            asked.append(seed)
            yield TASKS[0][0], (seed,)

    results = engine.run(endless())
    for _ in range(10):
        next(results)
    assert len(asked) <= 10 + 6  # no more are handed out than workers need
    results.close()


def test_what_goes_wrong_in_a_run_is_raised_as_it_is(engine: Processes) -> None:
    where = EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2]]})
    wrong = ExperimentSpec(where, PolicySpec("supervised"), rounds=20)
    with pytest.raises(sw.TruthRequiredError, match="labels"):
        list(engine.run([*TASKS[:3], (wrong, (0,))]))
    assert len(list(engine.run(TASKS[:2]))) == 2  # and it can go on


def test_a_lost_worker_is_told_with_what_to_do(engine: Processes, expected: Runs) -> None:
    results = engine.run(TASKS)
    done = names(next(results))
    victim = multiprocessing.active_children()[0].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)

    def go_on() -> None:
        for traces in results:
            done.update(names(traces))

    with pytest.raises(EngineError, match=r"Finished runs are kept: start the same campaign again"):
        go_on()
    assert all(trace.agrees(expected[name]) for name, trace in done.items())
    left = [(spec, seeds) for spec, seeds in TASKS if (spec.key, seeds[0]) not in done]
    assert left
    assert same(done | names(chain.from_iterable(engine.run(left))), expected)
