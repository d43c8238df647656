"""Cascades, contexts and outputs of the speed comparisons, determined by a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """The input of one run.

    Attributes
    ----------
    contexts
        (T, d) float64, every coordinate in [−1, 1]. The last is always 1, so that a model that is
        linear in the context has an intercept.
    outputs
        (T, K) int64, the output of each arm in each round.
    costs
        (K,) float64, the arms' own costs c_i.
    """

    contexts: NDArray[np.float64]
    outputs: NDArray[np.int64]
    costs: NDArray[np.float64]

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return len(self.contexts)

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.costs)

    @property
    def n_features(self) -> int:
        """Length of a context."""
        return int(self.contexts.shape[1])

    @property
    def cumulative(self) -> NDArray[np.float64]:
        """The cost C_i = c_1 + … + c_i of stopping at each arm."""
        return np.cumsum(self.costs)

    @property
    def features(self) -> NDArray[np.float64]:
        """Φ(x) = x/√d, of norm at most 1, as from ``stopwise.Identity()``."""
        return np.divide(self.contexts, np.sqrt(self.n_features))

    def head(self, rounds: int) -> Workload:
        """Return the same cascade with only the first `rounds` rounds."""
        return Workload(self.contexts[:rounds], self.outputs[:rounds], self.costs)


def make(
    n_rounds: int, n_arms: int, n_features: int, seed: int = 0, all_the_way: float = 0.45
) -> Workload:
    """Draw a cascade in which every depth is optimal for some contexts.

    Contexts are uniform in [−1, 1]^d except for the constant. A direction h of context space is the
    difficulty, and arm i errs with probability μ(6·h(x) − τ_i) with increasing τ, so every arm
    handles harder contexts than the one before. One uniform draw decides for all arms of a round,
    so an arm is never right where a deeper one is wrong, and the disagreement of two arms is the
    difference of their error rates.

    Parameters
    ----------
    n_rounds, n_arms, n_features
        T, K and d.
    seed
        Equal seeds give equal workloads, and a longer workload begins with the shorter ones.
    all_the_way
        Cost of going from the first arm to the last, in errors; with less, rounds go deeper.

    Returns
    -------
    Workload
    """
    # One generator per kind of draw, so that a round's draws do not depend on the number of rounds.
    for_direction, for_contexts, for_labels, for_errors = np.random.default_rng(seed).spawn(4)
    direction = for_direction.normal(size=n_features - 1)
    # Scaled so that h has standard deviation ½ for every dimension (a uniform has 1/√3).
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
