"""LinUCB in plain numpy: K inverses in one array, Sherman–Morrison updates."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.base import Peer


class NumpyLinUCB(Peer):
    """Disjoint LinUCB, with A⁻¹ and θ of all arms stacked so that one product computes all."""

    name = "numpy LinUCB, stacked"
    alpha = 1.0

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        self.inverse = np.tile(np.eye(n_features), (self.n_arms, 1, 1))
        self.rows = self.inverse.reshape(-1, n_features)  # a view: all arms in one BLAS call
        self.theta = np.zeros((self.n_arms, n_features))

    def round(self, x: NDArray[np.float64], outputs: Sequence[int]) -> int:
        arm, direction, variance, mean = self.decide(x)
        self.update(arm, direction, variance, self.reward(arm, outputs) - mean)
        return arm

    def decide(self, x: NDArray[np.float64]) -> tuple[int, NDArray[np.float64], float, float]:
        """Return the arm with the highest bound, and its A⁻¹x, xᵀA⁻¹x and θᵀx for the update."""
        directions = self.rows.dot(x).reshape(self.theta.shape)
        variances = directions.dot(x)
        means = self.theta.dot(x)
        arm = int((means + self.alpha * np.sqrt(variances)).argmax())
        return arm, directions[arm], variances.item(arm), means.item(arm)

    def update(
        self, arm: int, direction: NDArray[np.float64], variance: float, surprise: float
    ) -> None:
        """Update A⁻¹ −= uuᵀ/(1+xᵀu) and θ += u·(r − θᵀx)/(1+xᵀu) with u = A⁻¹x."""
        scaled = direction * (1.0 / sqrt(1.0 + variance))
        self.inverse[arm] -= scaled[:, None] * scaled
        self.theta[arm] += direction * (surprise / (1.0 + variance))


PEER = NumpyLinUCB
