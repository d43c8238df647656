"""Campaigns: what is missing is done once, kept at once, and reported."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.errors import EngineError, InvalidParameterError
from stopwise.experiments.campaign import RUNS_A_TASK, run_campaign, tasks
from stopwise.experiments.engines import InProcess, Runs, Task
from stopwise.experiments.runs import execute
from stopwise.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
from stopwise.experiments.store import RunStore

WHERE = EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2]]})


def spec(policy: str = "random-depth", rounds: int = 20) -> ExperimentSpec:
    return ExperimentSpec(WHERE, PolicySpec(policy), rounds=rounds, checkpoints=4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "runs.db") as store:
        yield store


class Journal(InProcess):
    """Notes what it was asked to do."""

    def __init__(self) -> None:
        self.asked: list[Task] = []

    def run(self, tasks: Iterable[Task]) -> Runs:
        self.asked = list(tasks)
        return super().run(self.asked)

    @property
    def seeds(self) -> list[int]:
        return [seed for _, seeds in self.asked for seed in seeds]


def test_every_run_asked_for_is_done_and_stored(store: RunStore) -> None:
    first, second = spec(), spec("fixed-depth")
    run_campaign([(first, range(5)), (second, [9, 3])], store, InProcess())
    assert {s: t.agrees(execute(first, s)) for s, t in store.get(first).items()} == dict.fromkeys(
        range(5), True
    )
    assert list(store.get(second)) == [3, 9]


def test_only_what_is_missing_is_done_and_only_once(store: RunStore) -> None:
    store.put(spec(), [execute(spec(), seed) for seed in (1, 3)])
    journal = Journal()
    reported: list[tuple[int, int]] = []

    def progress(stage: str, done: int, of: int) -> None:
        reported.append((done, of))

    asked = [(spec(), [0, 1, 1, 2]), (spec("fixed-depth"), [0]), (spec(), (2, 3))]
    run_campaign(asked, store, journal, progress)
    assert sorted(seeds for s, seeds in journal.asked if s == spec()) == [(0,), (2,)]
    assert reported == [(2, 5), (3, 5), (4, 5), (5, 5)]
    journal.asked.clear()
    run_campaign(asked, store, journal, progress)
    assert journal.asked == []
    assert reported[4:] == [(5, 5)]


def test_a_mistake_anywhere_comes_to_light_before_the_first_run(store: RunStore) -> None:
    wrong = ExperimentSpec(WHERE, PolicySpec("uss-pd", {"delta": 7}), rounds=20)
    journal = Journal()
    with pytest.raises(InvalidParameterError, match="delta"):
        run_campaign([(spec(), range(3)), (wrong, range(3))], store, journal)
    assert journal.asked == []


def test_what_was_finished_before_a_failure_is_kept_and_not_done_again(store: RunStore) -> None:
    good, bad = spec(), spec("supervised")  # which has no labels to learn from here
    wanted = [(good, range(4)), (bad, range(4))]
    with pytest.raises(sw.TruthRequiredError):
        run_campaign(wanted, store, InProcess())
    kept = store.get(good)
    assert list(kept) == [0]  # of the first round of tasks, one of each experiment
    journal = Journal()
    run_campaign(wanted[:1], store, journal)
    assert journal.seeds == [1, 2, 3]
    assert store.get(good)[0].seconds == kept[0].seconds


def test_an_interruption_closes_the_engine_at_once(store: RunStore) -> None:
    closed: list[bool] = []

    class Watched(InProcess):
        def run(self, tasks: Iterable[Task]) -> Runs:
            try:
                yield from super().run(tasks)
            finally:
                closed.append(True)

    def interrupt(stage: str, done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run_campaign([(spec(), range(5))], store, Watched(), interrupt)
    assert closed == [True]
    del caught
    assert list(store.get(spec())) == [0, 1]


def test_runs_that_nobody_asked_for_are_refused(store: RunStore) -> None:
    class Elsewhere(InProcess):  # as a worker with another version would
        def run(self, tasks: Iterable[Task]) -> Runs:
            return super().run((spec(rounds=99), seeds) for _, seeds in tasks)

    with pytest.raises(EngineError, match="same version"):
        run_campaign([(spec(), range(3))], store, Elsewhere())
    assert store.specs() == []


@pytest.mark.parametrize("runs", [1, 39, 400])
def test_tasks_hold_every_run_once_and_are_neither_too_many_nor_too_few(runs: int) -> None:
    missing = {spec(rounds=r): list(range(runs)) for r in (10, 20, 30)}
    cut = tasks(missing)
    for one in missing:
        seeds = list(chain.from_iterable(seeds for s, seeds in cut if s == one))
        assert seeds == list(range(runs))
    assert max(len(seeds) for _, seeds in cut) <= RUNS_A_TASK
    assert len(cut) >= min(3 * runs, 40)
    assert len(cut) <= max(3 * runs / RUNS_A_TASK, 2 * 40 + 3)
    assert [s.rounds for s, _ in cut[:3]] == [10, 20, 30]  # a few of every experiment first
