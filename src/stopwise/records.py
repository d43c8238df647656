"""The frozen values that travel: what was decided and why, and what only the truth knows."""

from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class PairEvidence(msgspec.Struct, frozen=True):
    """Why one arm was, or was not, worth going beyond: one comparison of the stopping rule.

    Attributes
    ----------
    first, second : int
        The arms i < j: stand at ``first``, look at ``second``.
    gap : float
        C_j − C_i, what going on to ``second`` costs more.
    disagreement : float
        p̂_ij(x), the estimated chance that their outputs differ: the most it could repair.
        (For the supervised comparator: the estimated difference of their error rates.)
    disagreement_ucb : float
        p̃_ij(x), the optimistic value that the rule compares.
    gap_won : bool
        Whether gap > p̃: going on costs more than it could repair.

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

    def __str__(self) -> str:
        verdict = "not worth it" if self.gap_won else "may be worth it"
        known = self.disagreement == self.disagreement  # not NaN: the pair has been seen
        estimate = f"estimate {self.disagreement:.3g}" if known else "never seen"
        return (
            f"{self.first} → {self.second}: costs {self.gap:.3g} more, could repair at most "
            f"{_probability(self.disagreement_ucb)} ({estimate}): {verdict}"
        )


def _probability(upper: float) -> str:
    """Show an upper value as what it bounds: an index above 1 bounds nothing more."""
    return f"{min(upper, 1.0):.3g}"


class Explains(Protocol):
    """Something that can say why it decided: a policy."""

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
    note: Floats | None = None
    noise: Floats | None = None
    round: int = -1

    @property
    def evidence(self) -> tuple[PairEvidence, ...]:
        """The comparisons that this decision rested on (see the class)."""
        return () if self.source is None else self.source.explain(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._shown() == other._shown()

    def __hash__(self) -> int:
        return hash(self._shown())

    def _shown(self) -> tuple[int, str, float]:
        return self.stop, self.arm, self.cost

    def __repr__(self) -> str:
        return f"Decision(stop={self.stop}, arm={self.arm!r}, cost={self.cost:.6g})"

    def __str__(self) -> str:
        evidence = self.evidence
        here = [e for e in evidence if e.first == self.stop]
        before = [e for e in evidence if e.first < self.stop and not e.gap_won]
        said = f"Stop at arm {self.stop} ({self.arm}), cost {self.cost:.3g}"
        if here:
            closest = min(here, key=lambda e: e.gap - e.disagreement_ucb)
            return (
                f"{said}: going on to arm {closest.second} would cost {closest.gap:.3g} more and "
                f"could repair at most {_probability(closest.disagreement_ucb)}."
            )
        if before:
            reason = max(before, key=lambda e: (e.first, e.disagreement_ucb - e.gap))
            return (
                f"{said}, the last: stopping at arm {reason.first} would save {reason.gap:.3g} "
                f"but could miss up to {_probability(reason.disagreement_ucb)}."
            )
        return f"{said}: not decided by evidence (exploration, or a fixed rule)."


class Truth(msgspec.Struct, frozen=True, eq=False):
    """What nobody knows in production: for comparators and for measuring regret only.

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
