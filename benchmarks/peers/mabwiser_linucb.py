"""LinUCB of MABWiser."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from numpy.typing import NDArray

from benchmarks.peers.base import Peer


class MabwiserLinUCB(Peer):
    """``LearningPolicy.LinUCB``, one ``predict`` and one ``partial_fit`` per round."""

    name = "MABWiser LinUCB"
    rounds = 1_000

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        self.mab = MAB(list(range(self.n_arms)), LearningPolicy.LinUCB(alpha=1.0), seed=0)
        self.fitted = False

    @staticmethod
    def prepare(contexts: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return list(contexts[:, None, :])

    def round(self, x: NDArray[np.float64], outputs: Sequence[int]) -> int:
        if not self.fitted:  # it must be fitted before it can predict
            self.mab.fit([0], [self.reward(0, outputs)], x)
            self.fitted = True
            return 0
        arm = int(self.mab.predict(x))
        self.mab.partial_fit([arm], [self.reward(arm, outputs)], x)
        return arm


PEER = MabwiserLinUCB
