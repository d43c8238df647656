"""Live runs for tests: a runner with stages that answer or fail, and its log."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from tests.helpers.cascades import good_cascade

NAMES = ("rules", "small", "large")
CASCADE = sw.Cascade((0.02, 0.1, 0.25), names=NAMES)
WORDS = np.array(("cat", "dog", "eel"))
NO_REVEALS = (4,)  # context numbers available at first, and after each arm that reveals some


class Arms(NamedTuple):
    """Simulated rounds: contexts (n, 4), and as text the outputs (n, 3) and labels (n,)."""

    contexts: NDArray[np.float64]
    outputs: NDArray[np.str_]
    labels: NDArray[np.str_]


def arms(n: int, seed: int = 0) -> Arms:
    cascade = good_cascade(n, seed, classes=3)
    return Arms(cascade.contexts, WORDS[cascade.outputs[:, [0, 1, 3]]], WORDS[cascade.labels])


def writer(
    path: Path, available: Sequence[int] = NO_REVEALS, *, labels: bool = False
) -> sw.LogWriter:
    names = ["a", "b", "c", "d"]
    revealed = {NAMES[i]: names[start:end] for i, (start, end) in enumerate(pairwise(available))}
    return sw.LogWriter(path, NAMES, names[: available[0]], revealed, labels=labels)


def play(
    policy: sw.Policy,
    drawn: Arms,
    path: Path,
    *,
    fails: float = 0.0,
    available: Sequence[int] = NO_REVEALS,
) -> list[sw.Round]:
    """Run and log rounds in which each arm fails with probability ``fails``."""
    random = np.random.default_rng(1)

    def stage(arm: int) -> sw.Stage:
        def run(t: int) -> tuple[int, str]:
            if random.random() < fails:
                raise ConnectionError("no answer\nat all")
            return t, str(drawn.outputs[t, arm])

        def reveals(answer: Any) -> Any:
            return drawn.contexts[answer[0], available[arm] : available[arm + 1]]

        revealing = reveals if arm + 1 < len(available) else None
        return sw.Stage(run, reveals=revealing, canonical=lambda answer: answer[1])

    stages = [stage(arm) for arm in range(len(NAMES))]
    with writer(path, available) as log:
        runner = sw.Runner(
            policy, stages, context=lambda t: drawn.contexts[t, : available[0]], log=log
        )
        return list(runner.run_many(range(len(drawn.contexts))))


def write(
    path: Path, rounds: Sequence[sw.Round], *, labels: Sequence[str | None] | None = None
) -> Path:
    """Write rounds to a log."""
    with writer(path, labels=labels is not None) as log:
        for t, done in enumerate(rounds):
            log.write(done, None if labels is None else labels[t])
    return path


def full(drawn: Arms) -> list[sw.Round]:
    """Return rounds in which every arm ran."""
    return [
        sw.Round(str(t), 0.0, tuple(x.tolist()), tuple(y), tuple(y), stop=2, rule_stop=2)
        for t, (x, y) in enumerate(zip(drawn.contexts, drawn.outputs.tolist(), strict=True))
    ]


def truncate(rounds: Sequence[sw.Round], stop: Callable[[int], int]) -> list[sw.Round]:
    """Return the rounds, with round t ending at arm ``stop(t)``."""
    return [
        msgspec.structs.replace(
            done, outputs=done.outputs[: stop(t) + 1], stop=stop(t), rule_stop=stop(t)
        )
        for t, done in enumerate(rounds)
    ]
