"""Killed and interrupted campaigns resume without losing or repeating runs."""

import json
import os
import signal
from pathlib import Path

import pytest

from stopwise.research.experiments.campaign import run_campaign
from stopwise.research.experiments.store import RunStore
from tests.research.campaigns import (
    CAMPAIGN,
    SEEDS,
    SPECS,
    Journal,
    Runs,
    by_name,
    ended,
    expected,
    python,
    same,
)

# A campaign that, after enough runs, prints how many have finished and waits to be killed.
SCRIPT = """
import concurrent.futures, json, sys
import msgspec
from stopwise.research.experiments.campaign import run_campaign
from stopwise.executors import make_executor
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.experiments.store import RunStore

path, enough, specs, n_seeds = json.loads(sys.argv[1])

def progress(stage, done, of):
    if done >= enough:
        concurrent.futures.wait(submitted)
        print(len(submitted), flush=True)
        sys.stdin.read()

experiments = [(msgspec.json.decode(text, type=ExperimentSpec), range(n_seeds)) for text in specs]
submitted = []
with RunStore(path) as store, make_executor(jobs=2) as executor:
    submit = executor._submit
    executor._submit = lambda *task: submitted.append(submit(*task)) or submitted[-1]
    run_campaign(experiments, store, executor, progress)
"""


def stored(store: RunStore) -> Runs:
    return by_name(trace for spec in SPECS for trace in store.get(spec).values())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_stopped_campaign_resumes(tmp_path: Path, signum: signal.Signals) -> None:
    path = tmp_path / "runs.db"
    texts = [spec.to_json() for spec in SPECS]
    process = python("-c", SCRIPT, json.dumps([str(path), 7, texts, len(SEEDS)]))
    assert process.stdout is not None
    finished = int(process.stdout.readline())
    os.killpg(process.pid, signum)
    stderr = ended(process)
    assert process.returncode == -signum
    if signum == signal.SIGINT:
        assert stderr.count("Traceback") == 1  # from the campaign, not from workers
        assert stderr.endswith("KeyboardInterrupt\n")
    with RunStore(path) as store:
        before = stored(store)
        assert 7 <= len(before) <= finished < len(expected())
        with Journal() as journal:
            run_campaign(CAMPAIGN, store, journal)
        after = stored(store)
    assert sorted(journal.runs) == sorted(expected().keys() - before.keys())
    assert same(after, expected())
