"""Runs of every kind are reproducible, and decide what the stored checksums say."""

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


def test_specs_have_every_policy_number_of_arms_and_way() -> None:
    assert len(SPECS) >= 64
    assert len({spec.name for spec in SPECS}) == len({spec.seed for spec in SPECS}) == len(SPECS)
    assert {spec.policy for spec in SPECS} == set(adapter.policy_names())
    assert {len(spec.costs) for spec in SPECS} == set(range(2, 8))
    for way in ("single", "pairs", "staged", "run", "recorded"):
        assert sum(spec.way == way for spec in SPECS) >= 3


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_decisions_are_those_of_the_stored_checksums(spec: Spec) -> None:
    record = play(spec)
    assert len({stop for _, stop, _ in record.rounds if stop >= 0}) > 1  # it shows something
    if spec.name in DIGESTS:
        assert record.digest() == DIGESTS[spec.name]


@pytest.mark.parametrize("spec", QUICK, ids=[spec.name for spec in QUICK])
def test_a_run_repeats_itself(spec: Spec) -> None:
    one, other = play(spec), play(spec)
    assert one == other
    assert first_difference(one, other) is None


@pytest.mark.parametrize("spec", RELOADED, ids=[spec.name for spec in RELOADED])
def test_saving_and_loading_changes_nothing(spec: Spec) -> None:
    reloaded, kept = play(spec), play(msgspec.structs.replace(spec, reload_at=()))
    assert reloaded == msgspec.structs.replace(kept, inputs=reloaded.inputs)


def test_two_processes_write_the_same_file(tmp_path: Path) -> None:
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


def test_a_comparison_finds_what_differs() -> None:
    rounds: list[tuple[int, int, int | None]] = [(0, 1, 1), (2, 0, 0), (1, 2, 0)]
    estimates: dict[str, list[float] | None] = {"0-1": [0.25, 1.0]}
    one = Record(name="a", inputs="b", rounds=rounds, estimates=estimates)

    def found(**other: object) -> str | None:
        return first_difference(one, msgspec.structs.replace(one, **other))

    assert found() is None
    assert found(inputs="c") == "not comparable: the spec or its world has changed"
    assert found(rounds=[*rounds[:2], (1, 2, 1)]) == (
        "round, stop, rule stop 2: (1, 2, 0) | (1, 2, 1)"
    )
    assert found(rounds=rounds[:2]) == "round, stop, rule stop 2: (1, 2, 0) | nothing"
    assert found(requests=[(1, 0.5, 0.1, 1)]) == "request 0: nothing | (1, 0.5, 0.1, 1)"
    assert found(estimates={"0-1": [0.25, 1.000000001]}) is None
    assert found(estimates={"0-1": [0.25, 1.00001]}) is not None
    assert found(fixed=1) == "fixed decisions 0: 0 | 1"
