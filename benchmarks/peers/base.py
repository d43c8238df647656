"""What the benchmark asks of a peer: one decision and one lesson a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


class Peer(ABC):
    """A learner that can be timed round by round from Python.

    A peer does not solve Stopwise's problem. It is a bandit over depths that is *given* a reward,
    minus the cost of the depth it chose, minus 1 if that arm's output differs from the deepest
    arm's. What is compared is the price of deciding once and learning once.

    Attributes
    ----------
    name
        How tables call it.
    rounds
        The most rounds it is asked to play; fewer for slow ones.
    every
        1 if all its rounds are timed. Otherwise only each `every`-th is, the rest being played
        with `skim`, and the price of a round is the mean of those timed.
    """

    name: ClassVar[str]
    rounds: ClassVar[int] = 20_000
    every: ClassVar[int] = 1

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        self.n_arms = len(costs)
        self.n_features = n_features
        self.cumulative: list[float] = np.cumsum(costs).tolist()

    @staticmethod
    def prepare(contexts: NDArray[np.float64]) -> Sequence[Any]:
        """Turn contexts into the form this peer likes best. The clock does not run meanwhile."""
        return list(contexts)

    @abstractmethod
    def round(self, x: Any, outputs: Sequence[int]) -> int:
        """Choose a depth for one prepared context, learn from what it earned, return the depth."""

    def skim(self, x: Any, outputs: Sequence[int]) -> int:
        """Play a round that is not timed, without the expensive parts."""
        return self.round(x, outputs)

    def reward(self, arm: int, outputs: Sequence[int]) -> float:
        """What stopping at `arm` earns."""
        return -self.cumulative[arm] - (outputs[arm] != outputs[-1])
