"""Cascades and contexts that every contestant is given, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """One run's worth of input.

    Attributes
    ----------
    contexts
        (T, d) float64, every coordinate in [−1, 1]. The last is always 1, so that a model that is
        linear in the context has an intercept.
    outputs
        (T, K) int64, what each arm would say in each round.
    costs
        (K,) float64, the arms' own costs c_i.
    """

    contexts: NDArray[np.float64]
    outputs: NDArray[np.int64]
    costs: NDArray[np.float64]

    @property
    def n_rounds(self) -> int:
        """How many rounds there are."""
        return len(self.contexts)

    @property
    def n_arms(self) -> int:
        """How many arms the cascade has."""
        return len(self.costs)

    @property
    def n_features(self) -> int:
        """How many numbers a context has."""
        return int(self.contexts.shape[1])

    @property
    def cumulative(self) -> NDArray[np.float64]:
        """The cost C_i = c_1 + … + c_i of stopping at each arm."""
        return np.cumsum(self.costs)

    @property
    def features(self) -> NDArray[np.float64]:
        """Φ(x) = x/√d, of norm at most 1: what ``stopwise.Identity()`` makes of a context."""
        return np.divide(self.contexts, np.sqrt(self.n_features))

    def head(self, rounds: int) -> Workload:
        """The same cascade with the first `rounds` rounds only."""
        return Workload(self.contexts[:rounds], self.outputs[:rounds], self.costs)


def make(
    n_rounds: int, n_arms: int, n_features: int, seed: int = 0, all_the_way: float = 0.45
) -> Workload:
    """Draw a cascade in which every depth is the right one for some contexts.

    Contexts are uniform in [−1, 1]^d but for the constant. A direction h of context space is the
    difficulty, and arm i errs with probability μ(6·h(x) − τ_i) with τ rising: every arm copes
    with harder contexts than the one before. One uniform draw decides for all arms of a round,
    so an arm is never right where a deeper one is wrong, and two arms disagree exactly as often
    as their error rates differ.

    Parameters
    ----------
    n_rounds, n_arms, n_features
        T, K and d.
    seed
        The same seed gives the same workload, and a longer one begins with the shorter ones.
    all_the_way
        What going from the first arm to the last costs, in errors: less makes rounds go deeper.

    Returns
    -------
    Workload
    """
    # One generator for each kind of draw: then a round's draws do not depend on how many follow.
    for_direction, for_contexts, for_labels, for_errors = np.random.default_rng(seed).spawn(4)
    direction = for_direction.normal(size=n_features - 1)
    # Scaled so that h has standard deviation ½ whatever the dimension (a uniform has 1/√3).
    direction *= 0.5 * np.sqrt(3.0) / np.linalg.norm(direction)
    contexts = for_contexts.uniform(-1.0, 1.0, (n_rounds, n_features))
    contexts[:, -1] = 1.0
    difficulty = contexts[:, :-1] @ direction

    thresholds = np.linspace(2.5, 7.0, n_arms)
    error_rates = 1.0 / (1.0 + np.exp(thresholds - 6.0 * difficulty[:, None]))
    labels = for_labels.integers(0, 2, n_rounds, dtype=np.int64)
    errs = for_errors.random(n_rounds)[:, None] < error_rates
    outputs = np.where(errs, 1 - labels[:, None], labels[:, None])

    costs = np.full(n_arms, all_the_way / (n_arms - 1))
    return Workload(contexts, outputs, costs)
