"""USS-Laplace: the recommended policy, whose caution fits each context."""

from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.engine import native
from stopwise.features import Answers, FeaturesLike
from stopwise.policies.contextual import Contextual


class USSLaplace(Contextual):
    """The test of USS-PD with the posterior of each context in place of an ellipsoid.

    ::

        the first 5 contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_j − C_i > p̃_ij(x)·g̃_ij(x)   for all j > i,        or at the last
            p̃_ij(x) = μ(φᵀθ̂_ij + z_t·‖φ‖_{H_ij⁻¹}),   z_t = z·(1 + 4/(1 + t/20))

    H_ij = Σ μ'(φ_sᵀθ̂)·φ_sφ_sᵀ + ridge·I is the Hessian of the pair's log posterior at θ̂, so the
    second term is z_t standard deviations of the logit, by Laplace's approximation. In the first
    rounds t it is wider: what is then believed wrongly may never be tested again. g̃_ij is the upper
    value of what going on gains where i and j disagree, by labels, and 1 without labels
    (docs/labels.md). There is no proof as for `USSPD`: on real cascades it learns much faster.

    Parameters
    ----------
    features : feature map, optional
        By default `Standard`, which scales itself. `Answers` for what arms say and reveal.
    context_dim : int
        How many numbers a context has before the first arm; 0 by default with `Answers`.
    z : float
        z ≥ 0; larger explores more. 0.5 is heuristic (docs/policies.md).
    ridge : float, optional
        Precision of the prior; by default what `Standard` describes, 1/16 for other features.
    transitive : bool, optional
        As in `USSPD`; by default wherever it applies.
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
        self.z = real("z", z, least=0)
        if transitive is None:
            transitive = not isinstance(features, Answers)
        settings = (forced_rounds, ridge, explore, labels, seed, transitive, half_life, memory)
        super().__init__(cascade, features, context_dim, *settings)

    def _rule(self) -> native.Rule:
        return native.Laplace(self.z)
