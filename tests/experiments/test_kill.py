"""A campaign that is killed goes on where it was: nothing lost, nothing done twice."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from stopwise.experiments.campaign import run_campaign
from stopwise.experiments.runs import Trace
from stopwise.experiments.store import RunStore
from tests.experiments.campaigns import (
    SPECS,
    WANTED,
    Journal,
    alive,
    campaign,
    ended,
    names,
    same,
    wait_until,
)

Runs = dict[tuple[str, int], Trace]


def kept(store: RunStore) -> Runs:
    return names(trace for spec in SPECS for trace in store.get(spec).values())


def check_resumed(path: Path, at_least: int, expected: Runs) -> None:
    """Finish a campaign, and check that no run was lost, done again or changed."""
    with RunStore(path) as store:
        before = kept(store)
        assert at_least <= len(before) < len(expected)
        journal = Journal()
        run_campaign(WANTED, store, journal)
        after = kept(store)
    assert sorted(journal.asked) == sorted(expected.keys() - before.keys())
    assert all(after[name].seconds == before[name].seconds for name in before)
    assert same(after, expected)


@pytest.mark.parametrize("engine", ["in-process", "processes"])
def test_a_killed_campaign_is_resumed(tmp_path: Path, engine: str, expected: Runs) -> None:
    path = tmp_path / "runs.db"
    process = campaign(path, engine, enough=7)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    ended(process)
    # workers notice that they are orphans: nobody pays for runs that nobody will take
    wait_until(lambda: not any(alive(child) for child in family))
    assert bool(family) == (engine == "processes")
    check_resumed(path, 7, expected)


def test_an_interrupted_campaign_ends_cleanly_and_is_resumed(
    tmp_path: Path, expected: Runs
) -> None:
    path = tmp_path / "runs.db"
    process = campaign(path, "processes", enough=5)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers are told as well
    complaints = ended(process)
    assert process.returncode == -signal.SIGINT
    assert complaints.count("Traceback") == 1  # the campaign's own, and none of the workers
    assert complaints.endswith("KeyboardInterrupt\n")
    wait_until(lambda: not any(alive(child) for child in family))
    check_resumed(path, 5, expected)
