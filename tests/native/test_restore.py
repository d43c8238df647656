"""Restoring a learner from any bytes fails with an error or creates a working learner.

`tests.native.damage` creates each input from a seed. It runs in separate processes, so that a crash
or an endless loop fails this test and identifies the input.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from tests.helpers.archive import assert_same
from tests.native import damage

ROOT = Path(__file__).parents[2]
TIMEOUT = 1_000.0  # seconds; the process normally takes a few


def run(first: int, count: int, seed_file: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.native.damage"]
    try:
        process = subprocess.run(
            [*command, str(first), str(count), str(seed_file)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"the input of seed {seed_file.read_text(encoding='ascii')} timed out")
    seed = seed_file.read_text(encoding="ascii").strip()
    assert process.returncode >= 0, (
        f"the input of seed {seed} crashed the process: {process.stderr}"
    )
    assert process.returncode == 0, process.stdout + process.stderr
    accepted = int(process.stdout.split()[0])
    assert 0.02 * count < accepted < 0.5 * count  # both kinds occur


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 400),
        *(pytest.param(k, 5_000, marks=pytest.mark.slow) for k in range(10_000, 110_000, 5_000)),
    ],
)
def test_damaged_bytes_are_rejected_or_harmless(first: int, count: int, tmp_path: Path) -> None:
    run(first, count, tmp_path / "seed")


def read_all(policy: Any, decision: sw.Decision) -> None:
    """Read all evidence and diagnostics, which must not change the state of the policy."""
    before = policy.state()
    damage.check(policy, decision)
    str(decision)
    if isinstance(policy, research.Supervised):
        policy.theta(0)
    else:
        policy.theta(0, 1)
    assert policy.effort["passes"] >= 0
    assert policy.nbytes > 0
    assert_same(policy.state(), before)


@pytest.mark.parametrize("name", damage.POLICIES)
def test_reading_evidence_has_no_side_effects(name: str) -> None:
    inspected, other = damage.POLICIES[name](), damage.POLICIES[name]()
    stops = damage.play(name, inspected, np.random.default_rng(8), 100, read_all)
    assert stops == damage.play(name, other, np.random.default_rng(8), 100)
    assert len(set(stops)) > 1
    assert_same(inspected.state(), other.state())
