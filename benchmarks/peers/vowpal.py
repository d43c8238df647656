"""Vowpal Wabbit through its Python API, fed with text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray
from vowpalwabbit import Workspace

from benchmarks.peers.base import Peer


class Vowpal(Peer):
    """``--cb_explore K``, the cheapest of its bandits; ``_adf`` takes four times as long.

    Text is written before the clock starts. Parsing it twice, to predict and to learn, is part of
    the price: setting the label on the example just predicted would save a quarter of it, but in a
    trial (9.11) the learner then stayed at chance. So it did with features called 0, 1, …; called
    x0, x1, … and parsed twice, it learned.
    """

    name = "Vowpal Wabbit --cb_explore"

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        self.workspace = Workspace(f"--cb_explore {self.n_arms} --epsilon 0.05 --quiet")
        self.random = Random(0)

    @staticmethod
    def prepare(contexts: NDArray[np.float64]) -> list[str]:
        return [
            "| " + " ".join(f"x{i}:{value:.6g}" for i, value in enumerate(row))
            for row in contexts.tolist()
        ]

    def round(self, x: str, outputs: Sequence[int]) -> int:
        chances = self.workspace.predict(x)
        left = self.random.random()
        arm = 0
        while arm < self.n_arms - 1 and left > chances[arm]:
            left -= chances[arm]
            arm += 1
        cost = -self.reward(arm, outputs)
        self.workspace.learn(f"{arm + 1}:{cost}:{chances[arm]} {x}")
        return arm


PEER = Vowpal
