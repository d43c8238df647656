"""USS-Anchor: never worse than always running every arm, whatever the arms are."""

from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.engine import native
from stopwise.features import FeaturesLike
from stopwise.policies.contextual import Contextual
from stopwise.policies.protocol import Policy


class USSAnchor(Contextual):
    """Stop where cost and disagreement with the last arm K are least together.

    ::

        the first 5 contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_i + p̃_iK(x) < C_j + p̂_jK(x)   for all j > i  (p̂_KK = 0),     or at the last
            p̃_iK(x) = μ(φᵀθ̂_iK + z·‖φ‖_{H_iK⁻¹}),   p̂_jK(x) = μ(φᵀθ̂_jK)

    Stopping at i instead of K costs at most C_i + p_iK − C_K, so with p known the rule is never
    worse than running everything, whether or not deeper arms are better (docs/theory.md). It asks
    for no label. With two arms it is the test of USS-Laplace, with the same z from the beginning.

    Parameters
    ----------
    features, context_dim, forced_rounds, ridge, seed, half_life, memory
        As in `USSLaplace`.
    explore : float
        The share of rounds that go to the last arm at random (see `USSPD`); 0.06 by default.
    z : float
        z ≥ 0; larger explores more.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSAnchor(sw.Cascade(costs=[0.01, 0.1, 0.3]), context_dim=2)
    >>> for _ in range(30):
    ...     decision = policy.decide([0.5, 1.0])
    ...     _ = policy.observe([0.5, 1.0], ["ham", "spam", "spam"][: decision.stop + 1])
    >>> policy.decide([0.5, 1.0]).stop
    1
    """

    name: ClassVar[str] = "uss-anchor"
    always_explores: ClassVar[bool] = True  # or it may lock in: z is small
    learn_label = Policy.learn_label  # it needs none

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        z: float = 0.25,
        forced_rounds: int | str = 5,
        ridge: float | None = None,
        explore: float | None = None,
        seed: int = 0,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        self.z = real("z", z, least=0)
        settings = (forced_rounds, ridge, explore, 0, seed, False, half_life, memory)
        super().__init__(cascade, features, context_dim, *settings)

    def _rule(self) -> native.Rule:
        return native.Anchor(self.z)

    def questions(self) -> list[tuple[int, int]]:
        """Return each question's slot of features; every one needs the last arm."""
        last = self.cascade.n_arms - 1
        return [(self.features.slot_of(i, j), last) for i, j in self.cascade.pairs()]

    def answered_from(self, i: int, j: int) -> int:
        """Return the first stop of the rounds that count for a pair where stages reveal."""
        return i + 1 if j == self.cascade.n_arms - 1 else j
