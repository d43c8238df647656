"""The rules of pairwise policies: the upper bounds that are compared with cost gaps.

Their arithmetic is in ``engine/rule.cpp``, the stopping test in ``engine/stopping.cpp``.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from stopwise.checks import real
from stopwise.engine import native


class Rule(Protocol):
    """The parameters of a rule."""

    takes_labels: ClassVar[bool]  # whether labels can lower the upper bound
    always_explores: ClassVar[bool]  # whether the policy explores by default

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the engine's rule."""
        ...


@dataclass(frozen=True)
class Ellipsoid:
    """USS-PD: p̃ = μ(φᵀθ̂ + α‖φ‖_{V⁻¹}), with α computed from δ, σ and κ."""

    takes_labels: ClassVar[bool] = True
    always_explores: ClassVar[bool] = False
    delta: float
    sigma: float
    kappa: float

    def __post_init__(self) -> None:
        real("delta", self.delta, above=0, below=1)
        real("sigma", self.sigma, above=0)
        real("kappa", self.kappa, above=0, most=0.25)

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the rule of the engine."""
        return native.UssPd(native.Ellipsoid(self.sigma, self.kappa, self.delta, n_arms))


@dataclass(frozen=True)
class RegularizedEllipsoid(Ellipsoid):
    """USS-PD-λI: USS-PD with V + λI instead of V, and β instead of α; β depends on S ≥ ‖θ*‖."""

    lam: float
    S: float

    def __post_init__(self) -> None:
        super().__post_init__()
        real("lam", self.lam, least=1e-9)
        real("S", self.S, least=0)

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the rule of the engine."""
        ellipsoid = native.Ellipsoid(self.sigma, self.kappa, self.delta, n_arms)
        return native.UssPdRidge(ellipsoid, self.lam, self.S)


@dataclass(frozen=True)
class Laplace:
    """USS-Laplace: in logits, p̃ is z_t posterior standard deviations above the mode."""

    takes_labels: ClassVar[bool] = True
    always_explores: ClassVar[bool] = False
    z: float

    def __post_init__(self) -> None:
        real("z", self.z, least=0)

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the rule of the engine."""
        return native.Laplace(self.z)


@dataclass(frozen=True)
class Anchor:
    """USS-Anchor: in logits, p̃_iK is z posterior standard deviations above the mode."""

    takes_labels: ClassVar[bool] = False
    always_explores: ClassVar[bool] = True  # else it could get stuck, because z is small
    z: float

    def __post_init__(self) -> None:
        real("z", self.z, least=0)

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the rule of the engine."""
        return native.Anchor(self.z)


@dataclass(frozen=True)
class PosteriorDraw:
    """Thompson sampling: p̃ is drawn; v_t multiplies the posterior standard deviation."""

    takes_labels: ClassVar[bool] = False
    always_explores: ClassVar[bool] = False
    scale: float

    def __post_init__(self) -> None:
        real("scale", self.scale, least=0)

    def native_rule(self, n_arms: int) -> native.Rule:
        """Return the rule of the engine."""
        return native.Thompson(self.scale)
