"""Policies without contexts: USS-UCB, USS-TS and their base classes."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Disagreements, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, real
from stopwise.engine import native
from stopwise.policies.batch import BatchEngine
from stopwise.policies.protocol import Policy
from stopwise.policies.validation import square
from stopwise.progress import Progress
from stopwise.records import Decision, Observation, PairEvidence, RecordedRounds


class ContextFreePolicy(Policy):
    """Base class for policies that ignore the context.

    Subclasses implement `decide` for single rounds and `_stops` for batches.
    """

    uses_context: ClassVar[bool] = False

    def __init__(self, cascade: Cascade) -> None:
        super().__init__(cascade)
        self._rounds = 0

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._rounds

    @property
    def engine(self) -> "CountingEngine":
        """The batch engine."""
        return CountingEngine(self)

    def play_all(self, differ: Disagreements) -> Ints:
        """Play complete rounds in order, learn from them, and return their stops."""
        stops = self._stops(differ)
        self._rounds += len(differ)
        return stops

    @abstractmethod
    def _stops(self, differ: Disagreements) -> Ints:
        """Do the work of `play_all` except for updating `rounds`."""

    def learn(self, observation: Observation) -> None:
        """Increase the number of rounds by one."""
        self._rounds += 1

    def __repr__(self) -> str:
        return f"{super().__repr__()} after {self.rounds} rounds"

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the number of rounds."""
        return {"rounds": np.array([self._rounds], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`; raise ValueError and change nothing if it is invalid."""
        self._rounds = saved_count(state, "rounds")


class CountingEngine(BatchEngine):
    """Batch engine that plays complete rounds in one call, and incomplete rounds one by one."""

    def __init__(self, policy: ContextFreePolicy) -> None:
        super().__init__(policy)
        self._policy = policy

    def run(self, record: RecordedRounds, progress: Progress) -> Ints:
        """Play rounds in order; return the stops."""
        if (record.failed | (record.answered < self._policy.cascade.n_arms)).any():
            return super().run(record, progress)
        stops = self._policy.play_all(record.differ)
        progress("rounds", record.n, record.n)
        return stops


def saved_count(state: Mapping[str, NDArray[Any]], name: str) -> int:
    """Return a count from a saved state; raise ValueError if it is invalid."""
    array = state[name]
    if array.dtype != np.int64 or array.shape != (1,) or array[0] < 0:
        raise ValueError(f"{name} must be one int64 of at least 0, got {array!r}")
    return int(array[0])


class PairCounts(ContextFreePolicy):
    """Base class for policies that count the observations and disagreements of every pair.

    The stopping test is that of USS-PD, with an upper bound computed from each pair's counts.
    ``strength`` is USS-UCB's parameter a, or None to draw the bounds from Beta distributions
    (USS-TS).
    """

    def __init__(self, cascade: Cascade, strength: float | None = None, seed: int = 0) -> None:
        super().__init__(cascade)
        self._costs = cast(list[float], cascade.cumulative.tolist())
        self._strength = strength
        self._counts = native.PairCounts(cascade.n_arms, cascade.gaps.ravel().tolist(), seed)

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._counts.rounds

    def decide(self, x: ArrayLike | None) -> Decision:
        """Return how deep to go; the context is ignored."""
        stop, trace = self._counts.decide(self._strength)
        return Decision(stop, self.cascade.names[stop], self._costs[stop], self._explain, trace)

    def _explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision."""
        if decision.trace is None:
            return ()
        gaps = self.cascade.gaps
        estimates, uppers = np.frombuffer(decision.trace).reshape(2, -1).tolist()
        return tuple(
            PairEvidence(i, j, float(gaps[i, j]), p, upper, bool(gaps[i, j] > upper))
            for (i, j), p, upper in zip(self.cascade.pairs(), estimates, uppers, strict=True)
            if i <= decision.stop
        )

    def disagreement(self) -> Floats:
        """Return p̂_ij, the share of disagreements for each pair (NaN for pairs never observed)."""
        state = self.state()
        with np.errstate(invalid="ignore"):
            return state["disagreed"] / state["n"]

    def learn(self, observation: Observation) -> None:
        """Count the observed pairs, and the disagreements among them."""
        stop, differ = observation.stop, observation.differ
        disagreed = [j <= stop and bool(differ[i, j]) for i, j in self.cascade.pairs()]
        self._counts.learn(stop, np.array(disagreed, dtype=np.uint8))

    def _stops(self, differ: Disagreements) -> Ints:
        stops = np.empty(len(differ), dtype=np.int64)
        self._counts.run(self._strength, np.ascontiguousarray(differ), stops)
        return stops

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the counts and the state of the random generator, as arrays by name."""
        rounds, revealed, disagreed, random = self._counts.state()
        return {
            "rounds": np.array([rounds], dtype=np.int64),
            "n": np.array(revealed, dtype=np.int64),
            "disagreed": square(np.array(disagreed, dtype=np.int64), self.cascade.n_arms),
            "random": np.array(random, dtype=np.uint64).view(np.int64),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`; raise ValueError and change nothing if it is invalid."""
        n_arms = self.cascade.n_arms
        shapes = {"rounds": (1,), "n": (n_arms,), "disagreed": (n_arms, n_arms), "random": (4,)}
        for name, shape in shapes.items():
            if state[name].dtype != np.int64 or state[name].shape != shape:
                raise ValueError(
                    f"{name} must be int64 of shape {shape}, got {state[name].dtype} of shape "
                    f"{state[name].shape}"
                )
        rounds, n, disagreed, random = (state[name] for name in shapes)
        valid = (
            (np.diff(np.concatenate([rounds, n, [0]])) <= 0).all()  # deeper arms run less often
            and ((disagreed >= 0) & (disagreed <= n)).all()
            and not np.tril(disagreed).any()
            and random.any()
        )
        if not valid:
            raise ValueError(
                "the numbers of rounds, observations and disagreements are inconsistent"
            )
        above = disagreed[np.triu_indices(n_arms, 1)].tolist()
        self._counts.restore(int(rounds[0]), n.tolist(), above, random.view(np.uint64).tolist())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counts": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._counts = native.PairCounts(self.cascade.n_arms, self.cascade.gaps.ravel().tolist(), 0)
        self.restore(state["_counts"])


class USSUCB(PairCounts):
    """USS-UCB: upper confidence bounds on how often each pair disagrees, without contexts.

    ::

        index_ij = p̂_ij + √(a·ln t / n_j)
        stop at the first arm i with  C_j − C_i > index_ij  for all j > i,  or at the last

    t is the number of the current round, from 1, and n_j is the number of earlier rounds in which
    arm j ran. p̂_ij is the share of these rounds in which arms i and j disagreed; while n_j is 0,
    the index is infinite. ``a`` > 0 is the strength of exploration; 0.5 is the constant in
    Hoeffding's inequality.

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
    """USS-TS: Thompson sampling on how often each pair disagrees, without contexts.

    ::

        draw  q_ij ~ Beta(1 + disagreements_ij, 1 + agreements_ij)
        stop at the first arm i with  C_j − C_i > q_ij  for all j > i,  or at the last

    Every decision draws q_ij for all pairs i < j, in the order of ``cascade.pairs()``, even if it
    stops at the first arm. The draws come from the policy's own generator, seeded with ``seed``.

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
