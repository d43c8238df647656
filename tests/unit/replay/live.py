"""Live runs for tests: a policy decides, arms answer or fail, and the log is written."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from stopwise.logs.writer import LogWriter
from tests.helpers.cascades import good_cascade

COSTS = (0.02, 0.1, 0.25)
NAMES = ("rules", "small", "large")
CASCADE = sw.Cascade(COSTS, names=NAMES)
WORDS = ("cat", "dog", "eel")


class Arms(NamedTuple):
    """What arms would say: contexts (n, 4), outputs (n, 3) and labels (n,), as texts."""

    contexts: NDArray[np.float64]
    outputs: NDArray[np.str_]
    labels: NDArray[np.str_]


class Live(NamedTuple):
    """A run that was played: where each round was decided to stop, and what was written."""

    stops: NDArray[np.int64]
    failed: NDArray[np.bool_]
    rounds: list[sw.Round]


def arms(n: int, seed: int = 0) -> Arms:
    drawn = good_cascade(n, seed, classes=3)
    words = np.array(WORDS)
    return Arms(drawn.contexts, words[drawn.outputs[:, [0, 1, 3]]], words[drawn.labels])


def play(
    policy: sw.Policy,
    said: Arms,
    *,
    fails: float = 0.0,
    sees: Sequence[int] | None = None,
    seed: int = 1,
) -> Live:
    """Play rounds step by step; an arm fails with this chance. ``sees``: revealed context.

    ``sees[i]`` numbers of the context are known once arm i has run; the first round begins with
    one less than ``sees[0]``.
    """
    random = np.random.default_rng(seed)
    stops, failures, rounds = [], [], []
    for t, (x, outputs) in enumerate(zip(said.contexts, said.outputs.tolist(), strict=True)):
        known = x.tolist() if sees is None else x[: sees[0] - 1].tolist()
        descent = policy.start(known)
        failure = None
        while (arm := descent.next()) is not None:
            if random.random() < fails:
                failure = sw.Failure(arm, "error", "it broke")
                break
            revealed = ()
            if sees is not None and arm < len(sees):
                revealed = tuple(x[len(known) : sees[arm]].tolist())
            known = [*known, *revealed]
            descent.give(outputs[arm], revealed)
        descent.learn()
        said_so_far = tuple(descent.outputs)
        done = len(said_so_far) - 1
        stops.append(descent.decision.stop if descent.decision is not None else done)
        failures.append(failure is not None)
        rounds.append(
            sw.Round(
                str(t),
                float(t),
                tuple(known),
                said_so_far,
                said_so_far,
                stop=done if done >= 0 else None,
                rule_stop=descent.rule_stop,
                failure=failure,
            )
        )
    return Live(np.array(stops), np.array(failures), rounds)


def write(
    path: Path,
    rounds: Sequence[sw.Round],
    *,
    sees: Sequence[int] | None = None,
    labels: Sequence[str | None] | None = None,
) -> Path:
    """Write rounds to a log."""
    names, revealed = ("a", "b", "c", "d"), None
    if sees is not None:
        edges = [sees[0] - 1, *sees]
        revealed = {NAMES[i]: names[start:end] for i, (start, end) in enumerate(pairwise(edges))}
        names = names[: edges[0]]
    with LogWriter(path, NAMES, names, revealed, labels=labels is not None) as log:
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
        sw.Round(
            one.id,
            one.time,
            one.context,
            one.outputs[: ends(t) + 1],
            one.answers[: ends(t) + 1],
            stop=ends(t),
            rule_stop=ends(t),
        )
        for t, one in enumerate(rounds)
    ]
