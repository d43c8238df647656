"""Thompson sampling on pairwise disagreement."""

from collections.abc import Sequence
from typing import ClassVar, final

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike
from stopwise.policies.options import Options
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import PosteriorDraw


@final
class Thompson(PairwisePolicy):
    """USS-PD's test with a random draw in place of the upper confidence bound.

    ::

        the first 5 contexts go to the last arm
        then, for context x, draw            z_ij ~ N(φᵀθ̂_ij, v_t²·‖φ‖²_{H_ij⁻¹}) for every pair
        and stop at the first arm i with     C_j − C_i > μ(z_ij) for all j > i,  or at the last

    H_ij = Σ μ'(φ_sᵀθ̂)·φ_sφ_sᵀ + ridge·I is the Hessian of the pair's log posterior at θ̂, so v_t = 1
    would draw from the Laplace approximation of the posterior. The policy uses
    v_t = v·(1 + 4/(1 + t/20)), with v = ½ by default, because for arms that never disagree the
    posterior is far from normal and the approximation is too wide. Thompson sampling explores less
    than USS-PD and has no regret bound.

    Parameters
    ----------
    features, context_dim, reveals, answers, forced_rounds, ridge, seed, half_life, memory
        As in `USSLaplace`; ``seed`` also determines the draws.
    scale : float
        v ≥ 0; larger values explore more.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.Thompson(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, seed=7)
    >>> policy.decide([0.5, 1.0]).stop
    1
    """

    name: ClassVar[str] = "thompson"

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        reveals: int | Sequence[int] | None = None,
        answers: bool | None = None,
        scale: float = 0.5,
        forced_rounds: int | str = 5,
        ridge: float | None = None,
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
            seed=seed,
            half_life=half_life,
            memory=memory,
        )
        super().__init__(cascade, PosteriorDraw(scale), options)
