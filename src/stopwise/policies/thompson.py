"""Thompson sampling on pairwise disagreement: random optimism instead of a radius."""

from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.engine import native
from stopwise.features import FeaturesLike
from stopwise.policies.contextual import Contextual
from stopwise.policies.protocol import Policy


class Thompson(Contextual):
    """The test of USS-PD with a random draw in place of the upper confidence bound.

    ::

        for context x, draw for every pair   z_ij ~ N(φᵀθ̂_ij, v_t²·‖φ‖²_{H_ij⁻¹})
        stop at the first arm i with         C_j − C_i > μ(z_ij) for all j > i

    H_ij = Σ μ'(φ_sᵀθ̂)·φ_sφ_sᵀ + ridge·I is the Hessian of the pair's likelihood at θ̂, so v_t = 1
    draws from the Laplace approximation of the posterior, and v_t = v·(1 + 4/(1 + t/20)). It
    explores less than USS-PD, unproved. Where arms never disagree the posterior is far from normal
    and its approximation too wide, hence v = ½.

    Parameters
    ----------
    features, context_dim, forced_rounds, ridge, seed, half_life, memory
        As in `USSLaplace`; the draws follow from the seed too.
    scale : float
        v ≥ 0; larger explores more.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.Thompson(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, seed=7)
    >>> policy.decide([0.5, 1.0]).stop
    1
    """

    name: ClassVar[str] = "thompson"
    learn_label = Policy.learn_label  # it does not learn from labels

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        scale: float = 0.5,
        forced_rounds: int | str = 5,
        ridge: float | None = None,
        seed: int = 0,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        self.scale = real("scale", scale, least=0)
        settings = (forced_rounds, ridge, None, 0, seed, False, half_life, memory)
        super().__init__(cascade, features, context_dim, *settings)

    def _rule(self) -> native.Rule:
        return native.Thompson(self.scale)
