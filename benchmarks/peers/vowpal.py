"""Vowpal Wabbit through its Python API, with text input."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray
from vowpalwabbit import Workspace

from benchmarks.peers.base import Peer


class Vowpal(Peer):
    """``--cb_explore K``, the cheapest of its bandits; ``_adf`` takes four times as long.

    The text is written before the clock starts. Parsing it twice, to predict and to learn, counts.
    Setting the label on the predicted example would save a quarter of the time, but in a trial with
    version 9.11 it then did not learn. Nor did it with features named 0, 1, … instead of x0, x1, ….
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
        probabilities = self.workspace.predict(x)
        remaining = self.random.random()
        arm = 0
        while arm < self.n_arms - 1 and remaining > probabilities[arm]:
            remaining -= probabilities[arm]
            arm += 1
        cost = -self.reward(arm, outputs)
        self.workspace.learn(f"{arm + 1}:{cost}:{probabilities[arm]} {x}")
        return arm


PEER = Vowpal
