"""river's logistic regression, for one pair of arms only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from river.linear_model import LogisticRegression

from benchmarks.peers.base import Peer


class RiverLogistic(Peer):
    """One pair and one gradient step per round without a confidence: a lower bound of the cost."""

    name = "river LogisticRegression (1 pair)"

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        self.model = LogisticRegression()
        self.gap = self.cumulative[-1] - self.cumulative[0]

    @staticmethod
    def prepare(contexts: NDArray[np.float64]) -> list[dict[int, float]]:
        return [dict(enumerate(row)) for row in contexts.tolist()]

    def round(self, x: dict[int, float], outputs: Sequence[int]) -> int:
        arm = 0 if self.gap > self.model.predict_proba_one(x)[True] else self.n_arms - 1
        self.model.learn_one(x, outputs[0] != outputs[-1])
        return arm


PEER = RiverLogistic
