"""User-defined policies: a minimal one, one with all optional methods, and a wrapper."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import stopwise as sw


class Shallow(sw.Policy):
    """Only the required methods; stops at the first arm if the first coordinate is positive."""

    def __init__(self, cascade: sw.Cascade) -> None:
        super().__init__(cascade)
        self.seen: list[sw.Observation] = []

    def decide(self, x: Any) -> sw.Decision:
        return self.cascade.decision(0 if x[0] > 0 else self.cascade.n_arms - 1)

    def learn(self, observation: sw.Observation) -> None:
        self.seen.append(observation)


class Averaging(sw.Policy):
    """All optional methods: features, random exploration, label requests, labels and saving.

    The stopping test is that of USS-PD with, for each pair, the share of disagreements, regardless
    of the context, times the share of them in which the deeper arm was right.
    """

    name = "averaging"
    features: Any

    def __init__(
        self,
        cascade: sw.Cascade,
        features: Any = None,
        context_dim: int = 2,
        *,
        explore: float = 0.1,
        labels: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(cascade)
        self.features = sw.bind(features or sw.Identity(), context_dim, cascade.n_arms)
        self.explore, self.labels, self.seed = explore, labels, seed
        n_arms = cascade.n_arms
        self._rounds = self._asked = 0
        self._ran = np.ones((n_arms, n_arms))
        self._differed = np.ones((n_arms, n_arms))
        self._gained = np.ones((n_arms, n_arms, 2))

    @property
    def asks_for_labels(self) -> bool:
        return self.labels > 0

    def decide(self, x: ArrayLike | None) -> sw.Decision:
        self.features.row(x)  # raises for an invalid context
        n_arms = self.cascade.n_arms
        value = self._differed / self._ran * self._gained[..., 0] / self._gained[..., 1]
        worth_it = np.triu(value >= self.cascade.gaps, 1).any(axis=1)
        rule_stop = int(np.argmin(worth_it))
        explores = np.random.default_rng([self.seed, self._rounds]).random() < self.explore
        return self.cascade.decision(n_arms - 1 if explores else rule_stop, rule_stop)

    def learn(self, observation: sw.Observation) -> sw.LabelRequest | None:
        self.features.row(observation.context)
        n = observation.stop + 1
        self._ran[:n, :n] += 1
        self._differed[:n, :n] += np.triu(observation.differ, 1)
        self._rounds += 1
        if self._asked >= self.labels or not np.triu(observation.differ, 1).any():
            return None
        self._asked += 1
        return sw.LabelRequest(probability=1.0, explored=1.0, round=self._rounds - 1)

    def learn_label(self, label: sw.Label) -> None:
        right = np.array(label.right)
        differ = np.triu(label.observation.differ, 1)
        n = len(right)
        self._gained[:n, :n, 1] += differ
        self._gained[:n, :n, 0] += differ & right[None, :]

    def state(self) -> dict[str, NDArray[Any]]:
        counts = np.array([self._rounds, self._asked])
        arrays = {"ran": self._ran, "differed": self._differed, "gained": self._gained}
        return {"counts": counts, **{name: array.copy() for name, array in arrays.items()}}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        rounds, asked = state["counts"].tolist()
        arrays = [state[name].copy() for name in ("ran", "differed", "gained")]
        self._ran, self._differed, self._gained = arrays
        self._rounds, self._asked = rounds, asked


class Cautious(sw.Policy):
    """Delegates to another policy, but never stops at the first arm."""

    def __init__(self, inner: sw.Policy) -> None:
        super().__init__(inner.cascade)
        self.inner, self.features = inner, inner.features

    def decide(self, x: ArrayLike | None) -> sw.Decision:
        decision = self.inner.decide(x)
        return self.cascade.decision(max(decision.stop, 1), max(decision.rule_stop, 1))

    def learn(self, observation: sw.Observation) -> sw.LabelRequest | None:
        return self.inner.learn(observation)
