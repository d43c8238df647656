"""Policies that look at no context: what they share, and the earlier USS-UCB and USS-TS."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, real
from stopwise.engine import native
from stopwise.policies.base import Policy
from stopwise.policies.checking import Bools, Differ, Ints, ToPlay, differing, square
from stopwise.records import Decision, PairEvidence


class ContextFreePolicy(Policy):
    """A policy that looks at no context; it only counts rounds, unless a subclass does more.

    Subclasses write all rounds at once (`_stops`) beside the single `decide`.
    """

    uses_context: ClassVar[bool] = False

    def __init__(self, cascade: Cascade) -> None:
        super().__init__(cascade)
        self._rounds: int = 0

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._rounds

    def _at_once(self, rounds: ToPlay) -> Ints | None:
        record, progress = rounds
        if (record.failed | (record.answered < self._n_arms)).any():
            return None
        stops = self._stops(record.differ)
        self._rounds += record.n
        progress("rounds", record.n, record.n)
        return stops

    @abstractmethod
    def _stops(self, differ: Differ) -> Ints:
        """Play rounds in order: return their stops, learn all but the number of rounds."""

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> None:
        del rule_stop
        self._learn_pairs(x, n - 1, differing(codes, n))

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        del x, stop, differ
        self._rounds += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of rounds."""
        return {"rounds": np.array([self._rounds], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        self._rounds = counted(state, "rounds")


def counted(state: Mapping[str, NDArray[Any]], name: str) -> int:
    """Return a number of a saved state; ValueError if it is impossible."""
    numbers = state[name]
    if numbers.dtype != np.int64 or numbers.shape != (1,) or numbers[0] < 0:
        raise ValueError(f"its number of {name} is impossible")
    return int(numbers[0])


class PairCounts(ContextFreePolicy):
    """Counts, for every pair, how often it was revealed and how often it disagreed.

    The stopping test is that of USS-PD, with an upper value per pair computed from its counts.
    ``strength`` is the constant of USS-UCB; None draws from a Beta distribution instead.
    """

    def __init__(self, cascade: Cascade, strength: float | None = None, seed: int = 0) -> None:
        super().__init__(cascade)
        self._strength = strength
        self._counts = native.PairCounts(cascade.n_arms, cascade.gaps.ravel().tolist(), seed)

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._counts.rounds

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go; the context is not looked at."""
        del x
        stop, note = self._counts.decide(self._strength)
        return Decision(stop, self._names[stop], self._costs[stop], self, note)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.trace is None:
            return ()
        gaps = self.cascade.gaps
        estimates, uppers = np.frombuffer(decision.trace).reshape(2, -1).tolist()
        return tuple(
            PairEvidence(i, j, float(gaps[i, j]), p, upper, bool(gaps[i, j] > upper))
            for (i, j), p, upper in zip(self.cascade.pairs(), estimates, uppers, strict=True)
            if i <= decision.stop
        )

    def disagreement(self) -> NDArray[np.float64]:
        """Return p̂_ij, the share of disagreements (NaN where a pair was never revealed)."""
        state = self.state()
        with np.errstate(invalid="ignore"):
            return state["disagreed"] / state["n"]

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        del x
        revealed = [j <= stop and bool(differ[i, j]) for i, j in self.cascade.pairs()]
        self._counts.learn(stop, np.array(revealed, dtype=np.uint8))

    def _stops(self, differ: Differ) -> Ints:
        stops = np.empty(len(differ), dtype=np.int64)
        self._counts.run(self._strength, np.ascontiguousarray(differ), stops)
        return stops

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned and the random state, as arrays by name."""
        rounds, revealed, disagreed, random = self._counts.state()
        return {
            "rounds": np.array([rounds], dtype=np.int64),
            "n": np.array(revealed, dtype=np.int64),
            "disagreed": square(np.array(disagreed, dtype=np.int64), self._n_arms),
            "random": np.array(random, dtype=np.uint64).view(np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        n_arms = self._n_arms
        shapes = {"rounds": (1,), "n": (n_arms,), "disagreed": (n_arms, n_arms), "random": (4,)}
        for name, shape in shapes.items():
            if state[name].dtype != np.int64 or state[name].shape != shape:
                raise ValueError(f"{name} is {state[name].dtype}{state[name].shape}")
        rounds, n, disagreed, random = (state[name] for name in shapes)
        possible = (
            (np.diff(np.concatenate([rounds, n, [0]])) <= 0).all()  # deeper arms run less often
            and ((disagreed >= 0) & (disagreed <= n)).all()
            and not np.tril(disagreed).any()
            and random.any()
        )
        if not possible:
            raise ValueError("its counts contradict each other")
        above = disagreed[np.triu_indices(n_arms, 1)].tolist()
        self._counts.restore(int(rounds[0]), n.tolist(), above, random.view(np.uint64).tolist())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counts": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._counts = native.PairCounts(self._n_arms, self.cascade.gaps.ravel().tolist(), 0)
        self.restore(state["_counts"])


class USSUCB(PairCounts):
    """USS-UCB: upper confidence bounds on the pairs' overall disagreement.

    ::

        index_ij = p̂_ij + √(a·ln t / n_j)
        stop at the first arm i with  C_j − C_i > index_ij  for all j > i

    t is the number of this round, from 1; n_j counts the rounds that revealed arm j (∞ bonus
    while it is 0). ``a`` > 0 is the strength of exploration; 0.5 is the constant of Hoeffding's
    inequality.

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
        self.a = real("a", a, above=0)
        super().__init__(cascade, self.a)


class USSTS(PairCounts):
    """USS-TS: Thompson sampling on the pairs' overall disagreement.

    ::

        draw  q_ij ~ Beta(1 + disagreements_ij, 1 + agreements_ij)
        stop at the first arm i with  C_j − C_i > q_ij  for all j > i

    Every decision draws all pairs i < j in the order of ``cascade.pairs()``, wherever it stops,
    from the policy's own random stream, of ``seed``.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSTS(sw.Cascade(costs=[0.01, 0.3]), seed=1)
    >>> for _ in range(50):
    ...     policy.observe(None, ["spam", "spam"])
    >>> policy.decide(None).stop
    0
    """

    name: ClassVar[str] = "uss-ts"

    def __init__(self, cascade: Cascade, *, seed: int = 0) -> None:
        self.seed = checked_seed(seed)
        super().__init__(cascade, seed=self.seed)
