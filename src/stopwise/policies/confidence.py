"""Policies whose optimism is the radius of a confidence ellipsoid."""

from typing import Any, ClassVar

from stopwise.cascade import Cascade
from stopwise.checks import number
from stopwise.engine.native import Ellipsoid
from stopwise.features import FeaturesLike
from stopwise.policies.contextual import Contextual


class ConfidencePolicy(Contextual):
    """A contextual policy with δ, σ and κ (see `USSPD` for the parameters)."""

    parameter_names: ClassVar[tuple[str, ...]] = (
        *("delta", "sigma", "kappa", "forced_rounds", "ridge"),
        *("full_depth_every", "seed"),
    )

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        delta: float = 0.05,
        sigma: float = 0.1,
        kappa: float = 0.25,
        forced_rounds: int | str = 50,
        ridge: float = 1e-3,
        full_depth_every: int | None = None,
        seed: int = 0,
    ) -> None:
        self.delta = number("delta", delta, above=0, below=1)
        self.sigma = number("sigma", sigma, above=0)
        self.kappa = number("kappa", kappa, above=0, most=0.25)
        super().__init__(
            cascade,
            features,
            context_dim,
            forced_rounds=forced_rounds,
            ridge=ridge,
            full_depth_every=full_depth_every,
            seed=seed,
        )

    @property
    def ellipsoid(self) -> Ellipsoid:
        """The radius of the confidence ellipsoid as a function of the observations."""
        n_arms, n_features = self.cascade.n_arms, self.features.n_features
        return Ellipsoid(self.sigma, self.kappa, self.delta, n_arms, n_features)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untrained policy, as plain values."""
        given = super().parameters()
        unused = ("full_depth_every", "seed") if self.full_depth_every is None else ()
        return {name: value for name, value in given.items() if name not in unused}
