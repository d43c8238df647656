"""Baselines: fixed depth, random depth, and two that are given the truth."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import checked_seed
from stopwise.engine import native
from stopwise.errors import InvalidParameterError, InvalidStopError, TruthRequiredError
from stopwise.policies.checking import Differ, GivenTruth, Ints, KnownTruth
from stopwise.policies.noncontextual import ContextFreePolicy, counted
from stopwise.records import Decision, Truth

# A gap within this of p_ij is a tie, as it is for the optimal arm (`research/theory/dominance.py`,
# which policies must not import): otherwise rounding would make the clairvoyant worse than it.
TIE = 1e-12


class FixedDepth(ContextFreePolicy):
    """Always the same depth: the paper's "I_t = i".

    ``depth`` is the 0-based index, or the name, of the arm to stop at; the last by default.

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

    def _stops(self, differ: Differ, truth: KnownTruth) -> Ints:
        return np.full(len(differ), self.depth)


class RandomDepth(ContextFreePolicy):
    """Every depth with equal probability; the draws follow from ``seed``.

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

    def decide(self, x: ArrayLike) -> Decision:
        """Return a random depth."""
        del x
        return self._decision(int(self._draw(1)[0]))

    def _stops(self, differ: Differ, truth: KnownTruth) -> Ints:
        return self._draw(len(differ))

    def _draw(self, n: int) -> Ints:
        """Return the depths of the next n decisions."""
        draws = native.draws(self.seed, self._decisions, n)
        self._decisions += n
        return (draws * self._n_arms).astype(np.int64)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of rounds and of decisions."""
        return {**super().state(), "decisions": np.array([self._decisions], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        decisions = counted(state, "decisions")
        super().restore(state)
        self._decisions = decisions


class PrivilegedPolicy(ContextFreePolicy):
    """A comparator that is given the truth before it decides, and so learns nothing."""

    def decide(self, x: ArrayLike, truth: Truth | None = None) -> Decision:
        """Return the stop for a context whose ``truth`` is known."""
        del x
        (name,) = self.needs_truth
        given = None if truth is None else getattr(truth, name)
        if given is None:
            raise TruthRequiredError(f"{self.name} needs the truth: decide(x, Truth({name}=...))")
        known = self._checked_truth(1, {name: [given]})
        return self._decision(int(self._stops(np.empty((1, 0), dtype=np.uint8), known)[0]))


class Oracle(PrivilegedPolicy):
    """Given the optimal arm of every context, it stops there: zero regret by definition.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> policy = research.Oracle(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, research.Truth(optimal=1)).stop
    1
    >>> policy.run([[0.5], [0.7]], optimal=[1, 0]).tolist()
    [1, 0]
    """

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[tuple[str, ...]] = ("optimal",)

    def _checked_truth(self, n: int, truth: GivenTruth) -> KnownTruth:
        checked = super()._checked_truth(n, truth)
        best = checked["optimal"]
        if best.shape != (n,) or not np.isin(best, range(self._n_arms)).all():
            raise InvalidStopError(f"optimal is an arm for each round, 0 to {self._n_arms - 1}")
        return checked

    def _stops(self, differ: Differ, truth: KnownTruth) -> Ints:
        return truth["optimal"].astype(np.int64)


class Clairvoyant(PrivilegedPolicy):
    """The stopping test with the true p_ij(x): what USS-PD would do if it knew them.

    Where it is not optimal, weak dominance fails, and disagreement cannot identify the best arm.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> policy = research.Clairvoyant(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, research.Truth(disagreement=[[0.0, 0.1], [0.1, 0.0]])).stop
    0
    """

    name: ClassVar[str] = "clairvoyant"
    needs_truth: ClassVar[tuple[str, ...]] = ("disagreement",)

    def _checked_truth(self, n: int, truth: GivenTruth) -> KnownTruth:
        checked = super()._checked_truth(n, truth)
        p, k = checked["disagreement"], self._n_arms
        if p.shape != (n, k, k) or np.isnan(p).any():
            raise InvalidParameterError(
                f"disagreement is {k} by {k} probabilities for each of {n} rounds, none of them "
                f"NaN; this has shape {p.shape}"
            )
        return checked

    def _stops(self, differ: Differ, truth: KnownTruth) -> Ints:
        # the first arm whose gaps all exceed p; the last arm never loses
        loses = np.triu(self.cascade.gaps - truth["disagreement"] <= TIE, 1).any(axis=-1)
        return np.argmin(loses, axis=-1)
