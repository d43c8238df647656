"""The same events give the same bits with every instruction set.

``python -m tests.native.test_same_bits FOLDER`` plays runs of all kinds, writes each policy and
some of its evidence, and prints the instruction set of the engine.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from stopwise.engine import native
from stopwise.policies.pairwise import PairwisePolicy
from tests.helpers import archive

ROOT = Path(__file__).parents[2]
N = 12_000  # exceeds the number of counted rows
STEPS = 8_500  # for stepwise runs; also exceeds it
LINE, CURVE = sw.Polynomial(1), sw.Polynomial(2)


def world(
    d: int, n_arms: int, levels: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Contexts, outputs and labels; deeper arms err less."""
    rng = np.random.default_rng([d, n_arms, N])
    x = rng.uniform(-1, 1, (N, d))
    if levels is not None:
        x = np.round(x * levels) / levels
    labels = rng.integers(0, 3, N)
    errors = np.clip((0.25 + 0.2 * x[:, :1]) / (1 + np.arange(n_arms)), 0.01, 1.0)
    wrong = rng.random((N, n_arms)) < errors
    shift = rng.integers(1, 3, (N, n_arms))
    return x, np.where(wrong, (labels[:, None] + shift) % 3, labels[:, None]), labels


def cascade(n_arms: int, share: float = 1.0) -> sw.Cascade:
    """A cascade whose costs make the best depth vary."""
    return sw.Cascade([share * cost for cost in (0.05, 0.22, 0.15, 0.12, 0.1)[:n_arms]])


def run_batch(
    kind: str,
    features: Any,
    d: int,
    n_arms: int,
    levels: int | None = None,
    watch: bool = False,
    **settings: Any,
) -> Any:
    x, outputs, _ = world(d, n_arms, levels)
    policy: Any = sw.make(kind, cascade(n_arms), features=features, context_dim=d, **settings)
    if watch:
        policy.watch(lambda change: None)
    policy.run(x, outputs)
    return policy


def run_recorded(kind: str, features: Any, d: int, n_arms: int, **settings: Any) -> Any:
    """A replay in which the policy requests labels."""
    x, outputs, labels = world(d, n_arms)
    costs = cascade(n_arms, 0.35)
    policy: Any = sw.make(kind, costs, features=features, context_dim=d, labels=0.2, **settings)
    t = np.arange(N)
    policy.run_recorded(
        sw.RecordedRounds(
            x,
            np.array([[y[i] != y[j] for i, j in costs.pairs()] for y in outputs], dtype=np.uint8),
            answered=np.where(t % 10 == 0, t % n_arms + 1, n_arms),
            failed=t % 20 == 0,
            right=outputs == labels[:, None],
            labelled=np.ones(N, dtype=np.bool_),
        )
    )
    return policy


def run_stepwise(kind: type[Any], d: int, n_arms: int, **settings: Any) -> Any:
    """Rounds played step by step with revealed contexts and label requests."""
    x, outputs, labels = world(d, n_arms)
    options = {"context_dim": d - n_arms + 1, "reveals": 1}
    policy = kind(cascade(n_arms, 0.35), **options, **settings)
    for t in range(STEPS):
        current = policy.start(x[t, : d - n_arms + 1])
        while (arm := current.next()) is not None:
            seen = len(current.context)
            current.give(int(outputs[t, arm]), x[t, seen : seen + 1].tolist())
        current.learn()
        if current.wants_label:
            policy.label(current, int(labels[t]))
    return policy


BY_PAIR = sw.PerPair({(0, 1): sw.Identity(), (0, 2): CURVE, (1, 2): LINE})
RUNS: dict[str, Callable[[], Any]] = {
    **{
        f"{d} features": partial(run_batch, "uss-pd", LINE, d - 1, 3, sigma=0.1 / d)
        for d in (2, 4, 5, 9)
    },
    "45 features": partial(run_batch, "uss-pd", CURVE, 8, 2, sigma=0.01),
    "until explored": partial(run_batch, "uss-pd", LINE, 3, 3, forced_rounds="auto"),
    "five arms": partial(run_batch, "uss-pd", LINE, 3, 5, sigma=0.03),
    "contexts that repeat": partial(run_batch, "uss-pd", LINE, 3, 3, levels=3),
    "exploration": partial(run_batch, "uss-pd", LINE, 3, 3, explore=0.5, seed=2),
    "ridge": partial(run_batch, "uss-pd-ridge", LINE, 3, 4, lam=0.2, sigma=0.2),
    "ridge by pairs": partial(run_batch, "uss-pd-ridge", BY_PAIR, 3, 3, lam=0.3, S=0.5, sigma=0.1),
    "thompson": partial(run_batch, "thompson", LINE, 3, 3, seed=9),
    "thompson with 15 features": partial(run_batch, "thompson", CURVE, 4, 3, seed=9),
    "laplace": partial(run_batch, "uss-laplace", None, 3, 4),
    "changes": partial(run_batch, "uss-laplace", None, 3, 4, watch=True),
    "anchor": partial(run_batch, "uss-anchor", CURVE, 3, 3, z=3.0),
    "labels in a replay": partial(run_recorded, "uss-pd", LINE, 3, 3, sigma=0.03),
    "labels in a replay, laplace": partial(run_recorded, "uss-laplace", None, 3, 4, seed=4),
    "labels and stages that reveal": partial(run_stepwise, sw.USSLaplace, 5, 4, labels=0.2),
    "stages that reveal": partial(run_stepwise, sw.USSAnchor, 5, 4, features=LINE, seed=5),
    "uss-ucb": partial(run_batch, "uss-ucb", None, 2, 4),
    "uss-ts": partial(run_batch, "uss-ts", None, 2, 4, seed=3),
}


def evidence(policy: Any) -> str:
    """Return the evidence of a few decisions with exact numbers."""
    lines: list[str] = []
    d = policy.features.context_dim if policy.features is not None else 2
    for x in [] if policy.reveals is not None else np.random.default_rng(6).uniform(-1, 1, (10, d)):
        for e in policy.decide(x).evidence:
            numbers = (e.gap, e.disagreement, e.disagreement_ucb, e.gain)
            lines.append(f"{e.first} {e.second} {[float(v).hex() for v in numbers]} {e.gap_won}")
    return "\n".join(lines)


def main(folder: Path) -> None:
    for name, play in RUNS.items():
        policy = play()
        policy.save(folder / f"{name}.stopwise")
        (folder / f"{name}.txt").write_text(evidence(policy))
    print(native.instructions())


def start(folder: Path, instructions: str) -> "subprocess.Popen[str]":
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=ROOT,
        env=os.environ | {"STOPWISE_INSTRUCTIONS": instructions},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_saved_policies_are_bit_identical_for_all_instruction_sets(tmp_path: Path) -> None:
    instructions: dict[str, str] = {}
    for name, process in {n: start(tmp_path / n, n) for n in ("widest", "baseline")}.items():
        printed, errors = process.communicate()
        assert process.returncode == 0, errors
        instructions[name] = printed.strip()
    cpu = Path("/proc/cpuinfo")
    has_avx2 = cpu.exists() and " avx2 " in cpu.read_text(encoding="utf-8")
    assert instructions == {"widest": "avx2" if has_avx2 else "baseline", "baseline": "baseline"}
    for path in sorted((tmp_path / "baseline").iterdir()):
        assert (tmp_path / "widest" / path.name).read_bytes() == path.read_bytes(), path.name
    for run in RUNS:
        assert_run_covers_all_rows(run, sw.load(tmp_path / "widest" / f"{run}.stopwise"))


def assert_run_covers_all_rows(run: str, policy: Any) -> None:
    """Check that a run is long, has rows stored singly, and stops at several depths."""
    assert policy.rounds > 0.9 * (STEPS if "stages" in run else N)
    if isinstance(policy, PairwisePolicy):
        rows = archive.rows(policy)
        assert len({row.stop for row in rows}) > 1 or len(rows) < 0.9 * policy.rounds
        counted = max(Counter(row.stop for row in rows).values()) <= archive.MAX_DISTINCT
        assert counted == (run == "contexts that repeat")
        assert policy.effort["passes"] > 100
        assert "labels" not in run or policy.labels.received > 500


if __name__ == "__main__":
    main(Path(sys.argv[1]))
