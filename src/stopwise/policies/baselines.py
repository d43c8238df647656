"""Baselines: fixed depth, random depth, and two that are told the truth."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError, InvalidStopError, TruthRequiredError
from stopwise.policies.base import Blind, Ints, Marks, Progress, Uncontextual, as_table, rounds_in
from stopwise.policies.randomness import generator, restored, stored, whole_seed
from stopwise.records import Decision, Truth

# A gap within this of p_ij is a tie, as it is for the optimal arm (stopwise.theory.dominance, which
# policies must not import): or the clairvoyant would lose to it by rounding.
TIE = 1e-12


class FixedDepth(Blind):
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

    def _play(self, stops: Ints, marks: Callable[[], Marks]) -> None:
        del marks
        stops[:] = self.depth

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy."""
        return {"depth": self.depth}


class RandomDepth(Blind):
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

    def _play(self, stops: Ints, marks: Callable[[], Marks]) -> None:
        del marks
        # the same stream as single draws
        stops[:] = self._random.integers(self.cascade.n_arms, size=len(stops))

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


class Told(Uncontextual):
    """A comparator that is told the truth before it decides, and so has nothing to learn."""

    needs_truth: ClassVar[bool] = True

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        optimal: ArrayLike | None = None,
        disagreement: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Ints:
        """Play rounds of which the truth is given, all at once.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
            One context a round; only their number matters.
        outputs : array_like of shape (n, K), optional
            What every arm would say: teaches nothing.
        optimal : array_like of shape (n,), optional
            i*(x), which the oracle must know.
        disagreement : array_like of shape (n, K, K), optional
            p_ij(x) in the upper triangle, which the clairvoyant must know.
        progress : callable, optional
            Called as ``progress(done, of)`` at the end.

        Returns
        -------
        ndarray of shape (n,)
            The stops.
        """
        n = rounds_in(as_table(contexts))
        if outputs is not None:
            self._checked_table(n, outputs)
        return self._run_told(self._stops(n, optimal, disagreement), progress)

    def run_disagreements(
        self,
        contexts: ArrayLike,
        differ: ArrayLike | None = None,
        *,
        optimal: ArrayLike | None = None,
        disagreement: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Ints:
        """Play rounds of which the truth is given (see `run`); ``differ`` teaches nothing."""
        n = rounds_in(as_table(contexts))
        if differ is not None:
            self._checked_marks(n, differ)
        return self._run_told(self._stops(n, optimal, disagreement), progress)

    def _run_told(self, stops: Ints, progress: Progress | None) -> Ints:
        self._rounds += len(stops)
        if progress is not None and len(stops):
            progress(len(stops), len(stops))
        return stops

    @abstractmethod
    def _stops(self, n: int, optimal: ArrayLike | None, disagreement: ArrayLike | None) -> Ints:
        """Return the stops of n rounds by the truth, or refuse it."""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal policy: none."""
        return {}


class Oracle(Told):
    """Told the optimal arm of every context, it plays it: zero regret by definition.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.Oracle(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, sw.Truth(optimal=1)).stop
    1
    >>> policy.run([[0.5], [0.7]], optimal=[1, 0]).tolist()
    [1, 0]
    """

    name: ClassVar[str] = "oracle"

    def decide(self, x: ArrayLike, truth: Truth | None = None) -> Decision:
        """Return the optimal arm."""
        del x
        if truth is None or truth.optimal is None:
            raise TruthRequiredError("the oracle must be told: decide(x, Truth(optimal=...))")
        return self._decision(self._checked_stop(truth.optimal))

    def _stops(self, n: int, optimal: ArrayLike | None, disagreement: ArrayLike | None) -> Ints:
        del disagreement
        if optimal is None:
            raise TruthRequiredError("the oracle must be told: run(contexts, optimal=...)")
        best = np.asarray(optimal)
        if best.shape != (n,) or best.dtype.kind not in "iuf":
            raise InvalidParameterError(
                f"optimal must be {n} arms, one a round; this has shape {best.shape}"
            )
        arms = np.arange(self.cascade.n_arms)
        wrong = np.flatnonzero(~np.isin(best, arms))
        if wrong.size:
            t = int(wrong[0])
            raise InvalidStopError(
                f"the optimal arm of round {t} is {best[t]!s}, but this cascade's arms are 0 to "
                f"{arms[-1]}"
            )
        return best.astype(np.int64)


class Clairvoyant(Told):
    """The stopping test with the true p_ij(x): what USS-PD would do if it knew all.

    Where it is not optimal, weak dominance fails, and disagreement cannot tell the best arm.

    Examples
    --------
    >>> import numpy as np, stopwise as sw
    >>> policy = sw.Clairvoyant(sw.Cascade(costs=[0.1, 0.2]))
    >>> policy.decide(None, sw.Truth(disagreement=np.array([[0, 0.15], [0, 0]]))).stop
    0
    """

    name: ClassVar[str] = "clairvoyant"

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
        return self._decision(int(self._first_winners(p)))

    def _stops(self, n: int, optimal: ArrayLike | None, disagreement: ArrayLike | None) -> Ints:
        del optimal
        if disagreement is None:
            raise TruthRequiredError(
                "the clairvoyant must be told: run(contexts, disagreement=...)"
            )
        p = np.asarray(disagreement)
        if p.shape != (n, *self.cascade.gaps.shape):
            raise InvalidParameterError(
                f"disagreement must be {n} tables of {self.cascade.n_arms} by "
                f"{self.cascade.n_arms} probabilities, one a round; this has shape {p.shape}"
            )
        wrong = np.flatnonzero(np.isnan(p).any(axis=(1, 2)))
        if wrong.size:
            raise InvalidParameterError(f"the disagreement of round {wrong[0]} holds a NaN")
        return self._first_winners(p)

    def _first_winners(self, p: NDArray[np.float64]) -> Ints:
        """Return the first arm whose gaps all exceed p, for one table (K, K) or many."""
        loses = np.triu(self.cascade.gaps - p <= TIE, 1).any(axis=-1)
        return np.argmin(loses, axis=-1).astype(np.int64)  # the last arm never loses
