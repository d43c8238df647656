"""Compiling, or loading what was compiled, before the first request has to wait for it."""

import numpy as np

from stopwise.cascade import Cascade
from stopwise.features import Identity, PerStage
from stopwise.policies.base import Policy
from stopwise.policies.uss_pd import USSPD
from stopwise.records import Round

ROUNDS = 12  # enough to explore, to decide and to fit


def warm() -> None:
    """Play a few rounds by every road that requests take; learns nothing that is kept.

    Examples
    --------
    >>> warm()
    """
    cascade = Cascade([0.1, 0.2, 0.3])
    _play(USSPD(cascade, context_dim=2, forced_rounds=4))
    reveals = PerStage([Identity(), Identity()], sees=[1, 2])
    _play(USSPD(cascade, features=reveals, context_dim=2, forced_rounds=4, full_depth_every=4))


def _play(policy: Policy) -> None:
    contexts = np.linspace(-1.0, 1.0, 2 * ROUNDS).reshape(ROUNDS, 2)
    staged = isinstance(policy, USSPD) and policy.features.sees is not None
    for k, x in enumerate(contexts):
        outputs: list[bool] = []
        descent = policy.start(x[:1] if staged else x)
        while (arm := descent.next()) is not None:
            outputs.append(k % (arm + 2) == 0)
            descent.give(outputs[-1], x[1:].tolist() if staged and arm == 1 else ())
        descent.learn()
        told = tuple(outputs)
        done = Round("", 0.0, descent.context, told, told, len(told) - 1, descent.wanted)
        policy.audit(done, True)
    if not staged:
        policy.decide_batch(contexts)
