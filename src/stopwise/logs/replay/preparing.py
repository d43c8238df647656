"""Compiling beforehand: seen as what it is, not taken for a program that hangs."""

from collections.abc import Callable, Sequence

import numpy as np

from stopwise.cascade import Cascade
from stopwise.features import Identity
from stopwise.policies.recorded import Rounds
from stopwise.policies.registry import POLICIES, make

STAGE = "preparing (compiling, once on this machine)"
ROUNDS = 60  # enough to explore, to decide and to fit


def prepare(
    progress: Callable[[str, int, int], object], policies: Sequence[str] = ("uss-pd",)
) -> None:
    """Compile what policies need, or find it compiled, by letting them play a few rounds.

    Parameters
    ----------
    progress : callable
        Called as ``progress(stage, done, of)``, before the first and after each.
    policies : sequence of str
        Names of the kinds of policies.

    Examples
    --------
    >>> prepare(print, ["fixed-depth"])
    preparing (compiling, once on this machine) 0 1
    preparing (compiling, once on this machine) 1 1
    """
    kinds = [name for name in dict.fromkeys(policies) if name in POLICIES]
    progress(STAGE, 0, len(kinds))
    for k, name in enumerate(kinds, start=1):
        _play(name)
        progress(STAGE, k, len(kinds))


def _play(name: str) -> None:
    rounds = Rounds(
        contexts=np.linspace(-1, 1, ROUNDS)[:, None],
        differ=(np.arange(ROUNDS) % 3 == 0).astype(np.uint8)[:, None],
        reach=np.ones(ROUNDS, dtype=np.int64),
        failed=np.zeros(ROUNDS, dtype=np.bool_),
    )
    policy = make(name, Cascade([0.1, 0.2]), features=Identity(), context_dim=1)
    stops = policy.replay(rounds)
    policy.observe_many(rounds, stops)
    policy.run_disagreements(rounds.contexts, rounds.differ)
