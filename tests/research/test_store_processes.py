"""A run store with several writing processes, some of them killed."""

import subprocess
from pathlib import Path

from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from stopwise.research.experiments.store import RunStore
from tests.research.campaigns import PAIR, ended, python, wait_until

SPEC = ExperimentSpec(PAIR, PolicySpec("random-depth"), rounds=10, checkpoints=5)
ENDLESS = 2**62

# Writers start together, so that they open and possibly create the file at the same time.
WRITER = """
import sys
import msgspec
from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.experiments.store import RunStore

path, text, first, last = sys.argv[1:]
spec = msgspec.json.decode(text, type=ExperimentSpec)
execute(spec, 0)
print("ready", flush=True)
sys.stdin.readline()
with RunStore(path) as store:
    for seed in range(int(first), int(last)):
        store.put(spec, [execute(spec, seed)])
"""


def write(path: Path, *ranges: tuple[int, int]) -> "list[subprocess.Popen[str]]":
    """Start a process for each range of seeds, simultaneously."""
    writers = [python("-c", WRITER, str(path), SPEC.to_json(), str(a), str(b)) for a, b in ranges]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    return writers


def check(path: Path, at_least: int) -> None:
    with RunStore(path) as store:
        stored = store.get(SPEC)
    assert len(stored) >= at_least
    assert list(stored) == list(range(len(stored)))
    assert all(trace.agrees(execute(SPEC, seed)) for seed, trace in stored.items())


def test_processes_can_create_and_write_a_store_simultaneously(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for writer in write(path, (0, 20), (10, 30), (0, 30)):  # with overlapping seeds
        assert ended(writer) == ""
        assert writer.returncode == 0
    check(path, at_least=30)


def test_killed_writers_leave_only_complete_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = 0
    for enough in (1, 40):
        (writer,) = write(path, (first, ENDLESS))
        wait_until(path.exists)
        with RunStore(path) as store:
            wait_until(lambda enough=enough, store=store: len(store.get(SPEC)) >= enough)
        writer.kill()
        ended(writer)
        check(path, at_least=enough)
        with RunStore(path) as store:
            first = len(store.get(SPEC))
