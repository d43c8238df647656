"""The same events leave the same bits, whichever instructions of the processor the engine uses."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import stopwise as sw
from stopwise.policies.contextual import Contextual
from tests.helpers import archive
from tests.native.whole_runs import RUNS, N

ROOT = Path(__file__).parents[2]
# runs whose rows are few enough at every depth to be counted
SMALL = {"uss-pd with contexts that repeat"}


class Played(NamedTuple):
    """What a process wrote, and the instructions that it used."""

    folder: Path
    instructions: str


def play(folder: Path, wish: str | None) -> "subprocess.Popen[str]":
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "STOPWISE_INSTRUCTIONS"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.native.whole_runs", str(folder)],
        cwd=ROOT,
        env=environment | ({} if wish is None else {"STOPWISE_INSTRUCTIONS": wish}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Played, Played]:
    """The runs as this machine plays them, and by the instructions that every machine has."""
    parent = tmp_path_factory.mktemp("runs")
    folders = parent / "as it comes", parent / "baseline"
    started = [play(folders[0], None), play(folders[1], "baseline")]
    done: list[Played] = []
    for folder, process in zip(folders, started, strict=True):
        said, trouble = process.communicate()
        assert process.returncode == 0, trouble
        done.append(Played(folder, said.strip()))
    return done[0], done[1]


def processor_has_avx2() -> bool:
    try:
        return " avx2 " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def test_the_instructions_are_the_widest_or_the_baseline(played: tuple[Played, Played]) -> None:
    assert played[1].instructions == "baseline"
    assert played[0].instructions == ("avx2" if processor_has_avx2() else "baseline")


def test_policies_are_saved_to_the_same_bytes(played: tuple[Played, Played]) -> None:
    as_it_comes, baseline = played
    if as_it_comes.instructions == baseline.instructions:
        pytest.skip("this processor has no AVX2: there is only one set of kernels")
    for path in sorted(baseline.folder.iterdir()):
        assert (as_it_comes.folder / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("run", RUNS)
def test_the_runs_show_something(run: str, played: tuple[Played, Played]) -> None:
    """Long, with rows kept singly, and with rounds that ended at several depths."""
    policy = sw.load(played[0].folder / f"{run}.stopwise")
    assert policy.rounds > 0.9 * N > 5_000
    if not isinstance(policy, Contextual):
        return
    stops = [row.stop for row in archive.rows(policy)]
    assert len(set(stops)) > 1 or len(stops) < 0.9 * policy.rounds
    assert policy.effort["passes"] > 100
    single = any(
        part[0] > 0
        for name, part in archive.parts(policy).items()
        if name.startswith("history") and name.endswith("single.blocks")
    )
    assert single == (run not in SMALL)
    if "labels" in run:
        assert policy.audits > 1000
