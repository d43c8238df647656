"""Base class of the other libraries: one decision and one update per round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


class Peer(ABC):
    """A learner that is timed round by round from Python.

    A peer does not solve Stopwise's problem. It is a bandit over depths that *receives* a reward:
    minus the cost of the chosen depth, minus 1 if that arm's output differs from the deepest arm's.
    The comparison is of the cost of one decision and one update.

    Attributes
    ----------
    name
        Its name in tables.
    rounds
        Maximum number of rounds; fewer for slow peers.
    every
        1 if all rounds are timed. Otherwise only every `every`-th round is timed, and the others
        run with `skim`.
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
        """Convert contexts to the form that is fastest for this peer; this is not timed."""
        return list(contexts)

    @abstractmethod
    def round(self, x: Any, outputs: Sequence[int]) -> int:
        """Choose a depth for a prepared context, learn from its reward, and return the depth."""

    def skim(self, x: Any, outputs: Sequence[int]) -> int:
        """Run a round that is not timed, without the expensive parts."""
        return self.round(x, outputs)

    def reward(self, arm: int, outputs: Sequence[int]) -> float:
        """Return the reward of stopping at `arm`."""
        return -self.cumulative[arm] - (outputs[arm] != outputs[-1])
