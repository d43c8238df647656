"""Immutable records of decisions, evidence, rounds and labels."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Disagreements, Floats, Ints


def _probability(upper: float) -> str:
    # Values below 1e-12 are rounding errors of 0.
    return f"{min(upper, 1.0):.3g}" if upper > 1e-12 else "0"


class PairEvidence(msgspec.Struct, frozen=True):
    """A comparison of two arms for a decision: whether continuing to the deeper arm may pay off.

    Attributes
    ----------
    first, second, gap : int, int, float
        The arms i < j, and the gap C_j − C_i, the additional cost of continuing from i to j.
    disagreement, disagreement_ucb : float
        p̂_ij(x), the estimated probability that the arms' outputs differ, and p̃_ij(x), its upper
        bound, which the rule compares with the gap. For `USSAnchor`, both are differences in
        disagreement with the last arm; for `research.Supervised`, differences in error rates.
    gap_won : bool
        Whether continuing costs more than it could correct (gap > p̃·gain), either directly or
        ``through`` an intermediate arm.
    gain : float
        An upper bound, learned from labels, on how much more often ``second`` is right than
        ``first`` when they disagree; 1 without labels.
    through : int or None
        The intermediate arm k if the gap won only transitively, because neither i → k nor k → j is
        worth its cost; otherwise None.
    response : float
        If missing labels increase the gain, the share of the pair's requested labels that arrived;
        otherwise 1.

    Examples
    --------
    >>> print(PairEvidence(0, 1, gap=0.24, disagreement=0.1, disagreement_ucb=0.2, gap_won=True))
    0 → 1: costs 0.24 more, could correct at most 0.2 (estimate 0.1): not worth it
    """

    first: int
    second: int
    gap: float
    disagreement: float
    disagreement_ucb: float
    gap_won: bool
    gain: float = 1.0
    through: int | None = None
    response: float = 1.0

    @property
    def repair(self) -> float:
        """The upper bound on the errors that continuing could correct: p̃·gain."""
        return self.disagreement_ucb * self.gain

    def __str__(self) -> str:
        verdict = "not worth it" if self.gap_won else "may be worth it"
        if (k := self.through) is not None:
            verdict += f": neither {self.first} → {k} nor {k} → {self.second} is"
        p = self.disagreement
        estimate = "never observed" if math.isnan(p) else f"estimate {_probability(p)}"
        labels = f", labels show a gain of at most {self.gain:.3g}" if self.gain < 1 else ""
        if self.response < 1:
            labels += f", {100 * self.response:.0f} % of the requested labels arrived"
        return (
            f"{self.first} → {self.second}: costs {self.gap:.3g} more, could correct at most "
            f"{_probability(self.repair)} ({estimate}{labels}): {verdict}"
        )


class Change(NamedTuple):
    """A detected change in how often two arms disagree (`PairwisePolicy.watch`)."""

    round: int  # estimated round of the change, as counted by the policy's `rounds`
    pair: tuple[int, int]
    before: float  # disagreement to be expected on the latest contexts without the change
    after: float
    noticed: int  # the round after which the change was reported


class LabelRequest(NamedTuple):
    """A request for the label of a round, with its sampling probability (`Policy.label`)."""

    probability: float  # sampling probability of the request
    explored: float  # probability that exploration sent the round to the last arm
    round: int  # number of rounds learned before this one


class LabelCounts(NamedTuple):
    """Counts of requested and received labels (`PairwisePolicy.labels`)."""

    requested: int
    received: int  # requested or not
    missing: int  # requested but not received; counted as the worst possible label
    fixed_depth: int | None  # arm at which every round stops, if labels favour it over the rule


class Decision(msgspec.Struct, frozen=True, eq=False):
    """The decision for one context: the arm at which to stop.

    Attributes
    ----------
    stop, arm : int, str
        0-based index and name of the last arm to run.
    cost : float
        C_stop, the total cost of all arms up to the stop.
    evidence : tuple of PairEvidence
        The comparisons of every arm up to the stop with every deeper arm. Until the policy learns
        again, they contain exact estimates; afterwards, the estimates with which the policy proved
        the decision. Empty for forced exploration and for policies that do not compare pairs.

    Examples
    --------
    >>> Decision(stop=1, arm="glucose", cost=0.25)
    Decision(stop=1, arm='glucose', cost=0.25)
    """

    stop: int
    arm: str
    cost: float
    # Set by the policy; `evidence` is computed from them on access.
    explain: "Callable[[Decision], tuple[PairEvidence, ...]] | None" = None
    trace: Any = None  # the engine's trace of the decision
    explored_from: int | None = None  # the rule's stop, if exploration continued the round
    exact_evidence: bool = True  # False once the policy has learned again

    @property
    def rule_stop(self) -> int:
        """The stop decided by the rule; less than ``stop`` if exploration continued the round."""
        return self.stop if self.explored_from is None else self.explored_from

    @property
    def fixed_by_labels(self) -> bool:
        """Whether every round stops at the same arm, because labels favour it over the rule."""
        return bool(getattr(self.trace, "fixed_by_labels", False))

    @property
    def evidence(self) -> tuple[PairEvidence, ...]:
        """The comparisons on which the decision is based (see the class docstring)."""
        return () if self.explain is None else self.explain(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, str, float]:
        return self.stop, self.arm, self.cost

    def __repr__(self) -> str:
        return f"Decision(stop={self.stop}, arm={self.arm!r}, cost={self.cost:.6g})"

    def __str__(self) -> str:
        evidence = self.evidence
        at_stop = [e for e in evidence if e.first == self.stop and e.through is None]
        lost_before = [e for e in evidence if e.first < self.stop and not e.gap_won]
        text = f"Stop at arm {self.stop} ({self.arm}), cost {self.cost:.3g}"
        if (rule_stop := self.rule_stop) < self.stop:
            return f"{text}: continued at random; the rule stopped at arm {rule_stop}."
        if self.fixed_by_labels:
            return f"{text}: labels show that always stopping there is better than the rule."
        if at_stop:
            closest = min(at_stop, key=lambda e: e.gap - e.repair)
            return (
                f"{text}: continuing to arm {closest.second} would cost {closest.gap:.3g} more and "
                f"could correct at most {_probability(closest.repair)}."
            )
        if lost_before:
            reason = max(lost_before, key=lambda e: (e.first, e.repair - e.gap))
            return (
                f"{text}, the last arm: stopping at arm {reason.first} would save {reason.gap:.3g} "
                f"but could miss up to {_probability(reason.repair)}."
            )
        return f"{text}: no evidence (exploration or a fixed rule)."


class Failure(msgspec.Struct, frozen=True):
    """Why a stage has no answer: an exception or a timeout."""

    arm: int
    kind: Literal["error", "timeout"]
    message: str

    def __str__(self) -> str:
        return f"arm {self.arm}: {self.message}"


class Round(msgspec.Struct, frozen=True):
    """A finished round: its context, outputs and stop.

    Attributes
    ----------
    id, time : str, float
        A unique identifier, and the start time in seconds since 1970 (UTC).
    context : tuple of float
        The initial context followed by the revealed values.
    outputs, answers : tuple
        For each arm that answered: the canonical output, with which arms are compared, and the
        original answer.
    stop : int or None
        The last arm that answered; None if no arm did.
    rule_stop : int
        The stop decided by the rule. It differs from ``stop`` if exploration continued the round to
        the last arm, or if a stage failed.
    costs : tuple of float or None
        The actual cost of each call, if the stages report it.
    failure : Failure or None
        The failure that ended the round early, if any.
    request : LabelRequest or None
        The policy's request for the label of the round, if any.
    """

    id: str
    time: float
    context: tuple[float, ...]
    outputs: tuple[Any, ...]
    answers: tuple[Any, ...]
    stop: int | None
    rule_stop: int
    costs: tuple[float, ...] | None = None
    failure: Failure | None = None
    request: LabelRequest | None = None

    @property
    def wants_label(self) -> bool:
        """Whether the policy requests the label of the round (`Policy.label`)."""
        return self.request is not None

    @property
    def answer(self) -> Any:
        """The answer of the last arm that answered; None if no arm did."""
        return self.answers[-1] if self.answers else None


class RecordedRounds(msgspec.Struct, frozen=True, eq=False):
    """Past rounds, complete or partial.

    Attributes
    ----------
    contexts : ndarray of shape (n, context_dim)
        One context per round, with 0 in place of values that stages did not reveal.
    differ : ndarray of uint8, shape (n, K(K−1)/2)
        Whether each pair disagreed, in the order of ``cascade.pairs()``; 0 if unknown.
    answered : ndarray of int64, shape (n,)
        The number of arms that answered; they are the first arms of the cascade.
    failed : ndarray of bool, shape (n,)
        Whether the arm after those that answered was called and failed.
    right : ndarray of bool, shape (n, K), or None
        Whether each arm was right, for policies that learn from labels; only rounds in ``labelled``
        are read.
    labelled : ndarray of bool, shape (n,), or None
        Whether the round has a label, so that ``right`` is valid for all arms that answered. None
        if and only if ``right`` is None.

    Examples
    --------
    Two rounds of a cascade with two arms. In the first round, the arms disagreed and the second arm
    was right; in the second round, only the first arm answered.

    >>> import numpy as np
    >>> import stopwise as sw
    >>> rounds = sw.RecordedRounds(
    ...     contexts=np.array([[0.5, 1.0], [0.1, 0.0]]),
    ...     differ=np.array([[1], [0]], dtype=np.uint8),
    ...     answered=np.array([2, 1]),
    ...     failed=np.array([False, False]),
    ...     right=np.array([[False, True], [False, False]]),
    ...     labelled=np.array([True, False]),
    ... )
    >>> policy = sw.USSLaplace(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, labels=100)
    >>> policy.run_recorded(rounds).tolist(), policy.rounds
    ([1, 1], 1)
    """

    contexts: Floats
    differ: Disagreements
    answered: Ints
    failed: Bools
    right: Bools | None = None
    labelled: Bools | None = None

    @property
    def n(self) -> int:
        """The number of rounds."""
        return len(self.answered)

    def select(self, which: slice | Bools | Ints) -> "RecordedRounds":
        """Return the rounds selected by a slice, a mask or indices."""
        return RecordedRounds(
            contexts=self.contexts[which],
            differ=self.differ[which],
            answered=self.answered[which],
            failed=self.failed[which],
            right=None if self.right is None else self.right[which],
            labelled=None if self.labelled is None else self.labelled[which],
        )


class Observation(msgspec.Struct, frozen=True, eq=False):
    """The data that a policy learns from a round.

    Attributes
    ----------
    context : array_like or None
        The initial context followed by the revealed values; None for a context-free policy.
    stop, rule_stop : int
        The last arm that answered, and the stop decided by the rule.
    differ : ndarray of bool, shape (stop + 1, stop + 1)
        ``differ[i, j]`` is whether arms i < j disagreed.
    """

    context: ArrayLike | None
    stop: int
    rule_stop: int
    differ: Bools


class Label(msgspec.Struct, frozen=True, eq=False):
    """The label of a finished round: which arms were right.

    Attributes
    ----------
    observation : Observation
        The labelled round.
    right : tuple of bool
        Whether each arm that answered was right.
    request : LabelRequest or None
        The request for this label; None if the policy did not request it.
    """

    observation: Observation
    right: tuple[bool, ...]
    request: LabelRequest | None = None
