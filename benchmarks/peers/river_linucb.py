"""river's disjoint LinUCB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from river.bandit import LinUCBDisjoint

from benchmarks.peers.base import Peer


class RiverLinUCB(Peer):
    """``bandit.LinUCBDisjoint``: a Bayesian linear regression for each arm."""

    name = "river LinUCBDisjoint"
    rounds = 5_000

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        self.policy = LinUCBDisjoint(seed=0)
        self.arms: list[int | str] = list(range(self.n_arms))

    @staticmethod
    def prepare(contexts: NDArray[np.float64]) -> list[dict[int, float]]:
        return [dict(enumerate(row)) for row in contexts.tolist()]

    def round(self, x: dict[int, float], outputs: Sequence[int]) -> int:
        arm = int(self.policy.pull(self.arms, x))
        self.policy.update(arm, x, self.reward(arm, outputs))
        return arm


PEER = RiverLinUCB
