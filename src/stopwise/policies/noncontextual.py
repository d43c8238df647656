"""USS-UCB and USS-TS: the predecessors that look at no context."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.engine import counts
from stopwise.policies.base import Blind, Ints, Marks, number
from stopwise.policies.randomness import generator, restored, stored, whole_seed
from stopwise.records import Decision, PairEvidence

Floats = NDArray[np.float64]


class PairCounts(Blind):
    """Counts, for every pair, how often it was revealed and how often it disagreed.

    Subclasses turn the counts into an upper value per pair (`_decide`, and `_play` for a series
    of rounds); the stopping test is that of USS-PD.
    """

    def __init__(self, cascade: Cascade) -> None:
        super().__init__(cascade)
        self._n = np.zeros(cascade.n_arms, dtype=np.int64)  # rounds that revealed arm j
        self._disagreed = np.zeros((cascade.n_arms, cascade.n_arms), dtype=np.int64)
        self._n_pairs = len(cascade.pairs())

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go; the context is not looked at."""
        del x
        noted = np.empty((2, self._n_pairs))
        stop = self._decide(noted)
        return Decision(stop, self._names[stop], self._costs[stop], self, noted, None, self._rounds)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.note is None:
            return ()
        gaps, (estimates, uppers) = self.cascade.gaps, decision.note.tolist()
        return tuple(
            PairEvidence(i, j, float(gaps[i, j]), p, upper, bool(gaps[i, j] > upper))
            for (i, j), p, upper in zip(self.cascade.pairs(), estimates, uppers, strict=True)
            if i <= decision.stop
        )

    def disagreement(self) -> Floats:
        """Return p̂_ij, the share of disagreements (NaN where a pair was never revealed)."""
        with np.errstate(invalid="ignore"):
            return self._disagreed / self._n[None, :]

    @abstractmethod
    def _decide(self, noted: Floats) -> int:
        """Return the stop, leaving every pair's p̂ and upper value in ``noted`` (2, n_pairs)."""

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        del wanted
        heard = np.array([(codes >> (4 * i)) & 15 for i in range(n)])
        self._learn_pairs(x, n - 1, heard[:, None] != heard[None, :])

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        super()._learn_pairs(x, stop, differ)
        seen = stop + 1
        self._n[:seen] += 1
        self._disagreed[:seen, :seen] += np.triu(differ[:seen, :seen], 1)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned and the random state, as arrays by name."""
        return {**super().state(), "n": self._n.copy(), "disagreed": self._disagreed.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned."""
        n, disagreed = state["n"], state["disagreed"]
        if (n.dtype, n.shape) != (self._n.dtype, self._n.shape):
            raise ValueError("its counts are of another kind")
        if (disagreed.dtype, disagreed.shape) != (self._disagreed.dtype, self._disagreed.shape):
            raise ValueError("its disagreements are of another kind")
        revealed = np.concatenate([state["rounds"], n])
        if (
            n[-1] < 0
            or (np.diff(revealed) > 0).any()
            or (disagreed > n).any()
            or disagreed.min() < 0
        ):
            raise ValueError("its counts contradict each other")
        super().restore(state)
        self._n[...] = n
        self._disagreed[...] = disagreed


class USSUCB(PairCounts):
    """USS-UCB: upper confidence bounds on the pairs' overall disagreement.

    ::

        index_ij = p̂_ij + √(a·ln t / n_j)
        stop at the first arm i with  C_j − C_i > index_ij  for all j > i

    t is the number of this round, from 1; n_j counts the rounds that revealed arm j (∞ bonus
    while it is 0).

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    a : float
        Strength of exploration, > 0; 0.5 is the constant of Hoeffding's inequality.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSUCB(sw.Cascade(costs=[0.1, 0.5]))
    >>> for _ in range(100):
    ...     policy.observe(None, ["yes", "yes"][: policy.decide(None).stop + 1])
    >>> policy.decide(None).stop
    0
    """

    name: ClassVar[str] = "uss-ucb"

    def __init__(self, cascade: Cascade, *, a: float = 0.5) -> None:
        super().__init__(cascade)
        self.a = number("a", a, above=0)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untaught policy."""
        return {"a": self.a}

    def _decide(self, noted: Floats) -> int:
        return counts.decide_ucb(
            self.cascade.gaps, self._n, self._disagreed, self._rounds, self.a, noted
        )

    def _play(self, stops: Ints, marks: Callable[[], Marks]) -> None:
        counts.run_ucb(
            self.cascade.gaps, self._n, self._disagreed, self._rounds, self.a, marks(), stops
        )


class USSTS(PairCounts):
    """USS-TS: Thompson sampling on the pairs' overall disagreement.

    ::

        draw  q_ij ~ Beta(1 + disagreements_ij, 1 + agreements_ij)
        stop at the first arm i with  C_j − C_i > q_ij  for all j > i

    Every decision draws all pairs i < j in the order of ``cascade.pairs()``, wherever it stops.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    seed : int
        Of the policy's own random stream.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSTS(sw.Cascade(costs=[0.1, 0.5]), seed=1)
    >>> for _ in range(100):
    ...     policy.observe(None, ["yes", "yes"][: policy.decide(None).stop + 1])
    >>> policy.decide(None).stop
    0
    """

    name: ClassVar[str] = "uss-ts"

    def __init__(self, cascade: Cascade, *, seed: int = 0) -> None:
        super().__init__(cascade)
        self.seed = whole_seed(seed)
        self._random = generator(self.seed)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untaught policy."""
        return {"seed": self.seed}

    def _decide(self, noted: Floats) -> int:
        return counts.decide_ts(self.cascade.gaps, self._n, self._disagreed, self._random, noted)

    def _play(self, stops: Ints, marks: Callable[[], Marks]) -> None:
        counts.run_ts(self.cascade.gaps, self._n, self._disagreed, self._random, marks(), stops)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned and the random state, as arrays by name."""
        return {**super().state(), "random": stored(self._random)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned."""
        random = restored(state["random"])
        super().restore(state)
        self._random = random
