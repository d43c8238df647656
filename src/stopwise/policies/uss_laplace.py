"""USS-Laplace, the recommended policy."""

from collections.abc import Sequence
from typing import ClassVar, final

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike
from stopwise.policies.options import Options
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import Laplace


@final
class USSLaplace(PairwisePolicy):
    """USS-PD's test with a Laplace approximation of the posterior in place of the ellipsoid.

    ::

        the first 5 contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_j − C_i > p̃_ij(x)·g̃_ij(x)   for all j > i,        or at the last
            p̃_ij(x) = μ(φᵀθ̂_ij + z_t·‖φ‖_{H_ij⁻¹}),   z_t = z·(1 + 4/(1 + t/20))

    H_ij = Σ μ'(φ_sᵀθ̂)·φ_sφ_sᵀ + ridge·I is the Hessian of the pair's log posterior at θ̂, so
    z_t·‖φ‖_{H_ij⁻¹} is z_t posterior standard deviations of the logit. This margin is wider in
    early rounds t, because early errors may never be revisited. g̃_ij is an upper bound, estimated
    from labels, on the gain of continuing: how much more often j is right than i when they
    disagree. Without labels, g̃_ij is 1 (docs/labels-method.md).
    Unlike `USSPD`, this policy has no regret bound, but on real cascades it learns much faster.

    Parameters
    ----------
    features : feature map, optional
        By default `Standard`, which scales itself.
    context_dim, reveals, answers
        As in `USSPD`.
    z : float
        z ≥ 0; larger values explore more. 0.5 is a heuristic (docs/policies.md).
    ridge : float, optional
        Precision of the prior. By default, `Standard` features set it; for others it is 1/16.
    transitive : bool, optional
        As in `USSPD`, but True by default unless stages reveal context.
    labels, forced_rounds, explore, seed, half_life, memory
        As in `USSPD`.

    Examples
    --------
    >>> import stopwise as sw
    >>> cascade = sw.Cascade(costs=[0.01, 0.3], names=["rule", "model"])
    >>> policy = sw.USSLaplace(cascade, context_dim=2)
    >>> for _ in range(30):
    ...     decision = policy.decide([0.5, 1.0])
    ...     _ = policy.observe([0.5, 1.0], ["spam", "spam"][: decision.stop + 1])
    >>> policy.decide([0.5, 1.0]).arm
    'rule'
    """

    name: ClassVar[str] = "uss-laplace"

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        reveals: int | Sequence[int] | None = None,
        answers: bool | None = None,
        labels: float = 0,
        z: float = 0.5,
        forced_rounds: int | str = 5,
        ridge: float | None = None,
        explore: float | None = None,
        transitive: bool | None = None,
        seed: int = 0,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        options = Options(
            features=features,
            context_dim=context_dim,
            reveals=reveals,
            answers=answers,
            labels=labels,
            forced_rounds=forced_rounds,
            ridge=ridge,
            explore=explore,
            transitive=reveals is None if transitive is None else transitive,
            seed=seed,
            half_life=half_life,
            memory=memory,
        )
        super().__init__(cascade, Laplace(z), options)
