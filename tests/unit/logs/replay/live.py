"""Live runs for tests: a runner asks stages that answer or fail, and writes the log."""

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
BASE = (4,)  # how many numbers of the context are known at first, and after each arm


class Arms(NamedTuple):
    """What arms would answer: contexts (n, 4), outputs (n, 3) and labels (n,), as texts."""

    contexts: NDArray[np.float64]
    outputs: NDArray[np.str_]
    labels: NDArray[np.str_]


def arms(n: int, seed: int = 0) -> Arms:
    drawn = good_cascade(n, seed, classes=3)
    return Arms(drawn.contexts, WORDS[drawn.outputs[:, [0, 1, 3]]], WORDS[drawn.labels])


def writer(path: Path, known: Sequence[int] = BASE, *, labels: bool = False) -> sw.LogWriter:
    names = ["a", "b", "c", "d"]
    revealed = {NAMES[i]: names[start:end] for i, (start, end) in enumerate(pairwise(known))}
    return sw.LogWriter(path, NAMES, names[: known[0]], revealed, labels=labels)


def play(
    policy: sw.Policy, said: Arms, path: Path, *, fails: float = 0.0, known: Sequence[int] = BASE
) -> list[sw.Round]:
    """Run and log rounds in which each arm fails with this chance."""
    random = np.random.default_rng(1)

    def stage(arm: int) -> sw.Stage:
        def run(t: int) -> tuple[int, str]:
            if random.random() < fails:
                raise ConnectionError("no answer\nat all")
            return t, str(said.outputs[t, arm])

        def reveals(answer: Any) -> Any:
            return said.contexts[answer[0], known[arm] : known[arm + 1]]

        revealing = reveals if arm + 1 < len(known) else None
        return sw.Stage(run, reveals=revealing, canonical=lambda answer: answer[1])

    stages = [stage(arm) for arm in range(len(NAMES))]
    with writer(path, known) as log:
        runner = sw.Runner(policy, stages, context=lambda t: said.contexts[t, : known[0]], log=log)
        return list(runner.run_many(range(len(said.contexts))))


def write(
    path: Path, rounds: Sequence[sw.Round], *, labels: Sequence[str | None] | None = None
) -> Path:
    """Write rounds to a log."""
    with writer(path, labels=labels is not None) as log:
        for t, done in enumerate(rounds):
            log.write(done, None if labels is None else labels[t])
    return path


def full(said: Arms) -> list[sw.Round]:
    """Rounds in which every arm ran."""
    return [
        sw.Round(str(t), 0.0, tuple(x.tolist()), tuple(y), tuple(y), stop=2, rule_stop=2)
        for t, (x, y) in enumerate(zip(said.contexts, said.outputs.tolist(), strict=True))
    ]


def cut(rounds: Sequence[sw.Round], ends: Callable[[int], int]) -> list[sw.Round]:
    """The same rounds, of which round t ends at arm ``ends(t)``."""
    return [
        msgspec.structs.replace(
            one, outputs=one.outputs[: ends(t) + 1], stop=ends(t), rule_stop=ends(t)
        )
        for t, one in enumerate(rounds)
    ]
