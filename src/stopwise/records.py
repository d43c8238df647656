"""Frozen values: decisions with their evidence, finished rounds and recorded rounds."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Differ, Floats, Ints


def _probability(upper: float) -> str:
    """Format a probability, or an upper bound on one; a rounding error is 0."""
    return f"{min(upper, 1.0):.3g}" if upper > 1e-12 else "0"


class PairEvidence(msgspec.Struct, frozen=True):
    """One comparison of the stopping rule: whether it is worth going on from one arm to another.

    Attributes
    ----------
    first, second, gap : int, int, float
        The arms i < j, and C_j − C_i, the extra cost of going on.
    disagreement, disagreement_ucb : float
        p̂_ij(x), the estimated probability that their outputs differ, and p̃_ij(x), the upper bound
        that the rule compares. (For `USSAnchor` and `research.Supervised`: differences of rates.)
    gap_won : bool
        Whether going on costs more than it could correct: gap > p̃·gain, or ``through``.
    gain : float
        The most that going on gains where the two disagree, by labels: how much more often
        ``second`` is right than ``first`` there; 1 without labels.
    through : int or None
        The arm k through which it was won, as neither (i, k) nor (k, j) is worth it.
    response : float
        The share of the labels asked for about this pair that came, if the gain is larger because
        of those that are missing; else 1.

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
        """The most that going on could correct: p̃·gain."""
        return self.disagreement_ucb * self.gain

    def __str__(self) -> str:
        verdict = "not worth it" if self.gap_won else "may be worth it"
        if (k := self.through) is not None:
            verdict += f": neither {self.first} → {k} nor {k} → {self.second} is"
        p = self.disagreement
        estimate = "never seen" if math.isnan(p) else f"estimate {_probability(p)}"
        labels = f", labels show a gain of at most {self.gain:.3g}" if self.gain < 1 else ""
        if self.response < 1:
            labels += f", {100 * self.response:.0f} % of the labels asked for came"
        return (
            f"{self.first} → {self.second}: costs {self.gap:.3g} more, could correct at most "
            f"{_probability(self.repair)} ({estimate}{labels}): {verdict}"
        )


class Change(NamedTuple):
    """Two arms disagree more, or less, than they did in such contexts (`Policy.watch`)."""

    round: int  # about when it changed, as `Policy.rounds` counts
    pair: tuple[int, int]
    before: float  # disagreement that the latest contexts would have shown before
    after: float
    noticed: int  # the round after which there was an alarm


class LabelRequest(NamedTuple):
    """A label that a policy asks for (`Policy.label`): it is one of many that it might have."""

    probability: float  # that the label of such a round was asked for
    explored: float  # that such a round went to the last arm, where the rule stopped before
    round: int  # how many rounds the policy had learned before


class LabelCounts(NamedTuple):
    """The labels of a policy so far (`PairwisePolicy.labels`)."""

    asked: int
    came: int  # also of rounds whose label was not asked for
    missing: int  # of those asked for: they count as the worst that they could say
    fixed_depth: int | None  # the arm at which every round stops now, as that beats the rule


class Decision(msgspec.Struct, frozen=True, eq=False):
    """How deep to go for one context.

    Attributes
    ----------
    stop, arm : int, str
        0-based index and name of the last arm to run.
    cost : float
        C_stop, the cost of all arms up to it.
    evidence : tuple of PairEvidence
        The comparisons, for every arm up to the stop and every deeper arm: with exact estimates
        while the policy has not learned since, with those that proved the decision afterwards.
        Empty for forced exploration, and for a policy that does not compare.

    Examples
    --------
    >>> Decision(stop=1, arm="glucose", cost=0.25)
    Decision(stop=1, arm='glucose', cost=0.25)
    """

    stop: int
    arm: str
    cost: float
    # What `evidence` needs; a policy fills these in.
    explain: "Callable[[Decision], tuple[PairEvidence, ...]] | None" = None
    trace: Any = None  # of the engine
    explored_from: int | None = None  # the rule's own stop, if the round went on at random
    exact_evidence: bool = True  # while nothing was learned since; else that of the proof

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops: before ``stop`` if the round was continued at random."""
        return self.stop if self.explored_from is None else self.explored_from

    @property
    def fixed_by_labels(self) -> bool:
        """Whether every round stops here now, as labels show that this is better than the rule."""
        return bool(getattr(self.trace, "fixed_by_labels", False))

    @property
    def evidence(self) -> tuple[PairEvidence, ...]:
        """The comparisons that this decision rested on (see the class)."""
        return () if self.explain is None else self.explain(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._shown == other._shown

    def __hash__(self) -> int:
        return hash(self._shown)

    @property
    def _shown(self) -> tuple[int, str, float]:
        return self.stop, self.arm, self.cost

    def __repr__(self) -> str:
        return f"Decision(stop={self.stop}, arm={self.arm!r}, cost={self.cost:.6g})"

    def __str__(self) -> str:
        evidence = self.evidence
        here = [e for e in evidence if e.first == self.stop and e.through is None]
        before = [e for e in evidence if e.first < self.stop and not e.gap_won]
        text = f"Stop at arm {self.stop} ({self.arm}), cost {self.cost:.3g}"
        if (ruled := self.rule_stop) < self.stop:
            return f"{text}: continued at random; the rule would have stopped at arm {ruled}."
        if self.fixed_by_labels:
            return f"{text}: labels show that stopping there every time is better than the rule."
        if here:
            closest = min(here, key=lambda e: e.gap - e.repair)
            return (
                f"{text}: going on to arm {closest.second} would cost {closest.gap:.3g} more and "
                f"could correct at most {_probability(closest.repair)}."
            )
        if before:
            reason = max(before, key=lambda e: (e.first, e.repair - e.gap))
            return (
                f"{text}, the last: stopping at arm {reason.first} would save {reason.gap:.3g} "
                f"but could miss up to {_probability(reason.repair)}."
            )
        return f"{text}: not decided by evidence (exploration, or a fixed rule)."


class Failure(msgspec.Struct, frozen=True):
    """Why a stage gave no answer: it raised, or did not answer in time."""

    arm: int
    kind: Literal["error", "timeout"]
    message: str

    def __str__(self) -> str:
        return f"arm {self.arm}: {self.message}"


class Round(msgspec.Struct, frozen=True):
    """One finished round: what was known, the outputs, where it ended.

    Attributes
    ----------
    id, time : str, float
        By which the round can be found again; when it began, in seconds since 1970 (UTC).
    context : tuple of float
        What was known at the end: the context it began with, then what stages revealed.
    outputs, answers : tuple
        What the arms gave that answered: in the form that is compared, and as the stages gave it.
    stop : int or None
        The last arm that answered; None if none did.
    rule_stop : int
        Where the rule itself would have stopped: not at ``stop`` if the round was continued to the
        last arm at random, or if a stage failed.
    costs : tuple of float or None
        What each call really cost, where the stages report it.
    failure : Failure or None
        Why the round ended early, if it did.
    request : LabelRequest or None
        Set if the policy asks for the round's label.
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
        """Whether the policy asks for the right answer (`Policy.label`)."""
        return self.request is not None

    @property
    def answer(self) -> Any:
        """The answer of the last arm that gave one; None if none did."""
        return self.answers[-1] if self.answers else None


class RecordedRounds(msgspec.Struct, frozen=True, eq=False):
    """Rounds that were played before, perhaps not to the end.

    Attributes
    ----------
    contexts : ndarray of shape (n, context_dim)
        One context per round; zeros where a stage that never ran would have revealed something.
    differ : ndarray of uint8, shape (n, K(K−1)/2)
        Whether each pair disagreed, in the order of ``cascade.pairs()``; 0 where not known.
    answered : ndarray of int64, shape (n,)
        How many arms answered: arms 0 … ``answered`` − 1, so 0 if none did and K if all did.
    failed : ndarray of bool, shape (n,)
        Whether the next arm was asked and failed.
    right : ndarray of bool, shape (n, K), or None
        Whether each arm was right, for a policy that asks for labels; only read where ``labelled``.
    labelled : ndarray of bool, shape (n,), or None
        Whether ``right`` is known for all arms that answered. None if and only if ``right`` is.

    Examples
    --------
    Two rounds of a cascade of two arms. The arms disagreed in the first, and the second arm was
    right; in the second round only the first arm answered.

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
    differ: Differ
    answered: Ints
    failed: Bools
    right: Bools | None = None
    labelled: Bools | None = None

    @property
    def n(self) -> int:
        """How many rounds there are."""
        return len(self.answered)

    def select(self, which: slice | Bools | Ints) -> "RecordedRounds":
        """Return some of the rounds, as a slice, a mask or indices select them."""
        return RecordedRounds(
            contexts=self.contexts[which],
            differ=self.differ[which],
            answered=self.answered[which],
            failed=self.failed[which],
            right=None if self.right is None else self.right[which],
            labelled=None if self.labelled is None else self.labelled[which],
        )


class Observation(msgspec.Struct, frozen=True, eq=False):
    """What one round showed: its context, where it ended, and which arms disagreed.

    Attributes
    ----------
    context : array_like or None
        What was known at the end; None for a policy that looks at no context.
    stop, rule_stop : int
        The last arm that answered, and where the rule itself would have stopped.
    differ : ndarray of bool, shape (stop + 1, stop + 1)
        ``differ[i, j]``, for i < j: whether arms i and j disagreed.
    """

    context: ArrayLike | None
    stop: int
    rule_stop: int
    differ: Bools


class Label(msgspec.Struct, frozen=True, eq=False):
    """Which arms of a finished round were right.

    Attributes
    ----------
    observation : Observation
        The round.
    right : tuple of bool
        Whether each arm that answered was right.
    request : LabelRequest or None
        The request that it answers; None if the policy did not ask for it.
    """

    observation: Observation
    right: tuple[bool, ...]
    request: LabelRequest | None = None
