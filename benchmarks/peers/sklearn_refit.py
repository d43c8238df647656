"""scikit-learn: refit every pair's logistic regression over its entire history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.peers.base import Peer


class SklearnRefit(Peer):
    """USS-PD's rule with p̂ for p̃ (no confidence), each θ̂ by ``LogisticRegression.fit``.

    Pairs up to the stop are refitted in one round of a hundred, and only these rounds are timed.
    Their mean over growing histories estimates the cost of refitting in every round.
    """

    name = "scikit-learn refits"
    rounds = 2_000
    every = 100
    forced_rounds = 50

    def __init__(self, costs: NDArray[np.float64], n_features: int) -> None:
        super().__init__(costs, n_features)
        total = np.array(self.cumulative)
        self.gaps = total - total[:, None]
        self.theta = np.zeros((self.n_arms, self.n_arms, n_features))
        self.model = LogisticRegression(C=1e3, fit_intercept=False, solver="newton-cholesky")
        self.contexts = np.empty((self.rounds, n_features))
        self.outputs = np.empty((self.rounds, self.n_arms), np.int64)
        self.stops = np.empty(self.rounds, np.int64)
        self.n = 0

    def round(self, x: NDArray[np.float64], outputs: Sequence[int]) -> int:
        stop = self.skim(x, outputs)
        for j in range(1, stop + 1):
            observed = self.stops[: self.n] >= j
            contexts, answers = self.contexts[: self.n][observed], self.outputs[: self.n][observed]
            for i in range(j):
                disagreed = answers[:, i] != answers[:, j]
                if disagreed.any() and not disagreed.all():  # fit rejects a single class
                    self.theta[i, j] = self.model.fit(contexts, disagreed).coef_[0]
        return stop

    def skim(self, x: NDArray[np.float64], outputs: Sequence[int]) -> int:
        probabilities = 1.0 / (1.0 + np.exp(-(self.theta @ x)))
        clear = np.triu(self.gaps <= probabilities, 1).sum(axis=1) == 0
        stop = self.n_arms - 1 if self.n < self.forced_rounds else int(clear.argmax())
        self.contexts[self.n], self.outputs[self.n], self.stops[self.n] = x, outputs, stop
        self.n += 1
        return stop


PEER = SklearnRefit
