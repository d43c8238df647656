"""Tests that docs/architecture.md lists the files that a round and a replay execute."""

import re
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.cli.main import main
from tests.helpers.walk import FILE, PAGE, SOURCE, Walk, rows_on_page

CASCADE = sw.Cascade([0.01, 0.2], names=["quick", "slow"])
CASES = [[(37 * t % 100) / 100, (61 * t % 100) / 100] for t in range(40)]
CREATION = rows_on_page("## A round in the library", "`decision = policy.decide(x)`")
ROUND = rows_on_page("`decision = policy.decide(x)`", "Below these are")
RUNNER = rows_on_page("adds the stages", "`CascadeClassifier`")
REPLAY = rows_on_page("## A replay", "`--by` and")


def quick(x: Sequence[float]) -> bool:
    return x[0] > 0.5


def slow(x: Sequence[float]) -> bool:
    return x[0] + x[1] > 0.9


def new_policy() -> sw.USSLaplace:
    return sw.USSLaplace(CASCADE, context_dim=2)


def decide_and_observe(policy: sw.Policy) -> None:
    for x in CASES:
        decision = policy.decide(np.array(x))
        policy.observe(np.array(x), [quick(x), slow(x)][: decision.stop + 1])


def run_cases(policy: sw.Policy) -> None:
    runner = sw.Runner(policy, [quick, slow])
    for x in CASES:
        runner.run(x)


def python_files(rows: list[list[str]]) -> set[str]:
    return {name for name in chain(*rows) if name.endswith(".py")}


def test_a_round_in_the_library_executes_the_files_on_the_page() -> None:
    decide_and_observe(new_policy())
    creation, round_ = Walk(), Walk()
    with creation.recording():
        policy = new_policy()
    with round_.recording():
        decide_and_observe(policy)
    shared = {"checks.py", "cascade.py", "policies/validation.py"}  # checks of arguments
    shared |= {"policies/pairwise.py", "policies/protocol.py"}  # which set the attributes
    assert set(creation.files) - shared == python_files(CREATION)
    assert set(round_.files) - {"policies/validation.py"} == python_files(ROUND)
    assert len([name for row in ROUND for name in row]) <= 8


def test_a_runner_adds_the_files_on_the_page() -> None:
    run_cases(new_policy())
    policy, walk = new_policy(), Walk()
    with walk.recording():
        run_cases(policy)
    shared = python_files(ROUND) | python_files(CREATION) | {"checks.py"}
    assert set(walk.files) - shared == python_files(RUNNER)
    assert len(python_files(RUNNER)) <= 4


def test_a_replay_executes_the_files_on_the_page_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{x[0]},{x[1]},{quick(x)},{slow(x)},{slow(x)}\n" for x in CASES * 2]
    log.write_text("context.a,context.b,output.quick,output.slow,label\n" + "".join(rows))
    command = ["stopwise", "replay", str(log), "--costs", "0.01,0.2", "--out", str(tmp_path / "to")]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.delenv("FORCE_COLOR", raising=False)  # a bar instead of lines of progress
    walk = Walk()
    with pytest.raises(SystemExit, match="0"):
        main()
    with pytest.raises(SystemExit, match="0"), walk.recording():
        main()
    assert "replaying 80/80" in capsys.readouterr().err
    files = [name for name in walk.files if not name.startswith(("policies/", "features/"))]
    assert set(files) == python_files(REPLAY)
    row_of = {name: k for k, row in enumerate(REPLAY) for name in row}
    assert [row_of[name] for name in files] == sorted(row_of[name] for name in files)


def test_every_file_on_the_page_exists() -> None:
    for name in re.findall(FILE, PAGE):
        candidates = [SOURCE / "service" / name, SOURCE / name, SOURCE.parents[1] / name]
        assert any(path.exists() for path in candidates), name
