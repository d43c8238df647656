"""Frozen values: what was decided and why, finished rounds, and the truth for comparators."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], object]  # called as progress(stage, done, of)


def no_progress(stage: str, done: int, of: int) -> None:
    """Show nothing: the default wherever a `Progress` may be given."""


class PairEvidence(msgspec.Struct, frozen=True):
    """Why one arm was, or was not, worth going beyond: one comparison of the stopping rule.

    Attributes
    ----------
    first, second : int
        The arms i < j: at ``first``, is it worth going to ``second``?
    gap : float
        C_j − C_i, the extra cost of going on to ``second``.
    disagreement : float
        p̂_ij(x), the estimated probability that their outputs differ: the most it could repair.
        (For the supervised comparator: the estimated difference of their error rates.)
    disagreement_ucb : float
        p̃_ij(x), the optimistic value that the rule compares.
    gap_won : bool
        Whether gap > p̃ − 2·harm: going on costs more than it could repair.
    harm : float
        Half of what audit labels subtract from p̃, because ``second`` is often the one that errs
        where the two disagree; 0 without labels.

    Examples
    --------
    >>> print(PairEvidence(0, 1, gap=0.24, disagreement=0.1, disagreement_ucb=0.2, gap_won=True))
    0 → 1: costs 0.24 more, could repair at most 0.2 (estimate 0.1): not worth it
    """

    first: int
    second: int
    gap: float
    disagreement: float
    disagreement_ucb: float
    gap_won: bool
    harm: float = 0.0

    @property
    def repair(self) -> float:
        """The most that going on could repair: p̃ − 2·harm."""
        return self.disagreement_ucb - 2.0 * self.harm

    def __str__(self) -> str:
        verdict = "not worth it" if self.gap_won else "may be worth it"
        known = self.disagreement == self.disagreement  # not NaN: the pair has been seen
        estimate = f"estimate {self.disagreement:.3g}" if known else "never seen"
        labels = f", labels show harm of {self.harm:.3g}" if self.harm > 0 else ""
        return (
            f"{self.first} → {self.second}: costs {self.gap:.3g} more, could repair at most "
            f"{_probability(self.repair)} ({estimate}{labels}): {verdict}"
        )


class PairCoverage(msgspec.Struct, frozen=True):
    """How much a policy knows about a pair of arms.

    Attributes
    ----------
    first, second : int
        The arms.
    observations : int
        In how many rounds both ran.
    condition : float
        λ_max/λ_min of V: 1 if contexts vary evenly, inf while V is singular.
    """

    first: int
    second: int
    observations: int
    condition: float


def _probability(upper: float) -> str:
    """Format an upper bound on a probability; a rounding error is 0."""
    return f"{min(upper, 1.0):.3g}" if upper > 1e-12 else "0"


class Explains(Protocol):
    """A policy, which can explain its decisions."""

    def explain(self, decision: "Decision") -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision rested on."""
        ...


class Decision(msgspec.Struct, frozen=True, eq=False):
    """How deep to go for one context.

    Attributes
    ----------
    stop : int
        0-based index of the last arm to run.
    arm : str
        Its name.
    cost : float
        C_stop, the cost of all arms up to it.
    evidence : tuple of PairEvidence
        The comparisons, for every arm up to the stop and every deeper arm. Built when asked for:
        with exact estimates while the policy has not learned since, with those the decision
        was proved on afterwards. Empty when the depth was not a matter of evidence: forced
        exploration, or a policy that does not compare.

    Examples
    --------
    >>> Decision(stop=1, arm="glucose", cost=0.25)
    Decision(stop=1, arm='glucose', cost=0.25)
    """

    stop: int
    arm: str
    cost: float
    # What `evidence` needs; a policy fills these in.
    source: Explains | None = None
    note: bytes | None = None
    noise: Floats | None = None
    round: int = -1
    explored_from: int = -1

    @property
    def rule_stop(self) -> int:
        """Where the rule itself stops: before ``stop`` if the round was continued at random."""
        return self.stop if self.explored_from < 0 else self.explored_from

    @property
    def evidence(self) -> tuple[PairEvidence, ...]:
        """The comparisons that this decision rested on (see the class)."""
        return () if self.source is None else self.source.explain(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[int, str, float]:
        return self.stop, self.arm, self.cost

    def __repr__(self) -> str:
        return f"Decision(stop={self.stop}, arm={self.arm!r}, cost={self.cost:.6g})"

    def __str__(self) -> str:
        evidence = self.evidence
        here = [e for e in evidence if e.first == self.stop]
        before = [e for e in evidence if e.first < self.stop and not e.gap_won]
        text = f"Stop at arm {self.stop} ({self.arm}), cost {self.cost:.3g}"
        if self.rule_stop < self.stop:
            return (
                f"{text}: continued at random; the rule would have stopped at arm {self.rule_stop}."
            )
        if here:
            closest = min(here, key=lambda e: e.gap - e.repair)
            return (
                f"{text}: going on to arm {closest.second} would cost {closest.gap:.3g} more and "
                f"could repair at most {_probability(closest.repair)}."
            )
        if before:
            reason = max(before, key=lambda e: (e.first, e.repair - e.gap))
            return (
                f"{text}, the last: stopping at arm {reason.first} would save {reason.gap:.3g} "
                f"but could miss up to {_probability(reason.repair)}."
            )
        return f"{text}: not decided by evidence (exploration, or a fixed rule)."


class Failure(msgspec.Struct, frozen=True):
    """Why a stage gave no answer.

    Attributes
    ----------
    arm : int
        The arm that was asked.
    kind : {"error", "timeout"}
        Whether it raised, or did not answer in time.
    message : str
        A sentence.

    Examples
    --------
    >>> print(Failure(1, "timeout", "no answer within 2 s"))
    arm 1: no answer within 2 s
    """

    arm: int
    kind: Literal["error", "timeout"]
    message: str

    def __str__(self) -> str:
        return f"arm {self.arm}: {self.message}"


class Round(msgspec.Struct, frozen=True):
    """One finished round: what was known, the outputs, where it ended.

    Attributes
    ----------
    id : str
        By which the round can be found again.
    time : float
        When it began, in seconds since 1970 (UTC).
    context : tuple of float
        What was known at the end: the context it began with, then what stages revealed.
    outputs : tuple
        The outputs of the arms that answered, in the form in which outputs are compared.
    answers : tuple
        The same as the stages gave it.
    stop : int or None
        The last arm that answered; None if none did.
    rule_stop : int
        Where the rule itself would have stopped. It differs from ``stop`` when the round was
        continued to the last arm at random, and when a stage failed.
    costs : tuple of float or None
        What each call really cost, where the stages report it.
    failure : Failure or None
        Why the round ended early, if it did.

    Examples
    --------
    >>> done = Round("7", 0.0, (0.5,), ("spam",), ("Spam!",), stop=0, rule_stop=0)
    >>> done.answer
    'Spam!'
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

    @property
    def answer(self) -> Any:
        """The answer of the last arm that gave one; None if none did."""
        return self.answers[-1] if self.answers else None


class Truth(msgspec.Struct, frozen=True, eq=False):
    """What is unknown in production: for comparators and for measuring regret only.

    Attributes
    ----------
    label : object
        The right answer, where one was drawn.
    optimal : int or None
        i*, the arm of least expected total loss (the deepest of them, as the paper chooses).
    disagreement : ndarray of shape (K, K) or None
        p_ij(x), in the upper triangle.

    Examples
    --------
    >>> Truth(optimal=1).optimal
    1
    """

    label: Any = None
    optimal: int | None = None
    disagreement: Floats | None = None
