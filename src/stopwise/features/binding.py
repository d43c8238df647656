"""Feature maps joined to the size of a context and of a cascade."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.checks import integer, numbers
from stopwise.engine import native
from stopwise.errors import (
    CorruptFileError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidParameterError,
)
from stopwise.features.assignment import Assignment, PerPair, PerStage, Shared, pairs
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
    check_count,
    map_from_spec,
)

# A map as the engine takes it: monomials, bound, limit, factors, center, scale.
Monomials: TypeAlias = tuple[
    Sequence[Sequence[int]], float, float, Sequence[float], Sequence[float], Sequence[float]
]
# The same for a `Standard` map: degree, center, scale, two-valued coordinates, size.
Scaling: TypeAlias = tuple[int, Sequence[float], Sequence[float], Sequence[int], float | None]


@dataclass(frozen=True, slots=True)
class Stages:
    """What the stages of a cascade reveal.

    ``reveals`` says how many numbers each arm but the last adds to the context, ``answers`` whether
    maps also see which of the answers so far agree.
    """

    reveals: tuple[int, ...]
    answers: bool = True


@dataclass(frozen=True, slots=True)
class BoundFeatures:
    """Feature maps joined to the size of a context and of a cascade; created by `bind`.

    A policy holds one of these. Distinct maps fill *slots*: one if shared, one for each stage or
    one for each pair. A *row* is the features of all slots side by side. ``starts_with`` counts the
    numbers known before the first arm, ``context_dim`` all that stages reveal, too.

    Examples
    --------
    >>> features = bind(Identity(), context_dim=4, n_arms=3)
    >>> features.transform([[1, 1, 1, 1], [0, 1, 0, 0]]).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.0, 0.5, 0.0, 0.0]]
    """

    starts_with: int
    n_arms: int
    assignment: Assignment  # which pair uses which map
    stages: Stages | None  # None: the complete context is known from the start
    maps: tuple[FeatureMap, ...] = field(repr=False)  # of each slot
    in_engine: native.FeatureMaps = field(repr=False, compare=False)

    @property
    def context_dim(self) -> int:
        """How many numbers a context has in the end."""
        return self.starts_with + (0 if self.stages is None else sum(self.stages.reveals))

    @property
    def dims(self) -> tuple[int, ...]:
        """d′ of each slot."""
        return tuple(self.in_engine.dims)

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.in_engine.width

    @property
    def n_features(self) -> int:
        """The largest d′ of all slots, which is the d′ of the paper's confidence radius."""
        return max(self.dims)

    @property
    def scale_themselves(self) -> bool:
        """Whether a policy fits these features to its first rounds."""
        return self.in_engine.scale_themselves

    def known_at(self, arm: int) -> int:
        """Return how many numbers of the context are known at an arm."""
        if self.stages is None:
            return self.context_dim
        return self.starts_with + sum(self.stages.reveals[: arm + 1])

    def fitted(self, maps: native.FeatureMaps) -> "BoundFeatures":
        """Return these features with `Standard` maps as the engine has fitted them."""
        fitted = [
            m if scaling is None else _standard(scaling)
            for m, scaling in zip(self.maps, maps.standards(), strict=True)
        ]
        assignment = _assigned(self.assignment.kind, fitted, self.n_arms)
        return replace(self, assignment=assignment, maps=tuple(fitted), in_engine=maps)

    def slot_of(self, i: int, j: int) -> int:
        """Return the slot that the pair of arms (i, j), i < j, uses."""
        if not 0 <= i < j < self.n_arms:
            raise InvalidParameterError(
                f"({i}, {j}) is no pair of the {self.n_arms} arms: it takes 0 ≤ i < j < "
                f"{self.n_arms}"
            )
        return _slot_of(self.assignment, i, j, self.n_arms)

    # -- contexts ---------------------------------------------------------------------------------

    def context(self, x: ArrayLike) -> Floats:
        """Return a complete context as the engine reads it; `InvalidContextError` if invalid."""
        self._check_complete()
        context = numbers("a context", x, InvalidContextError)
        if context.shape != (self.context_dim,):
            raise InvalidContextError(
                f"a context is a flat list of context_dim={self.context_dim} numbers; this has "
                f"shape {context.shape}"
            )
        return context.copy()  # in the form that the engine reads; np.require is slow

    def contexts(self, X: ArrayLike) -> Floats:
        """Return a table of contexts as the engine reads it, with all that stages reveal."""
        contexts = np.require(numbers("contexts", X, InvalidContextError), requirements=["C", "A"])
        if contexts.ndim != 2 or contexts.shape[1] != self.context_dim:
            revealed = "" if self.stages is None else ", with what stages reveal"
            raise InvalidContextError(
                f"contexts form a table of {self.context_dim} columns{revealed}, one row each; "
                f"this has shape {contexts.shape}"
            )
        return contexts

    def row(self, x: ArrayLike) -> Floats:
        """Return the features of one context, all slots side by side, in a fresh array.

        `InvalidContextError` if it has the wrong shape, is not finite, or lies outside the bound of
        a map; `InvalidFeaturesError` if a custom map gives what it must not.
        """
        context = self.context(x)
        out = np.empty((1, self.width))
        refused = self.in_engine.rows(context[None], out)
        if refused is not None:
            self.refuse(context, *refused[1:])
        self._fill_customs(context, out[0])
        return out[0]

    def rows(self, X: ArrayLike) -> Floats:
        """Return the features of many contexts, each row bit for bit that of `row`.

        All contexts are checked; an error names the first bad row and coordinate.
        """
        self._check_complete()
        contexts = self.contexts(X)
        out = np.empty((len(contexts), self.width))
        refused = self.in_engine.rows(contexts, out)
        if refused is not None:
            row, slot, coordinate, finite = refused
            self.refuse(contexts[row], slot, coordinate, finite, row)
        for r in range(0 if self.in_engine.complete else len(contexts)):
            try:
                self._fill_customs(contexts[r], out[r])
            except InvalidFeaturesError as error:
                raise InvalidFeaturesError(f"row {r}: {error}") from error
        return out

    def given(self, x: ArrayLike | None) -> Floats:
        """Return what the engine takes of a complete context; `InvalidInputError` if invalid.

        That is the context itself, or its features where a function of the user computes them.
        """
        context = () if x is None else x
        row = self.row(context)  # raises if the context is invalid
        return self.context(context) if self.in_engine.complete else row

    def given_many(self, X: ArrayLike) -> Floats:
        """Return what the engine takes of many complete contexts, in one table."""
        rows = self.rows(X)  # raises if any is invalid
        return self.contexts(X) if self.in_engine.complete else rows

    def transform(self, X: ArrayLike, i: int = 0, j: int = 1) -> Floats:
        """Return the features that a pair of arms really uses, shape (n, d′), norms at most one.

        A single context counts as a table of one row. The pair (i, j) matters only if maps differ
        between pairs. Where stages reveal the context, ``X`` is what is known at arm i: numbers,
        then for every two arms up to it whether they agree (0-1, 0-2, 1-2, 0-3, …).
        """
        slot = self.slot_of(i, j)
        table = np.atleast_2d(numbers("contexts", X, InvalidContextError))
        if self.stages is not None:
            inputs = self.in_engine.input_dims[slot]
            return bind(self.maps[slot], inputs, self.n_arms).rows(table)
        start = sum(self.dims[:slot])
        return np.ascontiguousarray(self.rows(table)[:, start : start + self.dims[slot]])

    def refuse(
        self, x: Floats, slot: int, coordinate: int, finite: bool, row: int | None = None
    ) -> NoReturn:
        """Raise the error about what the map of a slot refuses, as the engine found it."""
        if self.stages is not None and coordinate >= self.known_at(slot):
            raise InvalidContextError(
                f"at arm {slot}, its map refuses whether two answers agree, 0 or 1: give it a "
                "larger bound"
            )
        value = float(x[coordinate])
        if not finite:
            problem = f"is {value}; contexts must be finite"
            raise InvalidContextError.at(coordinate, problem, row=row)
        refusing = self.maps[slot]
        if isinstance(refusing, Scaled):
            reach = refusing.scale[coordinate] * refusing.inner.bound
            low, high = refusing.center[coordinate] - reach, refusing.center[coordinate] + reach
            problem = (
                f"is {value:.12g}, outside [{low:.12g}, {high:.12g}], what the features were "
                'scaled for; fit Scaled on wider data or with a margin, or clip with outside="clip"'
            )
            raise InvalidContextError.at(coordinate, problem, row=row)
        assert isinstance(refusing, Identity | Polynomial)  # others refuse nothing
        bound = f"{refusing.bound:.12g}"
        problem = f"is {value:.12g}, outside the promised [-{bound}, {bound}]"
        advice = "give the feature map a larger bound, or scale the data with Scaled.fit"
        raise InvalidContextError.at(coordinate, problem, advice, row)

    def _check_complete(self) -> None:
        if self.stages is not None:
            raise InvalidContextError(
                "stages reveal the context here, so a round is decided arm by arm: use "
                "policy.start(x), a Runner or recorded rounds"
            )

    def _fill_customs(self, x: Floats, out: Floats) -> None:
        start = 0
        for m, dim in zip(self.maps, self.dims, strict=True):
            if isinstance(m, Custom):
                out[start : start + dim] = m(x)
            start += dim

    # -- as plain values --------------------------------------------------------------------------

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe these features; equal features, equal specs.

        A custom map is described by name and size only, since its code cannot be saved.
        """
        return {
            "kind": self.assignment.kind,
            "context_dim": self.starts_with,
            "n_arms": self.n_arms,
            "maps": [m.to_spec() for m in self.maps],
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any], stages: Stages | None = None) -> "BoundFeatures":
        """Rebuild features from `to_spec`.

        `FeaturesMismatchError` if a map is custom: pass it as ``features=`` when loading.
        `CorruptFileError` if this is no description of features.
        """
        try:
            maps = [map_from_spec(m) for m in spec["maps"]]
            n_arms = integer("n_arms", spec["n_arms"], least=2)
            assignment = _assigned(spec["kind"], maps, n_arms)
            return bind(assignment, spec["context_dim"], n_arms, stages)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(
                f"the stored description of the features makes no sense: {error!r}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `bind`, not what it created."""
        assignment = _assigned(self.assignment.kind, self.maps, self.n_arms)
        return bind, (assignment, self.starts_with, self.n_arms, self.stages)


FeaturesLike: TypeAlias = MapLike | Assignment | BoundFeatures


def bind(
    features: FeaturesLike, context_dim: int, n_arms: int, stages: Stages | None = None
) -> BoundFeatures:
    """Join feature maps to the size of a context and of a cascade.

    A single map or function is shared by all pairs. ``context_dim`` is d, the number of coordinates
    of a context; where ``stages`` reveal it, of what is known before arm 0. ``n_arms`` is K.

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
        features = features.assignment
    assignment = features if isinstance(features, Assignment) else Shared(features)
    known = None
    if stages is not None:
        context_dim = integer("context_dim", context_dim)
        assignment = _of_stages(assignment, stages, n_arms)
        known = [context_dim + n for n in accumulate(stages.reveals)]
    given = assignment.slots(n_arms)
    _check_standard(given)
    if known is None:
        scaled = all(isinstance(m, Standard) for m in given)  # which have a constant
        context_dim = integer("context_dim", context_dim, least=0 if scaled else 1)
        inputs = [context_dim] * len(given)
    else:
        agree = stages is not None and stages.answers
        inputs = [n + (arm * (arm + 1) // 2 if agree else 0) for arm, n in enumerate(known)]
    maps = [
        m.resolved(seen) if isinstance(m, Custom) else m
        for m, seen in zip(given, inputs, strict=True)
    ]
    slots = [_in_engine(m, seen) for m, seen in zip(maps, inputs, strict=True)]
    try:
        in_engine = native.FeatureMaps(
            n_arms,
            context_dim if known is None else known[-1],
            slots,
            [_slot_of(assignment, i, j, n_arms) for i, j in pairs(n_arms)],
            None if known is None or stages is None else (known, stages.answers),
        )
    except ValueError as error:  # Standard(size=…), for instance
        raise InvalidParameterError(f"these feature maps cannot be used: {error}") from None
    scalings = in_engine.standards()
    maps = [m if s is None else _standard(s) for m, s in zip(maps, scalings, strict=True)]
    return BoundFeatures(context_dim, n_arms, assignment, stages, tuple(maps), in_engine)


def stages_of(
    reveals: int | Sequence[int] | None, answers: bool | None, n_arms: int
) -> Stages | None:
    """Return what stages reveal: one number for all, or one for each arm but the last.

    None if the complete context is known from the start.
    """
    if reveals is None:
        return None
    each = reveals if isinstance(reveals, Sequence) else [reveals] * (n_arms - 1)
    counts = tuple(integer("what a stage reveals", n) for n in each)
    return Stages(counts, True if answers is None else bool(answers))


def _of_stages(assignment: Assignment, stages: Stages, n_arms: int) -> PerStage:
    """Return the maps of stages that reveal the context: one each, or the same map for all."""
    if len(stages.reveals) != n_arms - 1:
        raise InvalidParameterError(
            f"reveals= needs what each arm but the last adds, {n_arms - 1} numbers for {n_arms} "
            f"arms; there are {len(stages.reveals)}"
        )
    if isinstance(assignment, Shared):
        assignment = PerStage([assignment.map] * (n_arms - 1))
    if not isinstance(assignment, PerStage):
        raise InvalidParameterError(
            "with reveals=, a map sees what is known at its arm: give one map, or PerStage with a "
            "map for each arm but the last"
        )
    if any(isinstance(m, Custom) for m in assignment.maps):
        raise InvalidParameterError(
            "a function of your own cannot be a feature map where stages reveal the context: use "
            "Standard, Polynomial or Identity, and let stages reveal what your function computes"
        )
    return assignment


def _check_standard(maps: Sequence[FeatureMap]) -> None:
    standard = [isinstance(m, Standard) for m in maps]
    if any(standard) and not all(standard):
        raise InvalidParameterError(
            "Standard scales itself only where every map is Standard: use Standard() for all of "
            "them, or Scaled.fit for these"
        )


def _slot_of(assignment: Assignment, i: int, j: int, n_arms: int) -> int:
    if isinstance(assignment, PerPair):
        return pairs(n_arms).index((i, j))
    return 0 if isinstance(assignment, Shared) else i


def _assigned(kind: str, maps: Sequence[FeatureMap], n_arms: int) -> Assignment:
    if kind == Shared.kind:
        (shared,) = maps
        return Shared(shared)
    if kind == PerStage.kind:
        return PerStage(maps)
    if kind == PerPair.kind:
        return PerPair(dict(zip(pairs(n_arms), maps, strict=True)))
    raise KeyError(kind)


def _in_engine(m: FeatureMap, seen: int) -> int | Monomials | Scaling:
    """Return a map as the engine takes it: of a custom one, how many features it has."""
    if isinstance(m, Custom):
        assert m.n_features is not None  # it is resolved
        return m.n_features
    if isinstance(m, Standard):
        check_count(m.degree, seen)
        if m.center:
            _check_size(m, seen)
        return m.degree, m.center, m.scale, m.two_valued, m.size
    inner = m.inner if isinstance(m, Scaled) else m
    center, scale, limit = [0.0] * seen, [1.0] * seen, inner.bound * (1 + SLACK)
    if isinstance(m, Scaled):
        _check_size(m, seen)
        center, scale = list(m.center), list(m.scale)
        limit = math.inf if m.outside == "clip" else limit
    monomials = inner.monomials(seen)
    factors = [1 / _largest_norm(inner.bound, monomials)] * len(monomials)
    return [list(monomial) for monomial in monomials], inner.bound, limit, factors, center, scale


def _check_size(m: Scaled | Standard, seen: int) -> None:
    if len(m.center) != seen:
        raise InvalidParameterError(
            f"this {type(m).__name__} map is for contexts of {len(m.center)} coordinates, not "
            f"{seen}"
        )


def _standard(scaling: Scaling) -> Standard:
    degree, center, scale, two_valued, size = scaling
    return Standard(degree, tuple(center), tuple(scale), tuple(two_valued), size)


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
