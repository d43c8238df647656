"""USS-Anchor: stop where cost plus disagreement with the last arm is smallest."""

from collections.abc import Sequence
from typing import ClassVar, final

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike
from stopwise.policies.options import Options
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import Anchor


@final
class USSAnchor(PairwisePolicy):
    """Stop where cost plus disagreement with the last arm K is smallest.

    ::

        the first 5 contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_i + p̃_iK(x) < C_j + p̂_jK(x)   for all j > i  (p̂_KK = 0),     or at the last
            p̃_iK(x) = μ(φᵀθ̂_iK + z·‖φ‖_{H_iK⁻¹}),   p̂_jK(x) = μ(φᵀθ̂_jK)

    H is the Hessian defined in `USSLaplace`. Stopping at i instead of K increases the expected cost
    plus errors by at most C_i + p_iK − C_K. If p were known, the rule would therefore never be
    worse than running every arm, whether or not deeper arms are better (docs/theory-anchor.md).
    USS-Anchor does not use labels. With two arms, its test is that of USS-Laplace without labels
    and with z in place of z_t.

    Parameters
    ----------
    features, context_dim, reveals, answers, forced_rounds, ridge, seed, half_life, memory
        As in `USSLaplace`.
    explore : float
        Initial share of rounds, chosen at random, that run every arm (see `USSPD`); 0.06 by
        default.
    z : float
        z ≥ 0; larger values explore more.

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

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        reveals: int | Sequence[int] | None = None,
        answers: bool | None = None,
        z: float = 0.25,
        forced_rounds: int | str = 5,
        ridge: float | None = None,
        explore: float | None = None,
        seed: int = 0,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        options = Options(
            features=features,
            context_dim=context_dim,
            reveals=reveals,
            answers=answers,
            forced_rounds=forced_rounds,
            ridge=ridge,
            explore=explore,
            seed=seed,
            half_life=half_life,
            memory=memory,
        )
        super().__init__(cascade, Anchor(z), options)
