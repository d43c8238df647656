"""The feature maps: functions of a context that guarantee a norm of at most one."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import choice, integer, numbers, real, table, vector
from stopwise.errors import (
    FeaturesMismatchError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidParameterError,
)

Monomial: TypeAlias = tuple[int, ...]  # the coordinates it multiplies
Outside: TypeAlias = Literal["error", "clip"]

# How far beyond a limit counts as rounding (heuristic: far above float64's, far below data's).
SLACK = 1e-9
# A monomial is dropped when less than this share of it lies outside the span of those before it.
DEPENDENT = 1e-9
# A heuristic guard against degrees that explode: every pair has arrays of n_features² numbers.
MAX_MONOMIALS = 20_000


class BuiltIn:
    """A map that plain values can describe; ``kind`` names its class in a description."""

    kind: str

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe this map."""
        return json.loads(json.dumps(asdict(cast(Any, self))))

    def independent(self, X: ArrayLike) -> Self:
        """Return this map without the monomials that add nothing on the data.

        Monomials are taken in order. One is dropped if it lies, to a relative 1e-9, in the span
        of the remaining ones before it. The square of a two-valued coordinate, for example, is
        an affine copy of the coordinate and would leave the Gram matrix singular for ever.
        ``X`` are contexts that represent those to come: what is constant there is dropped.

        Examples
        --------
        >>> X = [[0, 0.1], [1, 0.2], [0, -0.3], [1, 0.4], [0, 0.9], [1, -0.7]]
        >>> Polynomial(degree=2).independent(X).without
        ((0, 0),)
        """
        from stopwise.features.binding import bind

        polynomial = getattr(self, "inner", self)
        if not isinstance(polynomial, Polynomial):
            raise InvalidParameterError("only a Polynomial has monomials to drop")
        contexts = table("contexts to fit on", X, InvalidContextError)
        rows = bind(cast(Any, self), contexts.shape[1], 2).rows(contexts)
        if not (remaining := _independent_columns(rows)):
            raise InvalidParameterError(
                "every monomial is zero on these data, so none is left; give data that vary"
            )
        monomials = enumerate(polynomial.monomials(contexts.shape[1]))
        dropped = [m for k, m in monomials if k not in remaining]
        smaller = replace(polynomial, without=(*polynomial.without, *dropped))
        if isinstance(self, Scaled):
            return cast(Self, Scaled(smaller, self.center, self.scale, self.outside))
        return cast(Self, smaller)


@dataclass(frozen=True)
class Identity(BuiltIn):
    """The context itself, scaled down: Φ(x) = x/(bound·√d).

    Every coordinate lies within [−bound, bound].

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
        """Return the features as monomials: here, each coordinate by itself."""
        return [(c,) for c in range(context_dim)]


@dataclass(frozen=True)
class Polynomial(BuiltIn):
    """All products of up to ``degree`` coordinates, in scikit-learn's order: 1, x₀, x₁, …, x₀², ….

    All are divided by the largest norm within the bound, √(Σ bound^(2·degree of the monomial)).
    Every coordinate lies within [−bound, bound]. ``bias`` says whether the constant 1 is among the
    monomials. ``without`` has those to leave out, each as the coordinates it multiplies: (3, 3) is
    x3², () is 1; usually `independent` finds them.

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
        # Sorted and without repeats, so that equal maps have equal specs.
        without = {tuple(sorted(integer("a coordinate", c) for c in m)) for m in self.without}
        object.__setattr__(self, "without", tuple(sorted(without, key=lambda m: (len(m), m))))

    def monomials(self, context_dim: int) -> list[Monomial]:
        """Return the features in order, each as the coordinates it multiplies."""
        check_count(self.degree, context_dim)
        degrees, coordinates = range(0 if self.bias else 1, self.degree + 1), range(context_dim)
        everything = [m for n in degrees for m in combinations_with_replacement(coordinates, n)]
        without = set(self.without)
        if unknown := without.difference(everything):
            raise InvalidParameterError(
                f"cannot leave out {min(unknown)}: no such monomial in degree {self.degree} of "
                f"{context_dim} coordinates" + ("" if self.bias else " without bias")
            )
        if len(everything) == len(self.without):
            raise InvalidParameterError("every monomial is left out; leave at least one")
        return [monomial for monomial in everything if monomial not in without]


@dataclass(frozen=True, init=False)
class Scaled(BuiltIn):
    """Shift and scale each coordinate, then apply another map: x ↦ inner((x − center)/scale).

    ``inner`` is an `Identity` or a `Polynomial`; ``center`` and ``scale``, above zero, have one
    number for each coordinate. A scaled coordinate beyond the ``bound`` of the inner map is an
    `InvalidContextError` or, with ``outside="clip"``, becomes the bound.

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
                f"Scaled takes an Identity or a Polynomial, not {inner!r}; "
                "a function can do its own scaling"
            )
        middle, reach = vector("center", center), vector("scale", scale, above=0)
        if middle.size != reach.size:
            raise InvalidParameterError(
                f"center has {middle.size} coordinates but scale has {reach.size}"
            )
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "center", tuple(middle.tolist()))
        object.__setattr__(self, "scale", tuple(reach.tolist()))
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
        """Choose center and scale so that every row of ``X`` lies within the bound.

        The center is the middle of the range of each coordinate and the scale half its width. A
        constant coordinate gets scale 1 and maps to zero. ``X`` are contexts like those to come;
        ``margin`` is room left for values beyond them, as a share of the scale. ``inner`` is
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
        with np.errstate(all="ignore"):  # data near the ends of float64 overflow; `Scaled` refuses
            center: Floats = low / 2 + high / 2
            spread: Floats = np.maximum(high - center, center - low)  # exact, unlike (high − low)/2
            scale = spread * (1 + margin) / inner.bound
        constant |= scale < np.finfo(np.float64).tiny  # too narrow to divide by accurately
        return cls(inner, np.where(constant, low, center), np.where(constant, 1.0, scale), outside)


@dataclass(frozen=True)
class Standard(BuiltIn):
    """Features that scale themselves: a policy fits them to its first rounds.

    A coordinate z is in standard deviations from its mean, at most 3 either way, and the features
    are (3, z₀, z₁, …, ½·z₀z₀, ½·z₀z₁, …), all times one number that makes the norm at most one.
    With a policy's default ridge that is the prior of a logit with an intercept of standard
    deviation 3, slopes of 1 and products of ½.

    Usually created without arguments: a policy fits them to its first rounds. ``degree`` 0 is the
    constant alone, 1 has coordinates too, 2 (for up to ten numbers) squares and products.
    ``center`` and ``scale`` are mean and standard deviation of each coordinate; ``two_valued``
    coordinates have no square, an affine copy of them; ``size`` multiplies all features.

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
                f"center has {len(self.center)} coordinates but scale has {len(self.scale)}"
            )
        two_valued = tuple(integer("a two-valued coordinate", c) for c in self.two_valued)
        object.__setattr__(self, "two_valued", two_valued)
        if self.size is not None:
            object.__setattr__(self, "size", real("size", self.size, above=0))


@dataclass(frozen=True)
class Custom:
    """Any function of a context, checked each time it is used.

    Parameters
    ----------
    function : callable
        Takes a context, a float64 array of shape (context_dim,) that it may change, and returns
        the same number of values each time, of Euclidean norm at most one.
    n_features : int, optional
        How many numbers it returns; found by a call on the zero context if not given.
    name : str, optional
        Its name in messages and files; the function's own name by default. Code is not saved: a
        saved policy stores this name and asks for the function when it is loaded.

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
                f"a custom feature map is a function, not {self.function!r}"
            )
        if self.n_features is not None:
            object.__setattr__(self, "n_features", integer("n_features", self.n_features, least=1))
        if self.name is None:
            own = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            object.__setattr__(self, "name", str(own))

    def resolved(self, context_dim: int) -> "Custom":
        """Return this map with the number of its features known."""
        if self.n_features is not None:
            return self
        try:
            trial = self.function(np.zeros(context_dim))
        except Exception as error:
            raise InvalidFeaturesError(
                f"feature map {self.name!r} failed on the zero context, which was tried to count "
                f"its features ({type(error).__name__}: {error}); give n_features"
            ) from error
        return replace(self, n_features=int(self._checked(trial).size))

    def __call__(self, x: Floats) -> Floats:
        """Return the features of a context, checked; the function may write to its argument."""
        return self._checked(self.function(x.copy()))

    def _checked(self, given: ArrayLike) -> Floats:
        values = numbers(f"the features of map {self.name!r}", given, InvalidFeaturesError)
        if values.ndim != 1 or values.size == 0 or self.n_features not in (None, values.size):
            expected = "(n,)" if self.n_features is None else f"({self.n_features},)"
            raise InvalidFeaturesError(
                f"feature map {self.name!r} gave an array of shape {values.shape}, not {expected}"
            )
        norm = math.hypot(*values.tolist())  # does not overflow, unlike √(v·v)
        if not math.isfinite(norm):
            raise InvalidFeaturesError(f"feature map {self.name!r} gave a value that is not finite")
        if norm > 1 + SLACK:
            raise InvalidFeaturesError(
                f"feature map {self.name!r} gave features of norm {norm:.12g}, and at most 1 is "
                "allowed; divide what it returns by the largest norm it can have, here at least "
                f"{norm:.12g}"
            )
        return values

    def to_spec(self) -> dict[str, Any]:
        """Return the name and the size; the code is not described."""
        return {"kind": "custom", "name": self.name, "n_features": self.n_features}


def check_count(degree: int, context_dim: int) -> None:
    """Raise if a polynomial of this degree has too many monomials."""
    count = math.comb(context_dim + degree, degree)
    if count > MAX_MONOMIALS:
        raise InvalidParameterError(
            f"degree {degree} of {context_dim} coordinates makes {count:,} features, more than "
            f"{MAX_MONOMIALS:,}; lower the degree or the number of coordinates"
        )


FeatureMap: TypeAlias = Identity | Polynomial | Scaled | Standard | Custom
MapLike: TypeAlias = FeatureMap | Callable[[Floats], ArrayLike]


def as_map(candidate: MapLike) -> FeatureMap:
    """Return a map; a function becomes `Custom`."""
    if isinstance(candidate, FeatureMap):
        return candidate
    if isinstance(candidate, type):
        raise InvalidParameterError(
            f"{candidate.__name__} is a class; give an instance of it: {candidate.__name__}(…)"
        )
    return Custom(candidate)


def map_from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    """Rebuild one map from its own `to_spec`, except a custom one, whose code is not in it."""
    try:
        rest = dict(spec)
        kind = rest.pop("kind")
        if kind == "custom":
            raise FeaturesMismatchError(
                f"this was saved with the custom feature map {spec['name']!r} "
                f"({spec['n_features']} features), whose code is not in the file; pass it again "
                "as features= when loading"
            )
        if kind == Scaled.kind:
            rest["inner"] = map_from_spec(rest["inner"])
        kinds = {cls.kind: cls for cls in (Identity, Polynomial, Scaled, Standard)}
        return kinds[kind](**rest)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidParameterError(f"{spec!r} describes no feature map: {error!r}") from error


def _independent_columns(columns: Floats) -> set[int]:
    """Return the columns not in the span of those chosen before them, by Gram–Schmidt.

    Each column is orthogonalised twice, which is as good as exactly ("twice is enough", Kahan).
    """
    n, k = columns.shape
    basis = np.empty((n, min(n, k)), order="F")
    chosen: set[int] = set()
    for c in range(k):
        norm = math.sqrt(columns[:, c] @ columns[:, c])
        if norm == 0 or len(chosen) == n:
            continue
        span = basis[:, : len(chosen)]
        rest = columns[:, c] / norm
        for _ in range(2):
            rest = rest - span @ (span.T @ rest)
        left = math.sqrt(rest @ rest)
        if left > DEPENDENT:
            basis[:, len(chosen)] = rest / left
            chosen.add(c)
    return chosen
