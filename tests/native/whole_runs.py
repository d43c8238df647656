"""Plays whole runs of every kind and saves what came of them: one process per set of instructions.

``python -m tests.native.whole_runs FOLDER`` writes a policy and what it said for each run, and
prints which instructions the engine used.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from stopwise.engine import native

N = 12_000  # more rounds than contexts are kept once
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def world(d: int, n_arms: int, n: int = N, levels: int | None = None) -> tuple[Floats, Ints, Ints]:
    """Contexts, what the arms say, and the right answers; deeper arms err less."""
    rng = np.random.default_rng([d, n_arms, n])
    x = rng.uniform(-1, 1, (n, d))
    if levels is not None:
        x = np.round(x * levels) / levels
    labels = rng.integers(0, 3, n)
    errors = np.clip((0.25 + 0.2 * x[:, :1]) / (1 + np.arange(n_arms)), 0.01, 1.0)
    wrong = rng.random((n, n_arms)) < errors
    shift = rng.integers(1, 3, (n, n_arms))
    return x, np.where(wrong, (labels[:, None] + shift) % 3, labels[:, None]), labels


def cascade(n_arms: int, share: float = 1.0) -> sw.Cascade:
    """Return costs near the value of what they buy, so that no depth is always the best."""
    return sw.Cascade([share * cost for cost in (0.05, 0.22, 0.15, 0.12, 0.1)[:n_arms]])


def at_once(
    kind: str, features: Any, d: int, n_arms: int, levels: int | None = None, **settings: Any
) -> Any:
    x, outputs, labels = world(d, n_arms, levels=levels)
    policy: Any = sw.make(kind, cascade(n_arms), features=features, context_dim=d, **settings)
    policy.run(x, outputs, **({"labels": labels} if policy.needs_truth else {}))
    return policy


def recorded(d: int, n_arms: int, every: int | None) -> sw.USSPD:
    """A replay in which a third of the rounds come with their right answer."""
    x, outputs, labels = world(d, n_arms)
    pairs = cascade(n_arms, 0.35).pairs()
    policy = sw.USSPD(
        cascade(n_arms, 0.35), sw.Polynomial(1), d, sigma=0.03, full_depth_every=every, seed=4
    )
    policy.run_recorded(
        sw.Rounds(
            x,
            np.array([[y[i] != y[j] for i, j in pairs] for y in outputs], dtype=np.uint8),
            np.where(np.arange(N) % 10 == 0, np.arange(N) % n_arms, n_arms - 1),
            np.arange(N) % 20 == 0,
            (outputs != labels[:, None]).astype(np.uint8),
            np.arange(N) % 3 == 0,
        )
    )
    return policy


def audited(d: int, n_arms: int) -> sw.USSPD:
    """Rounds one by one, step by step as stages reveal the context; some are audited."""
    x, outputs, labels = world(d, n_arms)
    sees = [d - n_arms + 2 + arm for arm in range(n_arms - 1)]
    stages = sw.PerStage([sw.Polynomial(1)] * (n_arms - 1), sees=sees)
    policy = sw.USSPD(cascade(n_arms, 0.35), stages, d, sigma=0.03, full_depth_every=5, seed=5)
    for t in range(N):
        descent = policy.start(x[t, : sees[0]])
        while (arm := descent.next()) is not None:
            seen = len(descent.context)
            descent.give(int(outputs[t, arm]), x[t, seen : sees[min(arm, n_arms - 2)]].tolist())
        descent.learn()
        if t % 4 == 0:
            said = tuple(descent.outputs)
            end = len(said) - 1
            done = sw.Round("", 0.0, descent.context, said, said, end, descent.rule_stop)
            policy.audit(done, int(labels[t]))
    return policy


def by_pairs() -> Any:
    maps = {(0, 1): sw.Identity(), (0, 2): sw.Polynomial(2), (1, 2): sw.Polynomial(1)}
    return at_once("uss-pd-ridge", sw.PerPair(maps), 3, 3, lam=0.3, S=0.5, sigma=0.1)


RUNS: dict[str, Callable[[], Any]] = {
    **{
        f"uss-pd with {d} features": lambda d=d: at_once(
            "uss-pd", sw.Polynomial(1), d - 1, 3, sigma=0.1 / d
        )
        for d in (2, 4, 5, 9)
    },
    "uss-pd with 45 features": lambda: at_once("uss-pd", sw.Polynomial(2), 8, 2, sigma=0.01),
    "uss-pd until explored": lambda: at_once(
        "uss-pd", sw.Polynomial(1), 3, 3, forced_rounds="auto"
    ),
    "uss-pd with five arms": lambda: at_once("uss-pd", sw.Polynomial(1), 3, 5, sigma=0.03),
    "uss-pd with contexts that repeat": lambda: at_once("uss-pd", sw.Polynomial(1), 3, 3, levels=3),
    "uss-pd with chance": lambda: at_once(
        "uss-pd", sw.Polynomial(1), 3, 3, full_depth_every=7, seed=2
    ),
    "uss-pd-ridge": lambda: at_once("uss-pd-ridge", sw.Polynomial(1), 3, 4, lam=0.2, sigma=0.2),
    "uss-pd-ridge by pairs": by_pairs,
    "thompson": lambda: at_once("thompson", sw.Polynomial(1), 3, 3, seed=9),
    "thompson with 15 features": lambda: at_once("thompson", sw.Polynomial(2), 4, 3, seed=9),
    "supervised": lambda: at_once("supervised", sw.Polynomial(1), 4, 3, sigma=0.03),
    "labels in a replay": lambda: recorded(3, 3, None),
    "labels in a replay with chance": lambda: recorded(3, 4, 6),
    "labels and stages that reveal": lambda: audited(5, 4),
    "uss-ucb": lambda: at_once("uss-ucb", None, 2, 4),
    "uss-ts": lambda: at_once("uss-ts", None, 2, 4, seed=3),
}


def said(policy: Any) -> str:
    """Return the evidence of a few decisions, every number to its last bit."""
    lines: list[str] = []
    d = policy.features.context_dim if policy.features is not None else 2
    staged = policy.sees_revealed
    for x in [] if staged else np.random.default_rng(6).uniform(-1, 1, (10, d)):
        for e in policy.decide(x).evidence:
            numbers = (e.gap, e.disagreement, e.disagreement_ucb, e.harm)
            lines.append(f"{e.first} {e.second} {[float(v).hex() for v in numbers]} {e.gap_won}")
    return "\n".join(lines)


def main(folder: Path) -> None:
    for name, play in RUNS.items():
        policy = play()
        policy.save(folder / f"{name}.stopwise")
        (folder / f"{name}.txt").write_text(said(policy))
    print(native.instructions())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
