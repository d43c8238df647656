"""Feature maps joined to the size of a context and of a cascade."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from stopwise.checks import Floats, integer, numbers
from stopwise.engine.native import Monomials
from stopwise.errors import (
    CorruptFileError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidParameterError,
)
from stopwise.features.arrangements import Answers, Arrangement, PerPair, PerStage, Shared, pairs
from stopwise.features.maps import (
    SLACK,
    Custom,
    FeatureMap,
    Identity,
    MapLike,
    Monomial,
    Polynomial,
    Scaled,
    Standard,
    map_from_spec,
)

Values = Sequence[float]
# What the engine takes of a map: offset, monomials, bound, limit, factors, center, scale.
Block = tuple[int, Sequence[Sequence[int]], float, float, Values, Values, Values]


@dataclass(frozen=True, slots=True)
class BoundFeatures:
    """Feature maps joined to the size of a context and of a cascade; created by `bind`.

    A policy holds one of these. Distinct maps fill *slots*: one if shared, one for each stage or
    one for each pair. A *row* is the features of all slots side by side. ``context_dim`` counts
    all that stages reveal, too. ``sees`` says how many numbers are known at each arm but the last,
    None if all are from the start; else ``stages`` are the features at each of these arms, of what
    is known there.

    Examples
    --------
    >>> features = bind(Identity(), context_dim=4, n_arms=3)
    >>> features.transform([[1, 1, 1, 1], [0, 1, 0, 0]]).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.0, 0.5, 0.0, 0.0]]
    """

    context_dim: int
    n_arms: int
    arrangement: Arrangement  # which pair uses which map
    maps: tuple[FeatureMap, ...] = field(repr=False)  # of each slot
    dims: tuple[int, ...]  # d′ of each slot
    offsets: tuple[int, ...] = field(repr=False)  # where each slot begins in a row
    linear: tuple[int, ...] = field(repr=False)  # features that come first and are no products
    width: int = field(repr=False)  # of a row
    sees: tuple[int, ...] | None = field(repr=False)
    stages: "tuple[BoundFeatures, ...]" = field(repr=False, compare=False)
    _customs: tuple[tuple[Custom, int, int, int], ...] = field(repr=False, compare=False)
    _monomials: Monomials = field(repr=False, compare=False)  # of all maps that are built in

    @property
    def maps_in_engine(self) -> Monomials | None:
        """The maps as the engine has them, or None if the engine cannot apply them to a context."""
        return None if self._customs or self.sees is not None else self._monomials

    @property
    def scales_itself(self) -> bool:
        """Whether a policy fits these features to its first rounds."""
        return all(isinstance(m, Standard) for m in self.maps)

    def fitted(self, known: Sequence[Floats], degree: int) -> "BoundFeatures":
        """Return these features with every `Standard` map fitted to what its slot has seen."""
        maps = [
            m.fit(X, degree) if isinstance(m, Standard) else m
            for m, X in zip(self.maps, known, strict=True)
        ]
        return bind(self._arranged(maps), self.starts_with, self.n_arms)

    @property
    def starts_with(self) -> int:
        """How many numbers a round begins with."""
        if not isinstance(self.arrangement, Answers):
            return self.context_dim
        return self.context_dim - sum(self.arrangement.revealed(self.n_arms))

    def _arranged(self, maps: Sequence[FeatureMap]) -> Arrangement:
        """Return the arrangement with other maps."""
        reveals = self.arrangement.reveals if isinstance(self.arrangement, Answers) else 0
        return _arrange(self.arrangement.kind, maps, self.n_arms, reveals)

    @property
    def n_features(self) -> int:
        """The largest d′ of all slots, which is the d′ of the paper's confidence radius."""
        return max(self.dims)

    def slot_of(self, i: int, j: int) -> int:
        """Return the slot that the pair of arms (i, j), i < j, uses."""
        if not 0 <= i < j < self.n_arms:
            raise InvalidParameterError(
                f"({i}, {j}) is no pair of the {self.n_arms} arms: it takes 0 ≤ i < j < "
                f"{self.n_arms}"
            )
        if isinstance(self.arrangement, PerPair):
            return pairs(self.n_arms).index((i, j))
        return 0 if isinstance(self.arrangement, Shared) else i

    def row(self, x: ArrayLike) -> Floats:
        """Return the features of one context, all slots side by side, in a fresh array.

        `InvalidContextError` if it has the wrong shape, is not finite, or lies outside the bound of
        a map; `InvalidFeaturesError` if a custom map gives what it must not.
        """
        self._check_complete()
        context = numbers("a context", x, InvalidContextError)
        if context.shape != (self.context_dim,):
            raise InvalidContextError(
                f"a context is a flat list of context_dim={self.context_dim} numbers; this has "
                f"shape {context.shape}"
            )
        context = context.copy()  # in the form that the engine reads; np.require is slow
        out = np.empty(self.width)
        _, status = self._monomials.rows(context[None], out[None])
        if status:
            self._refuse(context, status)
        self._fill_customs(context, out)
        return out

    def rows(self, X: ArrayLike) -> Floats:
        """Return the features of many contexts, each row bit for bit that of `row`.

        All contexts are checked; an error names the first bad row and coordinate.
        """
        self._check_complete()
        contexts = np.require(numbers("contexts", X, InvalidContextError), requirements=["C", "A"])
        if contexts.ndim != 2 or contexts.shape[1] != self.context_dim:
            raise InvalidContextError(
                f"contexts form a table of {self.context_dim} columns, one row each; this has "
                f"shape {contexts.shape}"
            )
        out = np.empty((contexts.shape[0], self.width))
        row, status = self._monomials.rows(contexts, out)
        if status:
            self._refuse(contexts[row], status, row)
        for r in range(contexts.shape[0] if self._customs else 0):
            try:
                self._fill_customs(contexts[r], out[r])
            except InvalidFeaturesError as error:
                raise InvalidFeaturesError(f"row {r}: {error}") from error
        return out

    def transform(self, X: ArrayLike, i: int = 0, j: int = 1) -> Floats:
        """Return the features that a pair of arms really uses, shape (n, d′), norms at most one.

        A single context counts as a table of one row. The pair (i, j) matters only if maps differ
        between pairs.
        """
        slot = self.slot_of(i, j)
        rows = self.rows(np.atleast_2d(numbers("contexts", X, InvalidContextError)))
        start = self.offsets[slot]
        return np.ascontiguousarray(rows[:, start : start + self.dims[slot]])

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe these features; equal features, equal specs.

        A custom map is described by name and size only, since its code cannot be saved.
        """
        spec: dict[str, Any] = {
            "kind": self.arrangement.kind,
            "context_dim": self.starts_with,
            "n_arms": self.n_arms,
            "maps": [m.to_spec() for m in self.maps],
        }
        if isinstance(self.arrangement, Answers):
            spec["reveals"] = list(self.arrangement.revealed(self.n_arms))
        return spec

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> "BoundFeatures":
        """Rebuild features from `to_spec`.

        `FeaturesMismatchError` if a map is custom: pass it as ``features=`` when loading.
        `CorruptFileError` if this is no description of features.
        """
        try:
            maps = [map_from_spec(m) for m in spec["maps"]]
            n_arms = integer("n_arms", spec["n_arms"], least=2)
            arrangement = _arrange(spec["kind"], maps, n_arms, spec.get("reveals"))
            return bind(arrangement, spec["context_dim"], n_arms)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(
                f"the stored description of the features makes no sense: {error!r}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `bind`, not what it created."""
        return bind, (self._arranged(self.maps), self.starts_with, self.n_arms)

    def _check_complete(self) -> None:
        if self.sees is not None:
            raise InvalidContextError(
                "these features see what arms answer and reveal, so a round is decided arm by arm: "
                "use policy.start(x), a Runner or recorded rounds"
            )

    def _fill_customs(self, x: Floats, out: Floats) -> None:
        for custom, start, stop, seen in self._customs:
            out[start:stop] = custom(x[:seen])

    def _refuse(self, x: Floats, status: int, row: int | None = None) -> NoReturn:
        """Turn the status of the engine's `Monomials` into an error in words."""
        if status > 0:
            c = status - 1
            problem = f"is {float(x[c])}; contexts must be finite"
            raise InvalidContextError.at(c, problem, row=row)
        block, c = divmod(-1 - status, self.context_dim)
        refusing = [m for m in self.maps if not isinstance(m, Custom)][block]
        value = f"is {float(x[c]):.12g}"
        if isinstance(refusing, Scaled):
            reach = refusing.scale[c] * refusing.inner.bound
            low, high = refusing.center[c] - reach, refusing.center[c] + reach
            problem = (
                f"{value}, outside [{low:.12g}, {high:.12g}], what the features were scaled for; "
                'fit Scaled on wider data or with a margin, or clip with outside="clip"'
            )
            raise InvalidContextError.at(c, problem, row=row)
        bound = f"{refusing.bound:.12g}"
        problem = f"{value}, outside the promised [-{bound}, {bound}]"
        advice = "give the feature map a larger bound, or scale the data with Scaled.fit"
        raise InvalidContextError.at(c, problem, advice, row)


FeaturesLike: TypeAlias = MapLike | Arrangement | BoundFeatures


def bind(features: FeaturesLike, context_dim: int, n_arms: int) -> BoundFeatures:
    """Join feature maps to the size of a context and of a cascade.

    A single map or function is shared by all pairs. ``context_dim`` is d, the number of coordinates
    of a context; for `Answers`, of what is known before arm 0. ``n_arms`` is K.

    Examples
    --------
    >>> bind(Polynomial(degree=2), context_dim=8, n_arms=3).n_features
    45
    """
    n_arms = integer("n_arms", n_arms, least=2)
    if isinstance(features, BoundFeatures):
        if (features.starts_with, features.n_arms) != (context_dim, n_arms):
            raise InvalidParameterError(
                f"these features are bound to contexts of {features.starts_with} coordinates and "
                f"{features.n_arms} arms, not {context_dim} and {n_arms}"
            )
        return features
    arrangement = features if isinstance(features, Arrangement) else Shared(features)
    given = arrangement.slots(n_arms)
    revealed: tuple[int, ...] | None = None
    if isinstance(arrangement, Answers):
        context_dim = integer("context_dim", context_dim)
        revealed = tuple(context_dim + n for n in accumulate(arrangement.revealed(n_arms)))
        context_dim = revealed[-1]
        sees = tuple(seen + arm * (arm + 1) // 2 for arm, seen in enumerate(revealed))
    else:
        scaled = all(isinstance(m, Standard) for m in given)  # which have a constant
        context_dim = integer("context_dim", context_dim, least=0 if scaled else 1)
        sees = (context_dim,) * len(given)
    norms = [m.norm(n) for m, n in zip(given, sees, strict=True) if isinstance(m, Standard)]
    maps: list[FeatureMap] = []
    dims: list[int] = []
    blocks: list[Block] = []
    linear: list[int] = []
    customs: list[tuple[Custom, int, int, int]] = []
    if 0 < len(norms) < len(given):
        raise InvalidParameterError(
            "Standard scales itself only where every map is Standard: use Standard() for all of "
            "them, or Scaled.fit for these"
        )
    if norms:  # one number for all maps, as one ridge serves them
        standard = [m for m in given if isinstance(m, Standard)]
        given = [replace(m, size=m.size or 1 / max(norms)) for m in standard]
    for m, seen in zip(given, sees, strict=True):
        offset = sum(dims)
        if isinstance(m, Custom):
            maps.append(custom := m.resolved(seen))
            dims.append(custom.n_features or 0)
            customs.append((custom, offset, offset + dims[-1], seen))
            linear.append(dims[-1])
        else:
            maps.append(m)
            blocks.append(_block(m, offset, seen))
            dims.append(len(blocks[-1][1]))
            linear.append(sum(len(monomial) <= 1 for monomial in blocks[-1][1]))
    return BoundFeatures(
        context_dim=context_dim,
        n_arms=n_arms,
        arrangement=arrangement,
        maps=tuple(maps),
        dims=tuple(dims),
        offsets=tuple(sum(dims[:slot]) for slot in range(len(dims))),
        linear=tuple(linear),
        width=sum(dims),
        sees=revealed,
        stages=() if revealed is None else tuple(map(bind, maps, sees, [2] * len(maps))),
        _customs=tuple(customs),
        _monomials=Monomials(context_dim, sum(dims), blocks if revealed is None else []),
    )


def _arrange(kind: str, maps: Sequence[FeatureMap], n_arms: int, reveals: Any) -> Arrangement:
    return {
        Shared.kind: lambda: Shared(*maps),
        PerStage.kind: lambda: PerStage(maps),
        Answers.kind: lambda: Answers(reveals, maps),
        PerPair.kind: lambda: PerPair(dict(zip(pairs(n_arms), maps, strict=True))),
    }[kind]()


def _block(m: Identity | Polynomial | Scaled | Standard, offset: int, seen: int) -> Block:
    """Return a built-in map as the engine takes it."""
    inner = m.inner if isinstance(m, Scaled) else m
    center, scale, limit = [0.0] * seen, [1.0] * seen, inner.bound * (1 + SLACK)
    if isinstance(m, Scaled):
        center, scale = list(m.center), list(m.scale)
    elif isinstance(m, Standard):
        center, scale = list(m.center) or center, list(m.scale) or scale
    if len(center) != seen:
        raise InvalidParameterError(
            f"this {type(m).__name__} map is for contexts of {len(center)} coordinates, not {seen}"
        )
    if isinstance(m, Standard) or (isinstance(m, Scaled) and m.outside == "clip"):
        limit = math.inf
    monomials = inner.monomials(seen)
    if isinstance(inner, Standard):
        factors = [(inner.size or 1.0) * inner.weights[len(monomial)] for monomial in monomials]
    else:
        factors = [1 / _largest_norm(inner.bound, monomials)] * len(monomials)
    return offset, [list(one) for one in monomials], inner.bound, limit, factors, center, scale


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
