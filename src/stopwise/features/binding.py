"""Bind feature maps to the dimensions of a context and a cascade."""

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

# A map in the engine's format: monomials, bound, limit, factors, center, scale.
Monomials: TypeAlias = tuple[
    Sequence[Sequence[int]], float, float, Sequence[float], Sequence[float], Sequence[float]
]
# The same for a `Standard` map: degree, center, scale, two-valued coordinates, size.
Scaling: TypeAlias = tuple[int, Sequence[float], Sequence[float], Sequence[int], float | None]


@dataclass(frozen=True, slots=True)
class Stages:
    """How many values each stage of a cascade reveals to later stages.

    ``reveals`` contains the number of values that each arm except the last adds to the context.
    ``answers`` is whether the maps also read which of the answers so far agree.
    """

    reveals: tuple[int, ...]
    answers: bool = True


@dataclass(frozen=True, slots=True)
class BoundFeatures:
    """Feature maps bound to the dimensions of a context and a cascade; created by `bind`.

    Each map has a *slot*: there is one slot if the map is shared, otherwise one per stage or one
    per pair. A *row* is the concatenation of the features of all slots. ``initial_dim`` is the
    number of coordinates known before the first arm; ``context_dim`` also counts those revealed
    later.

    Examples
    --------
    >>> features = bind(Identity(), context_dim=4, n_arms=3)
    >>> features.transform([[1, 1, 1, 1], [0, 1, 0, 0]]).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.0, 0.5, 0.0, 0.0]]
    """

    initial_dim: int
    n_arms: int
    assignment: Assignment
    stages: Stages | None  # None if the context is complete from the start
    maps: tuple[FeatureMap, ...] = field(repr=False)  # one per slot
    native_maps: native.FeatureMaps = field(repr=False, compare=False)

    @property
    def context_dim(self) -> int:
        """The number of coordinates of a complete context."""
        return self.initial_dim + (0 if self.stages is None else sum(self.stages.reveals))

    @property
    def dims(self) -> tuple[int, ...]:
        """The number of features d′ of each slot."""
        return tuple(self.native_maps.dims)

    @property
    def width(self) -> int:
        """The number of features in a row."""
        return self.native_maps.width

    @property
    def n_features(self) -> int:
        """The largest d′ of all slots, as used in the paper's confidence radius."""
        return max(self.dims)

    @property
    def self_scaling(self) -> bool:
        """Whether a policy fits these features to its first rounds."""
        return self.native_maps.self_scaling

    def dim_at(self, arm: int) -> int:
        """Return the number of context coordinates that are known once an arm has answered."""
        if self.stages is None:
            return self.context_dim
        return self.initial_dim + sum(self.stages.reveals[: arm + 1])

    def fitted(self, maps: native.FeatureMaps) -> "BoundFeatures":
        """Return a copy with the `Standard` maps that the engine has fitted."""
        fitted = [
            m if scaling is None else _standard(scaling)
            for m, scaling in zip(self.maps, maps.standards(), strict=True)
        ]
        assignment = _assignment(self.assignment.kind, fitted, self.n_arms)
        return replace(self, assignment=assignment, maps=tuple(fitted), native_maps=maps)

    def slot_of(self, i: int, j: int) -> int:
        """Return the slot of the pair of arms (i, j), i < j."""
        if not 0 <= i < j < self.n_arms:
            raise InvalidParameterError(f"invalid pair ({i}, {j}): need 0 ≤ i < j < {self.n_arms}")
        return _slot_of(self.assignment, i, j, self.n_arms)

    # -- contexts ---------------------------------------------------------------------------------

    def context(self, x: ArrayLike) -> Floats:
        """Return a complete context as a float64 array; raise `InvalidContextError` if invalid."""
        self._check_complete()
        context = numbers("a context", x, InvalidContextError)
        if context.shape != (self.context_dim,):
            raise InvalidContextError(
                f"a context must be a flat list of context_dim={self.context_dim} numbers, got "
                f"shape {context.shape}"
            )
        return context.copy()  # contiguous, as the engine requires, and faster than np.require

    def contexts(self, X: ArrayLike) -> Floats:
        """Return a table of complete contexts as a C-contiguous array."""
        contexts = np.require(numbers("contexts", X, InvalidContextError), requirements=["C", "A"])
        if contexts.ndim != 2 or contexts.shape[1] != self.context_dim:
            revealed = "" if self.stages is None else " (including revealed ones)"
            raise InvalidContextError(
                f"contexts must be a table of {self.context_dim} columns{revealed}, one row per "
                f"context, got shape {contexts.shape}"
            )
        return contexts

    def row(self, x: ArrayLike) -> Floats:
        """Return the features of a context, concatenated over all slots, as a new array.

        Raises `InvalidContextError` if the context has the wrong shape, is not finite, or is
        outside a map's bound, and `InvalidFeaturesError` if a custom map returns invalid features.
        """
        context = self.context(x)
        out = np.empty((1, self.width))
        violation = self.native_maps.rows(context[None], out)
        if violation is not None:
            self.raise_invalid(context, *violation[1:])
        self._fill_customs(context, out[0])
        return out[0]

    def rows(self, X: ArrayLike) -> Floats:
        """Return the features of a table of contexts, bit for bit equal to those of `row`.

        If a context is invalid, the error names the first invalid row and coordinate.
        """
        self._check_complete()
        contexts = self.contexts(X)
        out = np.empty((len(contexts), self.width))
        violation = self.native_maps.rows(contexts, out)
        if violation is not None:
            row, slot, coordinate, finite = violation
            self.raise_invalid(contexts[row], slot, coordinate, finite, row)
        for r in range(0 if self.native_maps.complete else len(contexts)):
            try:
                self._fill_customs(contexts[r], out[r])
            except InvalidFeaturesError as error:
                raise InvalidFeaturesError(f"row {r}: {error}") from error
        return out

    def engine_input(self, x: ArrayLike | None) -> Floats:
        """Return the engine's input for a complete context; raise `InvalidInputError` if invalid.

        The input is the context itself, or its features if a custom map computes them in Python.
        """
        context = () if x is None else x
        row = self.row(context)  # raises if the context is invalid
        return self.context(context) if self.native_maps.complete else row

    def engine_inputs(self, X: ArrayLike) -> Floats:
        """Return the engine's input for a table of complete contexts, one row per context."""
        rows = self.rows(X)  # raises if a context is invalid
        return self.contexts(X) if self.native_maps.complete else rows

    def transform(self, X: ArrayLike, i: int = 0, j: int = 1) -> Floats:
        """Return the features of a pair of arms, of shape (n, d′) and with norms at most one.

        A single context counts as a table of one row. The pair (i, j) matters only if maps differ
        between pairs. If stages reveal the context, each row of ``X`` contains the coordinates
        that are known once arm i has answered. If the maps also read which answers agree, these
        coordinates are followed by one number for each pair of arms up to arm i, in the order 0-1,
        0-2, 1-2, 0-3, …: 1 if the two arms agree, otherwise 0.
        """
        slot = self.slot_of(i, j)
        table = np.atleast_2d(numbers("contexts", X, InvalidContextError))
        if self.stages is not None:
            inputs = self.native_maps.input_dims[slot]
            return bind(self.maps[slot], inputs, self.n_arms).rows(table)
        start = sum(self.dims[:slot])
        return np.ascontiguousarray(self.rows(table)[:, start : start + self.dims[slot]])

    def raise_invalid(
        self, x: Floats, slot: int, coordinate: int, finite: bool, row: int | None = None
    ) -> NoReturn:
        """Raise an error for a coordinate that the engine reported as invalid for a slot's map."""
        if self.stages is not None and coordinate >= self.dim_at(slot):
            raise InvalidContextError(
                f"the bound of arm {slot}'s map must admit 0 and 1, which mark whether two answers "
                "agree; use a larger bound"
            )
        value = float(x[coordinate])
        if not finite:
            problem = f"is {value}; contexts must be finite"
            raise InvalidContextError.at(coordinate, problem, row=row)
        violated = self.maps[slot]
        if isinstance(violated, Scaled):
            half_width = violated.scale[coordinate] * violated.inner.bound
            low = violated.center[coordinate] - half_width
            high = violated.center[coordinate] + half_width
            problem = (
                f"is {value:.12g}, outside the range [{low:.12g}, {high:.12g}] of the Scaled map; "
                'fit it on wider data or with a margin, or use outside="clip"'
            )
            raise InvalidContextError.at(coordinate, problem, row=row)
        assert isinstance(violated, Identity | Polynomial)  # the only other maps with a bound
        bound = f"{violated.bound:.12g}"
        problem = f"is {value:.12g}, outside the bound [-{bound}, {bound}] of the feature map"
        advice = "use a larger bound, or scale the data with Scaled.fit"
        raise InvalidContextError.at(coordinate, problem, advice, row)

    def _check_complete(self) -> None:
        if self.stages is not None:
            raise InvalidContextError(
                "with reveals=, the context is complete only after the stages have run; use "
                "policy.start(x), a Runner or recorded rounds"
            )

    def _fill_customs(self, x: Floats, out: Floats) -> None:
        start = 0
        for m, dim in zip(self.maps, self.dims, strict=True):
            if isinstance(m, Custom):
                out[start : start + dim] = m(x)
            start += dim

    # -- serialisation ----------------------------------------------------------------------------

    def to_spec(self) -> dict[str, Any]:
        """Return plain JSON values that describe these features; equal features have equal specs.

        Custom maps are described by their name and size, since their code cannot be saved.
        """
        return {
            "kind": self.assignment.kind,
            "context_dim": self.initial_dim,
            "n_arms": self.n_arms,
            "maps": [m.to_spec() for m in self.maps],
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any], stages: Stages | None = None) -> "BoundFeatures":
        """Rebuild features from the values of `to_spec`.

        Raises `CorruptFileError` if the spec is invalid, and `FeaturesMismatchError` if it contains
        a custom map, which must be passed as ``features=`` when loading.
        """
        try:
            maps = [map_from_spec(m) for m in spec["maps"]]
            n_arms = integer("n_arms", spec["n_arms"], least=2)
            assignment = _assignment(spec["kind"], maps, n_arms)
            return bind(assignment, spec["context_dim"], n_arms, stages)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"invalid features in the file: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `bind`, because the engine's maps cannot be pickled."""
        assignment = _assignment(self.assignment.kind, self.maps, self.n_arms)
        return bind, (assignment, self.initial_dim, self.n_arms, self.stages)


FeaturesLike: TypeAlias = MapLike | Assignment | BoundFeatures


def bind(
    features: FeaturesLike, context_dim: int, n_arms: int, stages: Stages | None = None
) -> BoundFeatures:
    """Bind feature maps to the dimensions of a context and a cascade.

    A single map or function is shared by all pairs. ``context_dim`` is d, the number of coordinates
    of a context; if ``stages`` reveal some of them, it counts only those known before the first
    arm. ``n_arms`` is K.

    Examples
    --------
    >>> bind(Polynomial(degree=2), context_dim=8, n_arms=3).n_features
    45
    """
    n_arms = integer("n_arms", n_arms, least=2)
    if isinstance(features, BoundFeatures):
        if (features.initial_dim, features.n_arms) != (context_dim, n_arms):
            raise InvalidParameterError(
                f"these features are bound to context_dim={features.initial_dim} and "
                f"{features.n_arms} arms; they cannot be used with context_dim={context_dim} and "
                f"{n_arms} arms"
            )
        features = features.assignment
    assignment = features if isinstance(features, Assignment) else Shared(features)
    dims = None  # coordinates available at each arm, if stages reveal them
    if stages is not None:
        context_dim = integer("context_dim", context_dim)
        assignment = _per_stage(assignment, stages, n_arms)
        dims = [context_dim + n for n in accumulate(stages.reveals)]
    unresolved = assignment.slots(n_arms)
    _check_standard(unresolved)
    if dims is None:
        # A Standard map has a constant, so it needs no coordinate.
        least = 0 if all(isinstance(m, Standard) for m in unresolved) else 1
        context_dim = integer("context_dim", context_dim, least=least)
        inputs = [context_dim] * len(unresolved)
    else:
        agree = stages is not None and stages.answers
        inputs = [n + (arm * (arm + 1) // 2 if agree else 0) for arm, n in enumerate(dims)]
    maps = [
        m.resolved(n_inputs) if isinstance(m, Custom) else m
        for m, n_inputs in zip(unresolved, inputs, strict=True)
    ]
    slots = [_native_map(m, n_inputs) for m, n_inputs in zip(maps, inputs, strict=True)]
    try:
        native_maps = native.FeatureMaps(
            n_arms,
            context_dim if dims is None else dims[-1],
            slots,
            [_slot_of(assignment, i, j, n_arms) for i, j in pairs(n_arms)],
            None if dims is None or stages is None else (dims, stages.answers),
        )
    except ValueError as error:  # for example, Standard(size=…) is too large
        raise InvalidParameterError(f"invalid feature maps: {error}") from None
    scalings = native_maps.standards()
    maps = [m if s is None else _standard(s) for m, s in zip(maps, scalings, strict=True)]
    return BoundFeatures(context_dim, n_arms, assignment, stages, tuple(maps), native_maps)


def stages_of(
    reveals: int | Sequence[int] | None, answers: bool | None, n_arms: int
) -> Stages | None:
    """Return the `Stages` for a policy's ``reveals=`` and ``answers=``.

    ``reveals`` is how many values each arm reveals: one number for all arms, a list with one number
    for each arm except the last, or None if the context is complete from the start.
    """
    if reveals is None:
        return None
    counts = reveals if isinstance(reveals, Sequence) else [reveals] * (n_arms - 1)
    counts = tuple(integer("each count in reveals", n) for n in counts)
    return Stages(counts, True if answers is None else bool(answers))


def _per_stage(assignment: Assignment, stages: Stages, n_arms: int) -> PerStage:
    if len(stages.reveals) != n_arms - 1:
        raise InvalidParameterError(
            f"reveals needs {n_arms - 1} counts for {n_arms} arms (one for each arm except the "
            f"last), got {len(stages.reveals)}"
        )
    if isinstance(assignment, Shared):
        assignment = PerStage([assignment.map] * (n_arms - 1))
    if not isinstance(assignment, PerStage):
        raise InvalidParameterError(
            "with reveals=, features must be a single map, or PerStage with a map for each arm "
            f"except the last, got {type(assignment).__name__}"
        )
    if any(isinstance(m, Custom) for m in assignment.maps):
        raise InvalidParameterError(
            "reveals= does not allow custom feature maps; use Standard, Polynomial or Identity, "
            "and let the stages reveal the values that your function computes"
        )
    return assignment


def _check_standard(maps: Sequence[FeatureMap]) -> None:
    standard = [isinstance(m, Standard) for m in maps]
    if any(standard) and not all(standard):
        raise InvalidParameterError(
            "Standard cannot be combined with other feature maps; use Standard() for all maps, or "
            "replace it with Scaled.fit"
        )


def _slot_of(assignment: Assignment, i: int, j: int, n_arms: int) -> int:
    if isinstance(assignment, PerPair):
        return pairs(n_arms).index((i, j))
    return 0 if isinstance(assignment, Shared) else i


def _assignment(kind: str, maps: Sequence[FeatureMap], n_arms: int) -> Assignment:
    if kind == Shared.kind:
        (shared,) = maps
        return Shared(shared)
    if kind == PerStage.kind:
        return PerStage(maps)
    if kind == PerPair.kind:
        return PerPair(dict(zip(pairs(n_arms), maps, strict=True)))
    raise KeyError(kind)


def _native_map(m: FeatureMap, n_inputs: int) -> int | Monomials | Scaling:
    """Return a map in the engine's format; for a custom map, its number of features."""
    if isinstance(m, Custom):
        assert m.n_features is not None  # set by `Custom.resolved`
        return m.n_features
    if isinstance(m, Standard):
        check_count(m.degree, n_inputs)
        if m.center:
            _check_size(m, n_inputs)
        return m.degree, m.center, m.scale, m.two_valued, m.size
    inner = m.inner if isinstance(m, Scaled) else m
    center = [0.0] * n_inputs
    scale = [1.0] * n_inputs
    limit = inner.bound * (1 + SLACK)
    if isinstance(m, Scaled):
        _check_size(m, n_inputs)
        center, scale = list(m.center), list(m.scale)
        limit = math.inf if m.outside == "clip" else limit
    monomials = inner.monomials(n_inputs)
    factors = [1 / _largest_norm(inner.bound, monomials)] * len(monomials)
    return [list(monomial) for monomial in monomials], inner.bound, limit, factors, center, scale


def _check_size(m: Scaled | Standard, n_inputs: int) -> None:
    if len(m.center) != n_inputs:
        raise InvalidParameterError(
            f"the {type(m).__name__} map was fitted to {len(m.center)} coordinates, but the "
            f"context has {n_inputs}"
        )


def _standard(scaling: Scaling) -> Standard:
    degree, center, scale, two_valued, size = scaling
    return Standard(degree, tuple(center), tuple(scale), tuple(two_valued), size)


def _largest_norm(bound: float, monomials: Sequence[Monomial]) -> float:
    """Return √(Σ bound^(2·degree of the monomial)), the norm if every coordinate is ±bound."""
    try:
        norm = math.sqrt(math.fsum(math.prod([bound] * (2 * len(m))) for m in monomials))
    except OverflowError:
        norm = math.inf
    if not (0 < norm < math.inf and 1 / norm < math.inf):
        raise InvalidParameterError(
            f"powers of bound={bound:g} overflow or underflow; scale the data with Scaled.fit and "
            "use bound=1"
        )
    return norm
