"""Restoring a learner from any bytes raises an error or gives a working learner.

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
AT_MOST = 1_000.0  # timeout in seconds; the process normally takes a few


def run(first: int, count: int, note: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.native.damage"]
    try:
        done = subprocess.run(
            [*command, str(first), str(count), str(note)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=AT_MOST,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"the input of seed {note.read_text(encoding='ascii')} does not end")
    seed = note.read_text(encoding="ascii").strip()
    assert done.returncode >= 0, f"the input of seed {seed} ends the process: {done.stderr}"
    assert done.returncode == 0, done.stdout + done.stderr
    accepted = int(done.stdout.split()[0])
    assert 0.02 * count < accepted < 0.5 * count  # some of both kinds were tried


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 400),
        *(pytest.param(k, 5_000, marks=pytest.mark.slow) for k in range(10_000, 110_000, 5_000)),
    ],
)
def test_damaged_bytes_are_rejected_or_harmless(first: int, count: int, tmp_path: Path) -> None:
    run(first, count, tmp_path / "seed")


def look(policy: Any, decision: sw.Decision) -> None:
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


@pytest.mark.parametrize("name", damage.NEW)
def test_reading_evidence_has_no_side_effects(name: str) -> None:
    looked_at, other = damage.NEW[name](), damage.NEW[name]()
    stops = damage.live(name, looked_at, np.random.default_rng(8), 100, look)
    assert stops == damage.live(name, other, np.random.default_rng(8), 100)
    assert len(set(stops)) > 1
    assert_same(looked_at.state(), other.state())
