"""The ε-greedy example: a custom policy that follows the full protocol."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research

FILE = Path(__file__).parents[2] / "examples" / "own_policy.py"
CASCADE = sw.Cascade([0.05, 0.15, 0.2])
WORLD = research.LogisticArms(CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0])


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, Any]]:
    registered = dict(sw.POLICIES)
    yield runpy.run_path(str(FILE), run_name="own_policy")
    sw.POLICIES.clear()  # unregister it for other tests
    sw.POLICIES.update(registered)


@pytest.fixture
def policy(example: dict[str, Any]) -> Any:
    return example["EpsilonGreedy"](CASCADE, sw.Polynomial(degree=1), context_dim=2, seed=1)


def test_all_entry_points_give_the_same_decisions(policy: Any) -> None:
    batch = WORLD.sample(300, np.random.default_rng(0))
    assert batch.outputs is not None
    outputs = batch.outputs
    twins = [type(policy)(CASCADE, sw.Polynomial(degree=1), 2, seed=1) for _ in range(2)]
    differ = np.stack([outputs[:, i] != outputs[:, j] for i, j in CASCADE.pairs()], axis=1)
    stops = policy.run(batch.contexts, outputs).tolist()
    assert twins[0].run(batch.contexts, differ=differ).tolist() == stops
    for t, stop in enumerate(stops):
        assert twins[1].decide(batch.contexts[t]).stop == stop
        twins[1].observe(batch.contexts[t], outputs[t, : stop + 1].tolist())
    for twin in twins:
        np.testing.assert_array_equal(twin.state()["theta"], policy.state()["theta"])


def test_policy_follows_the_protocol(policy: Any) -> None:
    sw.check_policy(policy)
    sw.check_policy(type(policy)(CASCADE, context_dim=3, epsilon=0.5))


def test_policy_continues_from_its_state(policy: Any) -> None:
    sw.simulate(policy, WORLD, rounds=100)
    twin = type(policy)(CASCADE, sw.Polynomial(degree=1), 2, **policy.parameters())
    twin.restore(policy.state())
    np.testing.assert_array_equal(twin.state()["rounds"], [100])
    stops, twin_stops = (sw.simulate(p, WORLD, rounds=50, seed=2).stops for p in (policy, twin))
    np.testing.assert_array_equal(stops, twin_stops)


def test_uss_pd_has_less_regret_than_much_exploration(example: dict[str, Any]) -> None:
    results = example["play"](rounds=400, runs=2, jobs=1)
    best, _, worst = (
        np.mean([trace.regret[-1] for trace in traces.values()]) for traces in results.values()
    )
    assert best < 0.8 * worst


def test_script_runs_in_two_threads(
    example: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [sys.executable, FILE, "--rounds", "60", "--runs", "2", "--jobs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    example["print_table"](example["play"](rounds=60, runs=2, jobs=1))
    table = capsys.readouterr().out
    assert "ε-greedy, ε = 0.05" in table
    assert done.stdout.startswith(table)
    assert (tmp_path / "own_policy.png").read_bytes().startswith(b"\x89PNG")
