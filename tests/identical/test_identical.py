"""Runs are reproducible and match the stored checksums."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.identical import adapter
from tests.identical.compare import first_difference, read
from tests.identical.play import Record, play
from tests.identical.specs import SPECS, Spec

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).with_name("digests.json")
DIGESTS: dict[str, str] = msgspec.json.decode(STORED.read_bytes()) if STORED.exists() else {}
QUICK = [spec for spec in SPECS if spec.quick]
RELOADED = [spec for spec in QUICK if spec.reload_at]


def test_specs_cover_all_policies_arm_counts_and_ways_of_playing() -> None:
    assert len(SPECS) >= 64
    assert len({spec.name for spec in SPECS}) == len({spec.seed for spec in SPECS}) == len(SPECS)
    assert {spec.policy for spec in SPECS} == set(adapter.policy_names())
    assert {len(spec.costs) for spec in SPECS} == set(range(2, 8))
    for way in ("single", "pairs", "staged", "run", "recorded"):
        assert sum(spec.way == way for spec in SPECS) >= 3


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_decisions_match_the_stored_checksums(spec: Spec) -> None:
    record = play(spec)
    assert len({stop for _, stop, _ in record.rounds if stop >= 0}) > 1  # stops vary
    if spec.name in DIGESTS:
        assert record.digest() == DIGESTS[spec.name]


@pytest.mark.parametrize("spec", QUICK, ids=[spec.name for spec in QUICK])
def test_runs_are_reproducible(spec: Spec) -> None:
    first, second = play(spec), play(spec)
    assert first == second
    assert first_difference(first, second) is None


@pytest.mark.parametrize("spec", RELOADED, ids=[spec.name for spec in RELOADED])
def test_saving_and_loading_does_not_change_a_run(spec: Spec) -> None:
    reloaded, continuous = play(spec), play(msgspec.structs.replace(spec, reload_at=()))
    assert reloaded == msgspec.structs.replace(continuous, inputs=reloaded.inputs)


def test_two_processes_write_equal_files(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.identical.play",
                tmp_path / seed,
                "--only",
                "interleaved",
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert len(read(tmp_path / "1")) > 2


def test_first_difference_reports_differences() -> None:
    rounds: list[tuple[int, int, int | None]] = [(0, 1, 1), (2, 0, 0), (1, 2, 0)]
    estimates: dict[str, list[float] | None] = {"0-1": [0.25, 1.0]}
    record = Record(name="a", inputs="b", rounds=rounds, estimates=estimates)

    def difference(**other: object) -> str | None:
        return first_difference(record, msgspec.structs.replace(record, **other))

    assert difference() is None
    assert difference(inputs="c") == "not comparable: the spec or its world has changed"
    assert difference(rounds=[*rounds[:2], (1, 2, 1)]) == (
        "round, stop, rule stop 2: (1, 2, 0) | (1, 2, 1)"
    )
    assert difference(rounds=rounds[:2]) == "round, stop, rule stop 2: (1, 2, 0) | nothing"
    assert difference(requests=[(1, 0.5, 0.1, 1)]) == "request 0: nothing | (1, 0.5, 0.1, 1)"
    assert difference(estimates={"0-1": [0.25, 1.000000001]}) is None
    assert difference(estimates={"0-1": [0.25, 1.00001]}) is not None
    assert difference(fixed=1) == "fixed decisions 0: 0 | 1"
