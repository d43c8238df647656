"""Feature maps Φ: what the model of disagreement sees of a context, never longer than one.

The paper models the chance that arms i and j disagree as μ(Φᵢⱼ(x)ᵀθ), with ‖Φᵢⱼ(x)‖₂ ≤ 1. A map
keeps that promise given another, made by the user: every coordinate of a context lies within
[−bound, bound]. Data that do not are brought there by `Scaled`.

Maps: `Identity`, `Polynomial`, `Scaled`, `Custom` (any function). Which pair of arms uses which
map: `Shared`, `PerStage`, `PerPair`. `bind` joins them to a cascade's size.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations_with_replacement
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NoReturn,
    SupportsIndex,
    TypeAlias,
    cast,
    get_args,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.engine.native import Monomials
from stopwise.errors import (
    CorruptFileError,
    FeaturesMismatchError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidInputError,
    InvalidParameterError,
)

if TYPE_CHECKING:
    from stopwise.engine.native import Block

Floats: TypeAlias = NDArray[np.float64]
Monomial: TypeAlias = tuple[int, ...]
Outside: TypeAlias = Literal["error", "clip"]

FLOAT64 = np.dtype(np.float64)
# How far beyond a promise counts as rounding (heuristic: far above float64's, far below data's).
SLACK = 1e-9
# A monomial is dropped when less than this share of it lies outside the span of those before it.
DEPENDENT = 1e-9
# A heuristic guard against degrees that explode: every pair keeps arrays of n_features² numbers.
MAX_MONOMIALS = 20_000


# ----------------------------------------------------------------------------------------- the maps


@dataclass(frozen=True)
class Identity:
    """The context itself, shortened: Φ(x) = x/(bound·√d).

    Parameters
    ----------
    bound : float
        The promise: every coordinate lies within [−bound, bound].

    Examples
    --------
    >>> bind(Identity(bound=2), context_dim=4, n_arms=2).row([2, -2, 0, 1]).tolist()
    [0.5, -0.5, 0.0, 0.25]
    """

    bound: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings and bring them to one form."""
        object.__setattr__(self, "bound", _positive(self.bound, "bound"))

    def monomials(self, context_dim: int) -> list[Monomial]:
        """Return the features as monomials: here, each coordinate by itself."""
        return [(c,) for c in range(context_dim)]

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe this map."""
        return {"kind": "identity", "bound": self.bound}


@dataclass(frozen=True)
class Polynomial:
    """All products of up to ``degree`` coordinates, by degree and then in dictionary order.

    The order is scikit-learn's: 1, x₀, x₁, …, x₀², x₀x₁, …. All are divided by the largest norm
    the promise allows, √(Σ bound^(2·degree of the monomial)), which a corner of the box attains.

    Parameters
    ----------
    degree : int
        The highest degree, at least one.
    bias : bool
        Whether the constant 1 is among the monomials.
    bound : float
        The promise: every coordinate lies within [−bound, bound].
    without : tuple of tuples of int
        Monomials to leave out, each as the coordinates it multiplies: (3, 3) is x3², () is 1.
        Usually found by `independent`.

    Examples
    --------
    >>> features = bind(Polynomial(degree=2), context_dim=2, n_arms=2)
    >>> features.n_features
    6
    >>> (features.row([1, -1]) * 6**0.5).round(12).tolist()
    [1.0, 1.0, -1.0, 1.0, -1.0, 1.0]
    """

    degree: int = 2
    bias: bool = True
    bound: float = 1.0
    without: tuple[Monomial, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings and bring them to one form."""
        object.__setattr__(self, "degree", _whole(self.degree, "degree", least=1))
        object.__setattr__(self, "bias", bool(self.bias))
        object.__setattr__(self, "bound", _positive(self.bound, "bound"))
        # Sorted and without repeats, so that equal maps have equal specs.
        without = {tuple(sorted(_whole(c, "a coordinate") for c in m)) for m in self.without}
        object.__setattr__(self, "without", tuple(sorted(without, key=lambda m: (len(m), m))))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The monomials left out, readable.

        Examples
        --------
        >>> Polynomial(without=((3, 3), (0, 4))).dropped
        ('x0·x4', 'x3²')
        """
        return tuple(monomial_name(m) for m in self.without)

    def independent(self, X: ArrayLike) -> "Polynomial":
        """Return this map without the monomials that say nothing new on the data.

        Monomials are taken in order and one is kept unless it lies, to a relative 1e-9, in the
        span of those kept before it. A two-valued coordinate, for one, has a square that is an
        affine copy of itself, which would leave the Gram matrix singular for ever.

        Parameters
        ----------
        X : array_like of shape (n, context_dim)
            Contexts that vary as those to come will: what is constant here is dropped.

        Returns
        -------
        Polynomial
            The smaller map; its ``dropped`` names what is gone.

        Examples
        --------
        >>> X = [[0, 0.1], [1, 0.2], [0, -0.3], [1, 0.4], [0, 0.9], [1, -0.7]]
        >>> Polynomial(degree=2).independent(X).dropped
        ('x0²',)
        """
        return _independent(self, self, X)

    def monomials(self, context_dim: int) -> list[Monomial]:
        """Return the features in order, each as the coordinates it multiplies.

        Examples
        --------
        >>> Polynomial(degree=2, bias=False).monomials(2)
        [(0,), (1,), (0, 0), (0, 1), (1, 1)]
        """
        count = math.comb(context_dim + self.degree, self.degree)
        if count > MAX_MONOMIALS:
            raise InvalidParameterError(
                f"degree {self.degree} of {context_dim} coordinates makes {count:,} features, "
                f"more than {MAX_MONOMIALS:,}; lower the degree or the number of coordinates"
            )
        degrees = range(0 if self.bias else 1, self.degree + 1)
        everything = list(
            chain.from_iterable(
                combinations_with_replacement(range(context_dim), degree) for degree in degrees
            )
        )
        unknown = set(self.without).difference(everything)
        if unknown:
            raise InvalidParameterError(
                f"cannot leave out {', '.join(map(monomial_name, sorted(unknown)))}: no such "
                f"monomial in degree {self.degree} of {context_dim} coordinates"
                + ("" if self.bias else " without bias")
            )
        kept = [m for m in everything if m not in set(self.without)]
        if not kept:
            raise InvalidParameterError("every monomial is left out; keep at least one")
        return kept

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe this map."""
        return {
            "kind": "polynomial",
            "degree": self.degree,
            "bias": self.bias,
            "bound": self.bound,
            "without": [list(m) for m in self.without],
        }


@dataclass(frozen=True, init=False)
class Scaled:
    """Shift and stretch each coordinate, then apply another map: x ↦ inner((x − center)/scale).

    Parameters
    ----------
    inner : Identity or Polynomial
        The map of the scaled context; its ``bound`` is what scaled coordinates must keep to.
    center, scale : array_like of shape (context_dim,)
        One number for each coordinate; scales are above zero.
    outside : {"error", "clip"}
        What becomes of a coordinate beyond the bound: an `InvalidContextError`, or the bound.

    Examples
    --------
    >>> features = bind(Scaled(Identity(), center=[10, 0], scale=[5, 1]), 2, n_arms=2)
    >>> (features.row([15, -0.5]) * 2**0.5).round(12).tolist()
    [1.0, -0.5]
    """

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
        if outside not in get_args(Outside):
            raise InvalidParameterError(f'outside must be "error" or "clip", not {outside!r}')
        pair: list[Floats] = []
        for name, given in (("center", center), ("scale", scale)):
            values = _numbers(given, name, InvalidParameterError)
            if values.ndim != 1 or not np.isfinite(values).all():
                raise InvalidParameterError(f"{name} must be a flat list of finite numbers")
            pair.append(values)
        if pair[0].size != pair[1].size:
            raise InvalidParameterError(
                f"center has {pair[0].size} coordinates but scale has {pair[1].size}"
            )
        if not (pair[1] > 0).all():
            c = int(np.argmin(pair[1] > 0))
            raise InvalidParameterError(
                f"the scale of coordinate {c} is {pair[1][c]:g}; scales must be above zero"
            )
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "center", tuple(pair[0].tolist()))
        object.__setattr__(self, "scale", tuple(pair[1].tolist()))
        object.__setattr__(self, "outside", outside)

    @classmethod
    def fit(
        cls,
        X: ArrayLike,
        inner: Identity | Polynomial | None = None,
        *,
        method: Literal["range", "standard"] = "range",
        margin: float = 0.0,
        outside: Outside = "error",
    ) -> "Scaled":
        """Choose center and scale so that every row of ``X`` keeps the promise.

        Parameters
        ----------
        X : array_like of shape (n, context_dim)
            Contexts like those to come.
        inner : Identity or Polynomial, optional
            The map of the scaled context; `Identity` by default.
        method : {"range", "standard"}
            "range" fills the box: the centre is the middle of the range of each coordinate and
            the scale half its width. "standard" gives every coordinate mean zero and the same
            spread, then shrinks all alike until the farthest point just fits.
        margin : float
            Room left for values beyond those of ``X``, as a share of the scale.
        outside : {"error", "clip"}
            As in `Scaled`.

        Returns
        -------
        Scaled
            The fitted map. A constant coordinate gets scale 1 and maps to zero.

        Examples
        --------
        >>> Scaled.fit([[0, 7], [10, 7]])
        Scaled(inner=Identity(bound=1.0), center=(5.0, 7.0), scale=(5.0, 1.0), outside='error')
        """
        contexts = _table(X)
        inner = Identity() if inner is None else inner
        if not (isinstance(cast(object, margin), int | float) and 0 <= margin < math.inf):
            raise InvalidParameterError(f"margin must be a number, zero or more, not {margin!r}")
        low, high = contexts.min(axis=0), contexts.max(axis=0)
        constant = low == high
        if method not in ("range", "standard"):
            raise InvalidParameterError(f'method must be "range" or "standard", not {method!r}')
        # Data near the ends of float64 may overflow, which `Scaled` refuses; constant columns
        # divide by zero and are replaced.
        with np.errstate(all="ignore"):
            center: Floats = low / 2 + high / 2 if method == "range" else contexts.mean(axis=0)
            spread = np.maximum(high - center, center - low)  # exact, unlike (high − low)/2
            if method == "standard":
                # In units of the farthest point, so that squares do not underflow.
                deviation = np.where(constant, np.inf, ((contexts - center) / spread).std(axis=0))
                spread = spread * (deviation / deviation.min())
            scale = spread * (1 + margin) / inner.bound
        constant |= scale < np.finfo(np.float64).tiny  # too narrow to divide by accurately
        return cls(inner, np.where(constant, low, center), np.where(constant, 1.0, scale), outside)

    def independent(self, X: ArrayLike) -> "Scaled":
        """Return this map with its polynomial cut down as in `Polynomial.independent`.

        Examples
        --------
        >>> X = [[0, 1], [1, 2], [0, 3], [1, 4], [0, 9], [1, 7]]
        >>> Scaled.fit(X, Polynomial()).independent(X).dropped
        ('x0²',)
        """
        if isinstance(self.inner, Identity):
            raise InvalidParameterError("only a Polynomial has monomials to drop")
        inner = _independent(self, self.inner, X)
        return Scaled(inner, self.center, self.scale, self.outside)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The monomials the inner map leaves out, readable.

        Examples
        --------
        >>> Scaled(Polynomial(without=((),)), [0], [1]).dropped
        ('1',)
        """
        return self.inner.dropped if isinstance(self.inner, Polynomial) else ()

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe this map."""
        return {
            "kind": "scaled",
            "inner": self.inner.to_spec(),
            "center": list(self.center),
            "scale": list(self.scale),
            "outside": self.outside,
        }


@dataclass(frozen=True)
class Custom:
    """Any function of a context, checked each time it is used.

    Parameters
    ----------
    function : callable
        Takes a context, a float64 array of its own of shape (context_dim,), and returns as many
        numbers each time, of Euclidean norm at most one.
    n_features : int, optional
        How many numbers it returns; found by a call on the zero context if not given.
    name : str, optional
        What to call it in messages and files; the function's own name by default. Code is not
        saved: a saved policy remembers this name and asks for the function when it is loaded.

    Examples
    --------
    >>> features = bind(Custom(lambda x: [1, x[0]] / np.sqrt(2), name="first"), 3, n_arms=2)
    >>> features.n_features
    2
    """

    function: Callable[[Floats], ArrayLike]
    n_features: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the settings and bring them to one form."""
        if not callable(self.function):
            raise InvalidParameterError(
                f"a custom feature map is a function, not {self.function!r}"
            )
        if self.n_features is not None:
            object.__setattr__(self, "n_features", _whole(self.n_features, "n_features", least=1))
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
        """Return the features of a context, checked."""
        # A copy: the function may write to what it is given, and the context is not ours.
        return self._checked(self.function(x.copy()))

    def _checked(self, given: ArrayLike) -> Floats:
        values = _numbers(given, f"the features of map {self.name!r}", InvalidFeaturesError)
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
        """Return plain JSON values that describe this map."""
        return {"kind": "custom", "name": self.name, "n_features": self.n_features}


FeatureMap: TypeAlias = Identity | Polynomial | Scaled | Custom
MapLike: TypeAlias = FeatureMap | Callable[[Floats], ArrayLike]


# ------------------------------------------------------------------------ which pair uses which map


@dataclass(frozen=True, init=False)
class Shared:
    """One map for all pairs of arms: the usual choice, and the fastest.

    A map given on its own means the same.

    Parameters
    ----------
    map : feature map or callable
        The map.

    Examples
    --------
    >>> bind(Shared(Identity()), context_dim=3, n_arms=4).n_slots
    1
    """

    kind: ClassVar[str] = "shared"
    map: FeatureMap

    def __init__(self, map: MapLike) -> None:  # noqa: A002 (the word for it)
        object.__setattr__(self, "map", _as_map(map))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        return (self.map,)

    def slot_of(self, i: int, j: int, n_arms: int) -> int:
        """Return the slot of a pair that is known to exist."""
        return 0


@dataclass(frozen=True, init=False)
class PerStage:
    """A map for each stage: map i holds what is known at arm i, and serves each pair (i, j).

    Parameters
    ----------
    maps : sequence of feature maps or callables
        One for each arm but the last, where nothing is left to decide.
    sees : sequence of int, optional
        Where stages reveal parts of the context: map i sees the first ``sees[i]`` coordinates,
        those known once arm i has run. By default each sees the whole context.

    Examples
    --------
    >>> features = bind(PerStage([Identity(), Polynomial()]), context_dim=2, n_arms=3)
    >>> features.dims, features.slot_of(0, 2), features.slot_of(1, 2)
    ((2, 6), 0, 1)

    Two numbers are known from the start, and the second arm adds a third:

    >>> revealed = PerStage([Identity(), Identity()], sees=[2, 3])
    >>> bind(revealed, context_dim=3, n_arms=3).dims
    (2, 3)
    """

    kind: ClassVar[str] = "per_stage"
    maps: tuple[FeatureMap, ...]
    sees: tuple[int, ...] | None = None

    def __init__(self, maps: Sequence[MapLike], sees: Sequence[int] | None = None) -> None:
        object.__setattr__(self, "maps", tuple(_as_map(m) for m in maps))
        if sees is not None:
            sees = tuple(_whole(n, "what a stage sees", least=1) for n in sees)
            if len(sees) != len(self.maps) or list(sees) != sorted(sees):
                raise InvalidParameterError(
                    f"sees needs one number for each of the {len(self.maps)} maps, none smaller "
                    f"than the one before: what is known stays known; not {sees}"
                )
        object.__setattr__(self, "sees", sees)

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        if len(self.maps) != n_arms - 1:
            raise InvalidParameterError(
                f"PerStage needs a map for each arm but the last, {n_arms - 1} for {n_arms} arms; "
                f"there are {len(self.maps)}"
            )
        return self.maps

    def slot_of(self, i: int, j: int, n_arms: int) -> int:
        """Return the slot of a pair that is known to exist."""
        return i


@dataclass(frozen=True, init=False)
class PerPair:
    """A map for each pair of arms, the paper's Φᵢⱼ in full.

    Parameters
    ----------
    maps : mapping of (i, j) to feature map or callable
        One for each pair i < j.

    Examples
    --------
    >>> maps = {(0, 1): Identity(), (0, 2): Identity(), (1, 2): Polynomial()}
    >>> bind(PerPair(maps), context_dim=2, n_arms=3).dims
    (2, 2, 6)
    """

    kind: ClassVar[str] = "per_pair"
    maps: tuple[tuple[tuple[int, int], FeatureMap], ...]

    def __init__(self, maps: Mapping[tuple[int, int], MapLike]) -> None:
        for pair in maps:
            if len(pair) != 2 or not 0 <= _whole(pair[0], "an arm") < _whole(pair[1], "an arm"):
                raise InvalidParameterError(f"a pair of arms is (i, j) with 0 ≤ i < j, not {pair}")
        ordered = tuple(((int(i), int(j)), _as_map(maps[i, j])) for i, j in sorted(maps))
        object.__setattr__(self, "maps", ordered)

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        needed = _pairs(n_arms)
        given = [pair for pair, _ in self.maps]
        if given != needed:
            missing = [pair for pair in needed if pair not in given]
            foreign = [pair for pair in given if pair not in needed]
            raise InvalidParameterError(
                f"PerPair needs a map for each pair of {n_arms} arms"
                + (f"; missing: {missing}" if missing else "")
                + (f"; no such pair: {foreign}" if foreign else "")
            )
        return tuple(m for _, m in self.maps)

    def slot_of(self, i: int, j: int, n_arms: int) -> int:
        """Return the slot of a pair that is known to exist."""
        return i * (2 * n_arms - i - 1) // 2 + (j - i - 1)


Arrangement: TypeAlias = Shared | PerStage | PerPair


# ----------------------------------------------------------------------------------- bound features


@dataclass(frozen=True, slots=True)
class BoundFeatures:
    """Feature maps joined to the size of a context and of a cascade; made by `bind`.

    A policy holds one of these. Distinct maps fill *slots*: one if shared, one for each stage or
    one for each pair. A *row* is the features of all slots side by side.

    Attributes
    ----------
    context_dim : int
        d, the number of coordinates of a context.
    n_arms : int
        K.
    arrangement : Shared, PerStage or PerPair
        Which pair uses which map.
    maps : tuple of feature maps
        The map of each slot.
    dims : tuple of int
        d′ of each slot.
    offsets : tuple of int
        Where each slot begins in a row.
    stages : tuple of BoundFeatures
        Where stages reveal parts of the context: the features at each arm but the last, each of
        what is known there. Else empty.

    Examples
    --------
    >>> features = bind(Identity(), context_dim=4, n_arms=3)
    >>> features.transform([[1, 1, 1, 1], [0, 1, 0, 0]]).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.0, 0.5, 0.0, 0.0]]
    """

    context_dim: int
    n_arms: int
    arrangement: Arrangement
    maps: tuple[FeatureMap, ...] = field(repr=False)
    dims: tuple[int, ...]
    offsets: tuple[int, ...] = field(repr=False)
    width: int = field(repr=False)
    stages: "tuple[BoundFeatures, ...]" = field(repr=False, compare=False)
    _block_slots: tuple[int, ...] = field(repr=False, compare=False)  # the slot of each block
    _customs: tuple[tuple[Custom, int, int, int], ...] = field(repr=False, compare=False)
    _monomials: Monomials = field(repr=False, compare=False)  # of all maps that are built in

    @property
    def maps_in_engine(self) -> Monomials | None:
        """The maps as the engine has them, or None if one is a function of your own."""
        return None if self._customs else self._monomials

    @property
    def sees(self) -> tuple[int, ...] | None:
        """How many coordinates are known at each arm but the last; None if all from the start."""
        return self.arrangement.sees if isinstance(self.arrangement, PerStage) else None

    @property
    def n_slots(self) -> int:
        """The number of slots: 1, K − 1 or K(K − 1)/2."""
        return len(self.maps)

    @property
    def n_features(self) -> int:
        """The largest d′ of all slots, which is the d′ of the paper's confidence radius."""
        return max(self.dims)

    @property
    def shared(self) -> bool:
        """Whether all pairs see the same features, so that they can share Gram matrices."""
        return self.n_slots == 1

    def slot_of(self, i: int, j: int) -> int:
        """Return the slot that the pair of arms (i, j), i < j, uses.

        Examples
        --------
        >>> bind(Identity(), context_dim=4, n_arms=3).slot_of(1, 2)
        0
        """
        if not 0 <= i < j < self.n_arms:
            raise InvalidParameterError(
                f"({i}, {j}) is no pair of the {self.n_arms} arms: it takes 0 ≤ i < j < "
                f"{self.n_arms}"
            )
        return self.arrangement.slot_of(i, j, self.n_arms)

    def context(self, x: ArrayLike) -> Floats:
        """Return one context as a contiguous float64 array, of the right length and finite.

        It is ``x`` itself, not a copy, when ``x`` is such an array already. Whether it keeps the
        maps' promises is for `row` to say.

        Examples
        --------
        >>> bind(Identity(), context_dim=2, n_arms=3).context([1, True])
        array([1., 1.])
        """
        context = np.ascontiguousarray(self._vector(x))
        if not np.isfinite(context).all():
            self._refuse(context, int(np.argmin(np.isfinite(context))) + 1)
        return context

    def row(self, x: ArrayLike) -> Floats:
        """Return the features of one context, all slots side by side, in a fresh array.

        Parameters
        ----------
        x : array_like of shape (context_dim,)
            The context: a list, a tuple or an array of any kind of real number.

        Returns
        -------
        ndarray of shape (width,)
            The features.

        Raises
        ------
        InvalidContextError
            If it has the wrong shape, is not finite, or breaks the promise of a map.
        InvalidFeaturesError
            If a custom map gives what it must not.

        Examples
        --------
        >>> bind(Identity(), context_dim=4, n_arms=3).row([1, 0, 0, -1]).tolist()
        [0.5, 0.0, 0.0, -0.5]
        """
        x = np.require(self._vector(x), requirements=["C", "A"])
        out = np.empty(self.width)
        status = self._monomials.row(x, out)
        if status:
            self._refuse(x, status)
        if self._customs:
            self._fill_customs(x, out)
        return out

    def rows(self, X: ArrayLike) -> Floats:
        """Return the features of many contexts, each row bit for bit that of `row`.

        Parameters
        ----------
        X : array_like of shape (n, context_dim)
            The contexts. All are checked; an error names the first bad row and coordinate.

        Returns
        -------
        ndarray of shape (n, width)
            The features.

        Examples
        --------
        >>> bind(Identity(), context_dim=1, n_arms=3).rows([[1], [-1], [0.5]]).tolist()
        [[1.0], [-1.0], [0.5]]
        """
        contexts = np.require(_numbers(X, "contexts", InvalidContextError), requirements=["C", "A"])
        if contexts.ndim != 2 or contexts.shape[1] != self.context_dim:
            raise InvalidContextError(
                f"contexts form a table of {self.context_dim} columns, one row each; this has "
                f"shape {contexts.shape}"
            )
        out = np.empty((contexts.shape[0], self.width))
        row, status = self._monomials.rows(contexts, out)
        if status:
            self._refuse(contexts[row], status, f"row {row}, ")
        if self._customs:
            for r in range(contexts.shape[0]):
                try:
                    self._fill_customs(contexts[r], out[r])
                except InvalidFeaturesError as error:
                    raise InvalidFeaturesError(f"row {r}: {error}") from error
        return out

    def transform(self, X: ArrayLike, i: int = 0, j: int = 1) -> Floats:
        """Return the features that a pair of arms really uses.

        Parameters
        ----------
        X : array_like of shape (n, context_dim) or (context_dim,)
            Contexts; a single one counts as a table of one row.
        i, j : int
            The pair of arms, i < j; it matters only if maps differ between pairs.

        Returns
        -------
        ndarray of shape (n, d′)
            The features, in rows of norm at most one.

        Examples
        --------
        >>> bind(Identity(), context_dim=4, n_arms=3).transform([1, 0, 0, 1]).tolist()
        [[0.5, 0.0, 0.0, 0.5]]
        """
        slot = self.slot_of(i, j)
        contexts = _numbers(X, "contexts", InvalidContextError)
        rows = self.rows(contexts[None, :] if contexts.ndim == 1 else contexts)
        start = self.offsets[slot]
        return np.ascontiguousarray(rows[:, start : start + self.dims[slot]])

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe these features; equal features, equal specs.

        A custom map is described by name and size only, since its code cannot be saved.

        Examples
        --------
        >>> bind(Identity(), context_dim=4, n_arms=3).to_spec() == {
        ...     "kind": "shared",
        ...     "context_dim": 4,
        ...     "n_arms": 3,
        ...     "maps": [{"kind": "identity", "bound": 1.0}],
        ... }
        True
        """
        return {
            "kind": self.arrangement.kind,
            "context_dim": self.context_dim,
            "n_arms": self.n_arms,
            "maps": [m.to_spec() for m in self.maps],
            **({} if self.sees is None else {"sees": list(self.sees)}),
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> "BoundFeatures":
        """Rebuild features from `to_spec`.

        Raises
        ------
        FeaturesMismatchError
            If a map is custom: pass it as ``features=`` when loading.
        CorruptFileError
            If this is no description of features.

        Examples
        --------
        >>> features = bind(Polynomial(), context_dim=4, n_arms=3)
        >>> BoundFeatures.from_spec(features.to_spec()) == features
        True
        """
        try:
            maps = [map_from_spec(m) for m in spec["maps"]]
            n_arms = _whole(spec["n_arms"], "n_arms", least=2)
            arrangement: Arrangement
            if spec["kind"] == Shared.kind:
                (only,) = maps
                arrangement = Shared(only)
            elif spec["kind"] == PerStage.kind:
                arrangement = PerStage(maps, spec.get("sees"))
            elif spec["kind"] == PerPair.kind:
                arrangement = PerPair(dict(zip(_pairs(n_arms), maps, strict=True)))
            else:
                raise ValueError(f"unknown kind {spec['kind']!r}")
            return bind(arrangement, spec["context_dim"], n_arms)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(
                f"the stored description of the features makes no sense: {error!r}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `bind` was given, not what it made."""
        return bind, (self.arrangement, self.context_dim, self.n_arms)

    def _vector(self, x: ArrayLike) -> Floats:
        context = _numbers(x, "a context", InvalidContextError)
        if context.shape != (self.context_dim,):
            raise InvalidContextError(
                f"a context is a flat list of {self.context_dim} numbers; this has shape "
                f"{context.shape}"
            )
        return context

    def _fill_customs(self, x: Floats, out: Floats) -> None:
        for custom, start, stop, seen in self._customs:
            out[start:stop] = custom(x[:seen])

    def _refuse(self, x: Floats, status: int, where: str = "") -> NoReturn:
        """Turn the status of the engine's `Monomials` into an error in words."""
        self._vector(x)  # raises if the trouble is the length
        if status > 0:
            c = status - 1
            raise InvalidContextError(
                f"{where}coordinate {c} is {float(x[c])}; contexts must be finite"
            )
        block, c = divmod(-1 - status, self.context_dim)
        culprit = self.maps[self._block_slots[block]]
        value = float(x[c])
        if isinstance(culprit, Scaled):
            reach = culprit.scale[c] * culprit.inner.bound
            low, high = culprit.center[c] - reach, culprit.center[c] + reach
            raise InvalidContextError(
                f"{where}coordinate {c} is {value:.12g}, outside [{low:.12g}, {high:.12g}], what "
                "the features were scaled for; fit Scaled on wider data or with a margin, or let "
                'it clip with outside="clip"'
            )
        assert not isinstance(culprit, Custom)  # custom maps have no block
        raise InvalidContextError(
            f"{where}coordinate {c} is {value:.12g}, outside the promised "
            f"[{-culprit.bound:.12g}, {culprit.bound:.12g}]; give the feature map a larger bound, "
            "or scale the data with Scaled.fit"
        )


FeaturesLike: TypeAlias = MapLike | Arrangement | BoundFeatures


def bind(features: FeaturesLike, context_dim: int, n_arms: int) -> BoundFeatures:
    """Join feature maps to the size of a context and of a cascade.

    Parameters
    ----------
    features : feature map, callable, Shared, PerStage, PerPair or BoundFeatures
        The maps; a single one is shared by all pairs.
    context_dim : int
        d, the number of coordinates of a context.
    n_arms : int
        K, the number of arms.

    Returns
    -------
    BoundFeatures
        What policies hold.

    Examples
    --------
    >>> bind(Polynomial(degree=2), context_dim=8, n_arms=3).n_features
    45
    """
    context_dim = _whole(context_dim, "context_dim", least=1)
    n_arms = _whole(n_arms, "n_arms", least=2)
    if isinstance(features, BoundFeatures):
        if (features.context_dim, features.n_arms) != (context_dim, n_arms):
            raise InvalidParameterError(
                f"these features are bound to contexts of {features.context_dim} coordinates and "
                f"{features.n_arms} arms, not {context_dim} and {n_arms}"
            )
        return features
    arrangement = features if isinstance(features, Arrangement) else Shared(features)
    given = arrangement.slots(n_arms)
    sees = [context_dim] * len(given)
    staged = isinstance(arrangement, PerStage) and arrangement.sees is not None
    if isinstance(arrangement, PerStage) and arrangement.sees is not None:
        sees = list(arrangement.sees)
        if sees[-1] != context_dim:
            raise InvalidParameterError(
                f"the last map sees {sees[-1]} coordinates, all that can be known before the last "
                f"arm; so context_dim must be {sees[-1]}, not {context_dim}"
            )
    maps = tuple(
        m.resolved(seen) if isinstance(m, Custom) else m
        for m, seen in zip(given, sees, strict=True)
    )
    blocks: list[Block] = []
    slots: list[int] = []
    dims: list[int] = []
    offsets: list[int] = []
    customs: list[tuple[Custom, int, int, int]] = []
    width = 0
    for slot, m in enumerate(maps):
        offsets.append(width)
        if isinstance(m, Custom):
            assert m.n_features is not None  # resolved() saw to it
            dims.append(m.n_features)
            customs.append((m, width, width + m.n_features, sees[slot]))
        else:
            inner = m.inner if isinstance(m, Scaled) else m
            center, scale = _affine(m, sees[slot])
            monomials = inner.monomials(sees[slot])
            unseen = context_dim - sees[slot]  # on an infinite scale whatever is there is nothing
            clip = isinstance(m, Scaled) and m.outside == "clip"
            blocks.append(
                (
                    width,
                    [list(monomial) for monomial in monomials],
                    inner.bound,
                    math.inf if clip else inner.bound * (1 + SLACK),
                    1 / _largest_norm(inner.bound, monomials),
                    [*center, *[0.0] * unseen],
                    [*scale, *[math.inf] * unseen],
                )
            )
            dims.append(len(monomials))
            slots.append(slot)
        width += dims[-1]
    return BoundFeatures(
        context_dim=context_dim,
        n_arms=n_arms,
        arrangement=arrangement,
        maps=maps,
        dims=tuple(dims),
        offsets=tuple(offsets),
        width=width,
        stages=tuple(bind(m, seen, 2) for m, seen in zip(maps, sees, strict=True))
        if staged
        else (),
        _block_slots=tuple(slots),
        _customs=tuple(customs),
        _monomials=Monomials(context_dim, width, blocks),
    )


# ------------------------------------------------------------------------------------------ helpers


def monomial_name(monomial: Sequence[int]) -> str:
    """Write a monomial, given as the coordinates it multiplies, for people to read.

    Examples
    --------
    >>> monomial_name((0, 3, 3)), monomial_name(())
    ('x0·x3²', '1')
    """
    powers = {c: list(monomial).count(c) for c in monomial}
    superscript = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    return (
        "·".join(
            f"x{c}" + ("" if power == 1 else str(power).translate(superscript))
            for c, power in powers.items()
        )
        or "1"
    )


def _independent(features: Polynomial | Scaled, polynomial: Polynomial, X: ArrayLike) -> Polynomial:
    """Cut ``polynomial``, the monomials of ``features``, down to those independent on ``X``."""
    contexts = _table(X)
    phi = bind(features, contexts.shape[1], 2).rows(contexts)
    kept = _independent_columns(phi)
    if not kept:
        raise InvalidParameterError(
            "every monomial is zero on these data, so none is left; give data that vary"
        )
    monomials = polynomial.monomials(contexts.shape[1])
    gone = tuple(m for k, m in enumerate(monomials) if k not in kept)
    return replace(polynomial, without=(*polynomial.without, *gone))


def _independent_columns(columns: Floats) -> set[int]:
    """Return the columns not in the span of those kept before them, by Gram–Schmidt.

    Each column is orthogonalised twice, which is as good as exactly ("twice is enough", Kahan).
    """
    n, k = columns.shape
    basis = np.empty((n, min(n, k)), order="F")
    kept: set[int] = set()
    for c in range(k):
        norm = math.sqrt(columns[:, c] @ columns[:, c])
        if norm == 0 or len(kept) == n:
            continue
        span = basis[:, : len(kept)]
        rest = columns[:, c] / norm
        for _ in range(2):
            rest = rest - span @ (span.T @ rest)
        left = math.sqrt(rest @ rest)
        if left > DEPENDENT:
            basis[:, len(kept)] = rest / left
            kept.add(c)
    return kept


def _largest_norm(bound: float, monomials: Sequence[Monomial]) -> float:
    """√(Σ bound^(2·degree)): attained where every coordinate is ±bound."""
    try:
        norm = math.sqrt(math.fsum(math.prod([bound] * (2 * len(m))) for m in monomials))
    except OverflowError:
        norm = math.inf
    if not (0 < norm < math.inf and 1 / norm < math.inf):
        raise InvalidParameterError(
            f"powers of the bound {bound:g} leave the range of floats; scale the data with "
            "Scaled.fit and use bound=1"
        )
    return norm


def _affine(m: Identity | Polynomial | Scaled, d: int) -> tuple[Sequence[float], Sequence[float]]:
    if not isinstance(m, Scaled):
        return [0.0] * d, [1.0] * d
    if len(m.center) != d:
        raise InvalidParameterError(
            f"this Scaled map is for contexts of {len(m.center)} coordinates, not {d}"
        )
    return m.center, m.scale


def _as_map(candidate: MapLike) -> FeatureMap:
    if isinstance(candidate, FeatureMap):
        return candidate
    if isinstance(candidate, type):
        raise InvalidParameterError(
            f"{candidate.__name__} is a class; give an instance of it: {candidate.__name__}(…)"
        )
    return Custom(candidate)


def map_from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    """Rebuild one map from its own `to_spec`.

    Raises
    ------
    FeaturesMismatchError
        If the map is custom: its code is not in the description.
    InvalidParameterError
        If this describes no map.

    Examples
    --------
    >>> map_from_spec({"kind": "polynomial", "degree": 3}) == Polynomial(degree=3)
    True
    """
    try:
        return _map_from_spec(spec)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidParameterError(f"{spec!r} describes no feature map: {error!r}") from error


def _map_from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    rest = {key: value for key, value in spec.items() if key != "kind"}
    match spec["kind"]:
        case "identity":
            return Identity(**rest)
        case "polynomial":
            return Polynomial(**rest)
        case "scaled":
            inner = _map_from_spec(rest.pop("inner"))
            return Scaled(cast(Identity | Polynomial, inner), **rest)
        case "custom":
            raise FeaturesMismatchError(
                f"this was saved with the custom feature map {spec['name']!r} "
                f"({spec['n_features']} features), whose code is not in the file; pass it again "
                "as features= when loading"
            )
        case unknown:
            raise ValueError(f"unknown feature map {unknown!r}")


def _pairs(n_arms: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]


def _numbers(given: ArrayLike, what: str, error: type[InvalidInputError]) -> Floats:
    """Return float64 numbers, copied only if they were not, or raise ``error``."""
    try:
        array = np.asarray(given)
        if array.dtype is FLOAT64:
            return array
        # Text is refused even where numpy could parse it: it is a sign of unprepared data.
        # Object arrays come from tables of mixed columns and may well hold numbers only.
        text = array.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in array.flat)
        if array.dtype.kind not in "biufO" or text:
            raise TypeError(f"of type {array.dtype}")
        with np.errstate(over="ignore"):  # a long double may become inf, which is refused later
            return array.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise error(f"{what} must be real numbers ({reason})") from None


def _table(X: ArrayLike) -> Floats:
    """Return data to fit on: a table, not empty, finite."""
    contexts = _numbers(X, "contexts", InvalidContextError)
    if contexts.ndim != 2 or 0 in contexts.shape:
        raise InvalidContextError(
            "contexts to fit on form a table with at least one row and one column; this has "
            f"shape {contexts.shape}"
        )
    bad = np.argwhere(~np.isfinite(contexts))
    if bad.size:
        row, c = bad[0].tolist()
        raise InvalidContextError(
            f"row {row}, coordinate {c} is {contexts[row, c]}; contexts must be finite"
        )
    return contexts


def _positive(value: float, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidParameterError(f"{name} must be a finite number above zero, not {value!r}")
    return number


def _whole(value: SupportsIndex, name: str, least: int = 0) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise InvalidParameterError(
            f"{name} must be a whole number, {least} or more, not {value!r}"
        )
    return number
