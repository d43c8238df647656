"""Baselines: fixed depth and random depth."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Disagreements, Ints
from stopwise.cascade import Cascade
from stopwise.checks import checked_seed
from stopwise.engine import native
from stopwise.policies.context_free import ContextFreePolicy, saved_count
from stopwise.records import Decision


class FixedDepth(ContextFreePolicy):
    """Always stop at the same arm (in the paper, I_t = i).

    ``depth`` is the 0-based index or the name of that arm, by default the last.

    Examples
    --------
    >>> import stopwise as sw
    >>> sw.FixedDepth(sw.Cascade(costs=[0.1, 0.2, 0.2]), depth=1).decide(None).cost
    0.30000000000000004
    """

    name: ClassVar[str] = "fixed-depth"

    def __init__(self, cascade: Cascade, *, depth: int | str | None = None) -> None:
        super().__init__(cascade)
        self.depth = cascade.n_arms - 1 if depth is None else cascade.index(depth)

    def decide(self, x: ArrayLike | None) -> Decision:
        """Return the decision to stop at the fixed depth."""
        return self.cascade.decision(self.depth)

    def _stops(self, differ: Disagreements) -> Ints:
        return np.full(len(differ), self.depth)


class RandomDepth(ContextFreePolicy):
    """Stop at an arm drawn uniformly at random, using ``seed``.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.RandomDepth(sw.Cascade(costs=[0.1, 0.2]), seed=0)
    >>> [policy.decide(None).stop for _ in range(5)]
    [0, 1, 0, 0, 0]
    """

    name: ClassVar[str] = "random-depth"

    def __init__(self, cascade: Cascade, *, seed: int = 0) -> None:
        super().__init__(cascade)
        self.seed = checked_seed(seed)
        self._decisions = 0

    def decide(self, x: ArrayLike | None) -> Decision:
        """Return the decision to stop at a random depth."""
        return self.cascade.decision(int(self._draw(1)[0]))

    def _stops(self, differ: Disagreements) -> Ints:
        return self._draw(len(differ))

    def _draw(self, n: int) -> Ints:
        """Return the depths of the next n decisions."""
        draws = native.draws(self.seed, self._decisions, n)
        self._decisions += n
        return (draws * self.cascade.n_arms).astype(np.int64)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of rounds and the number of decisions."""
        return {**super().state(), "decisions": np.array([self._decisions], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`; raise ValueError and change nothing if it is invalid."""
        decisions = saved_count(state, "decisions")
        super().restore(state)
        self._decisions = decisions
