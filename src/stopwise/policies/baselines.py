"""Baselines: fixed depth, random depth, and two that are told the truth."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError, TruthRequiredError
from stopwise.policies.base import Uncontextual
from stopwise.policies.randomness import generator, restored, stored, whole_seed
from stopwise.records import Decision, Truth


class FixedDepth(Uncontextual):
    """Always the same depth: the paper's "I_t = i".

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    depth : int or str
        0-based index, or name, of the arm to stop at; the last by default.

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

    def decide(self, x: ArrayLike) -> Decision:
        """Return the fixed depth."""
        del x
        return self._decision(self.depth)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy."""
        return {"depth": self.depth}


class RandomDepth(Uncontextual):
    """Every depth with equal chance.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    seed : int
        Of the policy's own random stream.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.RandomDepth(sw.Cascade(costs=[0.1, 0.2]), seed=0)
    >>> sorted({policy.decide(None).stop for _ in range(20)})
    [0, 1]
    """

    name: ClassVar[str] = "random-depth"

    def __init__(self, cascade: Cascade, *, seed: int = 0) -> None:
        super().__init__(cascade)
        self.seed = whole_seed(seed)
        self._random = generator(self.seed)

    def decide(self, x: ArrayLike) -> Decision:
        """Return a random depth."""
        del x
        return self._decision(int(self._random.integers(self.cascade.n_arms)))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy."""
        return {"seed": self.seed}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned and the random state, as arrays by name."""
        return {**super().state(), "random": stored(self._random)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned."""
        random = restored(state["random"])
        super().restore(state)
        self._random = random


class Oracle(Uncontextual):
    """Told the optimal arm of every context, it plays it: zero regret by definition.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.Oracle(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, sw.Truth(optimal=1)).stop
    1
    """

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[bool] = True

    def decide(self, x: ArrayLike, truth: Truth | None = None) -> Decision:
        """Return the optimal arm."""
        del x
        if truth is None or truth.optimal is None:
            raise TruthRequiredError("the oracle must be told: decide(x, Truth(optimal=...))")
        return self._decision(self._checked_stop(truth.optimal))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy: none."""
        return {}


class Clairvoyant(Uncontextual):
    """The stopping test with the true p_ij(x): what USS-PD would do if it had learned all.

    Where it is not optimal, weak dominance fails, and no learner of disagreement could be.

    Examples
    --------
    >>> import numpy as np, stopwise as sw
    >>> policy = sw.Clairvoyant(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, sw.Truth(disagreement=np.array([[0, 0.15], [0, 0]]))).stop
    0
    """

    name: ClassVar[str] = "clairvoyant"
    needs_truth: ClassVar[bool] = True

    def decide(self, x: ArrayLike, truth: Truth | None = None) -> Decision:
        """Return the first arm whose every deeper arm costs more than it truly disagrees."""
        del x
        if truth is None or truth.disagreement is None:
            raise TruthRequiredError(
                "the clairvoyant must be told: decide(x, Truth(disagreement=...))"
            )
        p = np.asarray(truth.disagreement)
        if p.shape != self.cascade.gaps.shape or np.isnan(p).any():
            raise InvalidParameterError(
                f"disagreement must be a table of {self.cascade.n_arms} by {self.cascade.n_arms} "
                f"probabilities, none of them NaN; this has shape {p.shape}"
            )
        loses = np.triu(self.cascade.gaps <= p, 1)
        return self._decision(int(np.argmin(loses.any(axis=1))))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy: none."""
        return {}
