"""Campaigns: missing runs are executed once, stored immediately, and counted."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError
from stopwise.research.experiments.campaign import run_campaign, tasks
from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from stopwise.research.experiments.store import RunStore
from tests.research.campaigns import PAIR, Journal


def spec(policy: str = "random-depth", rounds: int = 20) -> ExperimentSpec:
    return ExperimentSpec(PAIR, PolicySpec(policy), rounds=rounds, checkpoints=4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "runs.db") as store:
        yield store


def test_only_missing_runs_are_executed_and_only_once(store: RunStore) -> None:
    store.put(spec(), [execute(spec(), seed) for seed in (1, 3)])
    reported: list[tuple[int, ...]] = []
    experiments = [(spec(), [0, 1, 1, 2]), (spec("fixed-depth"), [0]), (spec(), (2, 3))]
    with Journal() as journal:
        run_campaign(experiments, store, journal, lambda _, *done: reported.append(done))
        assert sorted(seeds for s, seeds in journal.submitted if s == spec()) == [(0,), (2,)]
        assert reported == [(2, 5), (3, 5), (4, 5), (5, 5)]
        stored = store.get(spec())
        assert list(stored) == [0, 1, 2, 3]
        assert all(trace.agrees(execute(spec(), seed)) for seed, trace in stored.items())
        journal.submitted.clear()
        run_campaign(experiments, store, journal, lambda _, *done: reported.append(done))
    assert journal.submitted == []
    assert reported[4:] == [(5, 5)]


def test_invalid_spec_is_reported_before_the_first_run(store: RunStore) -> None:
    invalid = ExperimentSpec(PAIR, PolicySpec("uss-pd", {"delta": 7}), rounds=20)
    with Journal() as journal, pytest.raises(InvalidParameterError, match="delta"):
        run_campaign([(spec(), range(3)), (invalid, range(3))], store, journal)
    assert journal.submitted == []


def test_runs_finished_before_a_failure_are_stored_and_not_repeated(store: RunStore) -> None:
    good, bad = spec(), spec("supervised")  # PAIR has no labels to learn from
    with Journal() as journal:
        with pytest.raises(sw.errors.TruthRequiredError):
            run_campaign([(good, range(4)), (bad, range(4))], store, journal)
        before = store.get(good)
        assert 0 in before  # the first tasks are one of each experiment
        run_campaign([(good, range(4))], store, journal)
    assert {seed for _, seed in journal.runs} == set(range(4)) - before.keys()


@pytest.mark.parametrize("runs", [1, 39, 400])
def test_tasks_cover_every_run_once_in_a_suitable_number_of_chunks(runs: int) -> None:
    missing = {spec(rounds=r): list(range(runs)) for r in (10, 20, 30)}
    chunks = tasks(missing)
    for experiment in missing:
        seeds = list(chain.from_iterable(seeds for s, seeds in chunks if s == experiment))
        assert seeds == list(range(runs))
    assert max(len(seeds) for _, seeds in chunks) <= 10
    assert min(3 * runs, 40) <= len(chunks) <= max(3 * runs / 10, 2 * 40 + 3)
    assert [s.rounds for s, _ in chunks[:3]] == [10, 20, 30]  # experiments are interleaved
