"""Thompson sampling on pairwise disagreement: random optimism instead of a radius."""

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.engine import native
from stopwise.features import FeaturesLike
from stopwise.policies.base import Policy
from stopwise.policies.contextual import Contextual
from stopwise.policies.randomness import generator, restored, stored
from stopwise.records import Decision, Floats


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
        As in `USSLaplace`; the seed is that of the policy's own random stream.
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
    draws: ClassVar[bool] = True

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
        self._normals = generator(self.seed)

    def _rule(self) -> native.Rule:
        return native.Laplace(self.scale)

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing, but draws."""
        self.features.row(x)  # a context that is refused draws nothing
        return super().decide(x)

    label = Policy.label  # it does not learn from labels

    def noise_table(self, n: int) -> Floats:
        """Return normal draws for n decisions."""
        return self._normals.standard_normal((n, self._n_pairs))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, and the random states, as arrays by name."""
        return {**super().state(), "normals": stored(self._normals)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        normals = restored(state["normals"])
        super().restore(state)
        self._normals = normals
