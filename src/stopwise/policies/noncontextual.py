"""USS-UCB and USS-TS: the earlier algorithms, which use no context."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import number
from stopwise.engine import native
from stopwise.policies.checking import Bools, Ints, KnownTruth, LazyDiffer
from stopwise.policies.context_free import ContextFreePolicy
from stopwise.policies.randomness import checked_seed
from stopwise.records import Decision, PairEvidence

Floats = NDArray[np.float64]


class PairCounts(ContextFreePolicy):
    """Counts, for every pair, how often it was revealed and how often it disagreed.

    The stopping test is that of USS-PD, with an upper value per pair computed from its counts.
    ``strength`` is the constant of USS-UCB; None draws from a Beta distribution instead.
    """

    estimates_disagreement: ClassVar[bool] = True

    def __init__(self, cascade: Cascade, strength: float | None = None, seed: int = 0) -> None:
        super().__init__(cascade)
        self._strength = strength
        self._counts = self._new_counts(seed)

    def _new_counts(self, seed: int) -> native.PairCounts:
        return native.PairCounts(self.cascade.n_arms, self.cascade.gaps.ravel().tolist(), seed)

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._counts.rounds

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go; the context is not looked at."""
        del x
        stop, note = self._counts.decide(self._strength)
        return Decision(stop, self._names[stop], self._costs[stop], self, note, None, self.rounds)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.note is None:
            return ()
        gaps = self.cascade.gaps
        estimates, uppers = np.frombuffer(decision.note).reshape(2, -1).tolist()
        return tuple(
            PairEvidence(i, j, float(gaps[i, j]), p, upper, bool(gaps[i, j] > upper))
            for (i, j), p, upper in zip(self.cascade.pairs(), estimates, uppers, strict=True)
            if i <= decision.stop
        )

    def disagreement(self) -> Floats:
        """Return p̂_ij, the share of disagreements (NaN where a pair was never revealed)."""
        _, revealed, disagreed, _ = self._counts.state()
        with np.errstate(invalid="ignore"):
            return self._table(disagreed) / np.array(revealed)[None, :]

    def _table(self, disagreed: list[int]) -> Ints:
        """Return how often each pair of arms disagreed, above the diagonal."""
        table = np.zeros((self.cascade.n_arms,) * 2, dtype=np.int64)
        table[np.triu_indices(len(table), 1)] = disagreed
        return table

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        del x
        revealed = [j <= stop and bool(differ[i, j]) for i, j in self.cascade.pairs()]
        self._counts.learn(stop, np.array(revealed, dtype=np.uint8))

    def _play(self, stops: Ints, differ: LazyDiffer, truth: KnownTruth) -> None:
        del truth
        self._counts.run(self._strength, differ(), stops)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned and the random state, as arrays by name."""
        rounds, revealed, disagreed, random = self._counts.state()
        return {
            "rounds": np.array([rounds], dtype=np.int64),
            "n": np.array(revealed, dtype=np.int64),
            "disagreed": self._table(disagreed),
            "random": np.array(random, dtype=np.uint64).view(np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        n_arms = self.cascade.n_arms
        shapes = {"rounds": (1,), "n": (n_arms,), "disagreed": (n_arms, n_arms), "random": (4,)}
        for name, shape in shapes.items():
            if state[name].dtype != np.int64 or state[name].shape != shape:
                raise ValueError(f"{name} is {state[name].dtype}{state[name].shape}")
        n, disagreed = state["n"], state["disagreed"]
        revealed = np.concatenate([state["rounds"], n])
        above = disagreed[np.triu_indices(n_arms, 1)]
        if (
            n[-1] < 0
            or (np.diff(revealed) > 0).any()
            or (disagreed > n).any()
            or disagreed.min() < 0
            or above.sum() != disagreed.sum()
            or not state["random"].any()
        ):
            raise ValueError("its counts contradict each other")
        self._counts.restore(
            int(state["rounds"][0]),
            n.tolist(),
            above.tolist(),
            state["random"].view(np.uint64).tolist(),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counts": self.state()}

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self._counts = self._new_counts(0)
        self.restore(held["_counts"])


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
    parameter_names: ClassVar[tuple[str, ...]] = ("a",)

    def __init__(self, cascade: Cascade, *, a: float = 0.5) -> None:
        self.a = number("a", a, above=0)
        super().__init__(cascade, self.a)


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
    parameter_names: ClassVar[tuple[str, ...]] = ("seed",)
    draws: ClassVar[bool] = True

    def __init__(self, cascade: Cascade, *, seed: int = 0) -> None:
        self.seed = checked_seed(seed)
        super().__init__(cascade, seed=self.seed)
