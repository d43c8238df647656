"""Feature maps: functions of a context whose values have a norm of at most one."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from inspect import Parameter, signature
from itertools import combinations_with_replacement
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import choice, integer, numbers, real, short_repr, table, vector
from stopwise.errors import (
    FeaturesMismatchError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidInputError,
    InvalidParameterError,
)
from stopwise.text import suggestion

Monomial: TypeAlias = tuple[int, ...]  # the coordinates that are multiplied
Outside: TypeAlias = Literal["error", "clip"]

# Tolerance by which values may exceed a limit (heuristic: far above float64 rounding, far below the
# scale of data).
SLACK = 1e-9
# A monomial is dropped if less than this share of its norm is outside the span of earlier ones.
DEPENDENT = 1e-9
# Heuristic limit, since each pair stores n_features² numbers.
MAX_MONOMIALS = 20_000


class BuiltIn:
    """A map that can be saved as plain values; ``kind`` identifies its class in files."""

    kind: str

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe this map."""
        return json.loads(json.dumps(asdict(cast(Any, self))))

    def independent(self, X: ArrayLike) -> Self:
        """Return this map without monomials that are linearly dependent in the contexts ``X``.

        Monomials are processed in order. A monomial is dropped if it is, up to a relative error of
        1e-9, a linear combination of the ones kept before it. For example, the square of a
        two-valued coordinate is an affine function of that coordinate and would keep the Gram
        matrix singular. ``X`` must be representative of future contexts, because a coordinate that
        is constant in ``X`` is dropped.

        Examples
        --------
        >>> X = [[0, 0.1], [1, 0.2], [0, -0.3], [1, 0.4], [0, 0.9], [1, -0.7]]
        >>> Polynomial(degree=2).independent(X).without
        ((0, 0),)
        """
        from stopwise.features.binding import bind

        polynomial = getattr(self, "inner", self)
        if not isinstance(polynomial, Polynomial):
            raise InvalidParameterError(
                f"independent() needs a Polynomial or a Scaled Polynomial, got {self!r}"
            )
        contexts = table("contexts to fit on", X, InvalidContextError)
        rows = bind(cast(Any, self), contexts.shape[1], 2).rows(contexts)
        if not (remaining := _independent_columns(rows)):
            raise InvalidParameterError(
                "all monomials are zero for these contexts; pass contexts that vary"
            )
        monomials = enumerate(polynomial.monomials(contexts.shape[1]))
        dropped = [m for k, m in monomials if k not in remaining]
        smaller = replace(polynomial, without=(*polynomial.without, *dropped))
        if isinstance(self, Scaled):
            return cast(Self, Scaled(smaller, self.center, self.scale, self.outside))
        return cast(Self, smaller)


@dataclass(frozen=True)
class Identity(BuiltIn):
    """The context divided by its largest possible norm: Φ(x) = x/(bound·√d).

    Every coordinate must be in [−bound, bound].

    Examples
    --------
    >>> import stopwise as sw
    >>> sw.bind(Identity(bound=2), context_dim=4, n_arms=2).row([2, -2, 0, 1]).tolist()
    [0.5, -0.5, 0.0, 0.25]
    """

    kind: str = field(default="identity", init=False, repr=False)
    bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", real("bound", self.bound, above=0))

    def monomials(self, context_dim: int) -> list[Monomial]:
        """Return the features as monomials, which are the single coordinates."""
        return [(c,) for c in range(context_dim)]


@dataclass(frozen=True)
class Polynomial(BuiltIn):
    """All products of up to ``degree`` coordinates, in scikit-learn's order: 1, x₀, x₁, …, x₀², ….

    Features are divided by their largest possible norm, √(Σ bound^(2·degree of the monomial)).
    Every coordinate must be in [−bound, bound]. ``bias`` is whether to include the constant 1.
    ``without`` lists the monomials to exclude as tuples of coordinates, such as (3, 3) for x₃² and
    () for 1; `independent` computes this list from data.

    Examples
    --------
    >>> import stopwise as sw
    >>> features = sw.bind(Polynomial(degree=2), context_dim=2, n_arms=2)
    >>> (features.row([1, -1]) * 6**0.5).round(12).tolist()
    [1.0, 1.0, -1.0, 1.0, -1.0, 1.0]
    """

    kind: str = field(default="polynomial", init=False, repr=False)
    degree: int = 2
    bias: bool = True
    bound: float = 1.0
    without: tuple[Monomial, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", integer("degree", self.degree, least=1))
        object.__setattr__(self, "bias", bool(self.bias))
        object.__setattr__(self, "bound", real("bound", self.bound, above=0))
        # Sorted and without duplicates, so that equal maps have equal specs.
        without = {tuple(sorted(integer("a coordinate", c) for c in m)) for m in self.without}
        object.__setattr__(self, "without", tuple(sorted(without, key=lambda m: (len(m), m))))

    def monomials(self, context_dim: int) -> list[Monomial]:
        """Return the monomials in order, each as a tuple of coordinates."""
        check_count(self.degree, context_dim)
        degrees = range(0 if self.bias else 1, self.degree + 1)
        coordinates = range(context_dim)
        monomials = [m for n in degrees for m in combinations_with_replacement(coordinates, n)]
        without = set(self.without)
        if unknown := without.difference(monomials):
            raise InvalidParameterError(
                f"unknown monomial {min(unknown)} in without=: the map has degree {self.degree} "
                f"and {context_dim} coordinates" + ("" if self.bias else ", and no bias")
            )
        if len(monomials) == len(without):
            raise InvalidParameterError("without= excludes all monomials; keep at least one")
        return [monomial for monomial in monomials if monomial not in without]


@dataclass(frozen=True, init=False)
class Scaled(BuiltIn):
    """Shift and scale each coordinate, then apply another map: x ↦ inner((x − center)/scale).

    ``inner`` is an `Identity` or a `Polynomial`. ``center`` and ``scale`` have one value per
    coordinate, and scales must be positive. If a scaled coordinate is outside the inner map's
    ``bound``, `InvalidContextError` is raised; with ``outside="clip"``, the coordinate is clipped
    to the bound instead.

    Examples
    --------
    >>> import stopwise as sw
    >>> features = sw.bind(Scaled(Identity(), center=[10, 0], scale=[5, 1]), 2, n_arms=2)
    >>> (features.row([15, -0.5]) * 2**0.5).round(12).tolist()
    [1.0, -0.5]
    """

    kind: str = field(default="scaled", init=False, repr=False)
    inner: Identity | Polynomial
    center: tuple[float, ...]
    scale: tuple[float, ...]
    outside: Outside = "error"

    def __init__(
        self,
        inner: Identity | Polynomial,
        center: ArrayLike,
        scale: ArrayLike,
        outside: Outside = "error",
    ) -> None:
        if not isinstance(inner, get_args(Identity | Polynomial)):
            raise InvalidParameterError(
                f"inner must be an Identity or a Polynomial, got {inner!r}; a custom function "
                "must do its own scaling"
            )
        centers = vector("center", center)
        scales = vector("scale", scale, above=0)
        if centers.size != scales.size:
            raise InvalidParameterError(
                "center and scale must have the same number of coordinates, got "
                f"{centers.size} and {scales.size}"
            )
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "center", tuple(centers.tolist()))
        object.__setattr__(self, "scale", tuple(scales.tolist()))
        object.__setattr__(self, "outside", choice("outside", outside, get_args(Outside)))

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        inner: Identity | Polynomial | None = None,
        *,
        margin: float = 0.0,
        outside: Outside = "error",
    ) -> "Scaled":
        """Choose center and scale so that every row of ``X`` is within the bound.

        Each coordinate's center is the middle of its range, and its scale is half the width of the
        range, times 1 + ``margin``, divided by the bound of ``inner``. A constant coordinate has
        scale 1 and maps to zero. ``X`` must be representative of future contexts. ``inner`` is
        `Identity` by default.

        Examples
        --------
        >>> Scaled.fit([[0, 7], [10, 7]])
        Scaled(inner=Identity(bound=1.0), center=(5.0, 7.0), scale=(5.0, 1.0), outside='error')
        """
        contexts = table("contexts to fit on", X, InvalidContextError)
        inner = Identity() if inner is None else inner
        margin = real("margin", margin, least=0)
        low, high = contexts.min(axis=0), contexts.max(axis=0)
        constant = low == high
        with np.errstate(all="ignore"):  # values near the limits of float64 overflow: see `Scaled`
            center: Floats = low / 2 + high / 2
            # The larger distance, so that both limits are inside despite rounding.
            half_width: Floats = np.maximum(high - center, center - low)
            scale = half_width * (1 + margin) / inner.bound
        constant |= scale < np.finfo(np.float64).tiny  # too narrow to divide by accurately
        return cls(inner, np.where(constant, low, center), np.where(constant, 1.0, scale), outside)


@dataclass(frozen=True)
class Standard(BuiltIn):
    """Standardised features, which a policy fits to its first rounds.

    Each coordinate z is standardised (mean 0, standard deviation 1) and clipped to [−3, 3]. The
    features are (3, z₀, z₁, …, ½·z₀z₀, ½·z₀z₁, …), multiplied by a constant that keeps the norm at
    most one. With a policy's default ridge, the prior standard deviation of a logit is then 3 for
    the intercept, 1 for slopes and ½ for products.

    Pass no argument except ``degree``, because the policy computes the others. ``degree`` 0 is only
    the constant, 1 adds the coordinates, and 2 (for up to ten coordinates) adds squares and
    products. ``center`` and ``scale`` are the mean and standard deviation of each coordinate.
    ``two_valued`` lists the coordinates without a square, which would be an affine function of the
    coordinate. ``size`` is the constant by which all features are multiplied.

    Examples
    --------
    >>> import stopwise as sw
    >>> features = sw.bind(Standard(degree=2), context_dim=1, n_arms=2)
    >>> (features.row([2.0]) / features.maps[0].size).tolist()
    [3.0, 2.0, 2.0]
    """

    kind: str = field(default="standard", init=False, repr=False)
    degree: int = 1
    center: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    two_valued: tuple[int, ...] = ()
    size: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", integer("degree", self.degree, most=2))
        object.__setattr__(self, "center", tuple(vector("center", self.center).tolist()))
        object.__setattr__(self, "scale", tuple(vector("scale", self.scale, above=0).tolist()))
        if len(self.center) != len(self.scale):
            raise InvalidParameterError(
                "center and scale must have the same number of coordinates, got "
                f"{len(self.center)} and {len(self.scale)}"
            )
        two_valued = tuple(integer("a two-valued coordinate", c) for c in self.two_valued)
        object.__setattr__(self, "two_valued", two_valued)
        if self.size is not None:
            object.__setattr__(self, "size", real("size", self.size, above=0))


@dataclass(frozen=True)
class Custom:
    """A user-defined function of a context, whose result is checked on every call.

    Parameters
    ----------
    function : callable
        Takes a context, which is a float64 array of shape (context_dim,), and may modify it;
        returns a fixed number of values with a Euclidean norm of at most one.
    n_features : int, optional
        The number of values that the function returns; by default determined by calling it with a
        context of zeros.
    name : str, optional
        The name in messages and files; by default the function's ``__qualname__``. Code is not
        saved: a policy file contains only this name, and the function is required for loading.

    Examples
    --------
    >>> import stopwise as sw
    >>> sw.bind(Custom(lambda x: [1, x[0]] / np.sqrt(2), name="first"), 3, n_arms=2).n_features
    2
    """

    function: Callable[[Floats], ArrayLike]
    n_features: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidParameterError(
                f"a custom feature map must be a function, got {self.function!r}"
            )
        if self.n_features is not None:
            object.__setattr__(self, "n_features", integer("n_features", self.n_features, least=1))
        if self.name is None:
            name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            object.__setattr__(self, "name", str(name))

    def resolved(self, context_dim: int) -> "Custom":
        """Return a copy of this map with ``n_features`` set."""
        if self.n_features is not None:
            return self
        try:
            trial = self.function(np.zeros(context_dim))
        except Exception as error:
            raise InvalidFeaturesError(
                f"cannot determine the number of features of map {self.name!r}: it failed on the "
                f"zero context ({type(error).__name__}: {error}); pass n_features"
            ) from error
        return replace(self, n_features=int(self._checked(trial).size))

    def __call__(self, x: Floats) -> Floats:
        """Return the checked features of a context."""
        return self._checked(self.function(x.copy()))  # the function may write to its argument

    def _checked(self, features: ArrayLike) -> Floats:
        values = numbers(f"the features of map {self.name!r}", features, InvalidFeaturesError)
        if values.ndim != 1 or values.size == 0 or self.n_features not in (None, values.size):
            expected = "(n,)" if self.n_features is None else f"({self.n_features},)"
            raise InvalidFeaturesError(
                f"feature map {self.name!r} must return an array of shape {expected}, got shape "
                f"{values.shape}"
            )
        norm = math.hypot(*values.tolist())  # does not overflow, unlike √(v·v)
        if not math.isfinite(norm):
            raise InvalidFeaturesError(
                f"feature map {self.name!r} must return only finite values, got "
                f"{short_repr(values.tolist())}"
            )
        if norm > 1 + SLACK:
            raise InvalidFeaturesError(
                f"the norm of the features of map {self.name!r} must be at most 1, got "
                f"{norm:.12g}; divide the features by the largest norm that they can have (at "
                f"least {norm:.12g})"
            )
        return values

    def to_spec(self) -> dict[str, Any]:
        """Return the name and the number of features; the code is not saved."""
        return {"kind": "custom", "name": self.name, "n_features": self.n_features}


def check_count(degree: int, context_dim: int) -> None:
    """Raise if a polynomial of this degree would have too many monomials."""
    count = math.comb(context_dim + degree, degree)
    if count > MAX_MONOMIALS:
        raise InvalidParameterError(
            f"degree {degree} with {context_dim} coordinates gives {count:,} features, but the "
            f"maximum is {MAX_MONOMIALS:,}; reduce the degree or the number of coordinates"
        )


FeatureMap: TypeAlias = Identity | Polynomial | Scaled | Standard | Custom
MapLike: TypeAlias = FeatureMap | Callable[[Floats], ArrayLike]


def as_map(candidate: MapLike) -> FeatureMap:
    """Return a feature map, wrapping a function in `Custom`."""
    if isinstance(candidate, FeatureMap):
        return candidate
    if isinstance(candidate, type):
        raise InvalidParameterError(
            f"features must be a map, got the class {candidate.__name__}; pass an instance, "
            f"{candidate.__name__}(…)"
        )
    return Custom(candidate)


def map_from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    """Rebuild a map from its `to_spec` values; raise `FeaturesMismatchError` for a custom map."""
    valid = isinstance(spec, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance] (from a file or a request)
    if not (valid and isinstance(spec.get("kind"), str)):
        raise InvalidParameterError(
            'a feature map must be an object with a kind, such as {"kind": "identity"}, '
            f"got {short_repr(spec)}"
        )
    parameters = dict(spec)
    kind = parameters.pop("kind")
    if kind == "custom":
        raise FeaturesMismatchError(
            f"the file contains the custom feature map {spec.get('name')!r} "
            f"({spec.get('n_features')} features), but not its code; pass the function as "
            "features= when loading"
        )
    classes: dict[str, Any] = {cls.kind: cls for cls in (Identity, Polynomial, Scaled, Standard)}
    if kind not in classes:
        hint = suggestion(kind, classes)
        raise InvalidParameterError(f"unknown feature map {short_repr(kind)}; {hint}")
    allowed = signature(classes[kind]).parameters
    for name in parameters:
        if name not in allowed:
            hint = suggestion(name, allowed)
            raise InvalidParameterError(
                f"unknown parameter {short_repr(name)} of feature map {kind!r}; {hint}"
            )
    for name, parameter in allowed.items():
        if parameter.default is Parameter.empty and name not in parameters:
            raise InvalidParameterError(f"feature map {kind!r} requires the parameter {name!r}")
    if kind == Scaled.kind:
        parameters["inner"] = map_from_spec(parameters["inner"])
    try:
        return classes[kind](**parameters)
    except InvalidInputError:  # names the parameter
        raise
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"invalid feature map {short_repr(spec)}: {error}") from error


def _independent_columns(columns: Floats) -> set[int]:
    """Select columns that are not in the span of the columns selected before (Gram–Schmidt).

    Each column is orthogonalised twice, which suffices in floating point (Kahan's "twice is
    enough").
    """
    n, k = columns.shape
    basis = np.empty((n, min(n, k)), order="F")
    selected: set[int] = set()
    for c in range(k):
        norm = math.sqrt(columns[:, c] @ columns[:, c])
        if norm == 0 or len(selected) == n:
            continue
        span = basis[:, : len(selected)]
        residual = columns[:, c] / norm
        for _ in range(2):
            residual = residual - span @ (span.T @ residual)
        residual_norm = math.sqrt(residual @ residual)
        if residual_norm > DEPENDENT:
            basis[:, len(selected)] = residual / residual_norm
            selected.add(c)
    return selected
