"""Which pair of arms uses which feature map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, TypeAlias

from stopwise.checks import integer
from stopwise.errors import InvalidParameterError
from stopwise.features.maps import FeatureMap, MapLike, Standard, as_map


@dataclass(frozen=True, init=False)
class Shared:
    """One map for all pairs of arms, as a map on its own: the usual choice, and the fastest.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPD(
    ...     sw.Cascade(costs=[0.1, 0.2]), features=sw.Shared(sw.Identity()), context_dim=2
    ... )
    >>> policy.n_features
    2
    """

    kind: ClassVar[str] = "shared"
    map: FeatureMap

    def __init__(self, map: MapLike) -> None:  # noqa: A002 (the word for it)
        object.__setattr__(self, "map", as_map(map))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        return (self.map,)


@dataclass(frozen=True, init=False)
class PerStage:
    """A map for each stage: map i sees the complete context, and serves each pair (i, j).

    ``maps`` has one for each arm but the last, where nothing is left to decide.

    Examples
    --------
    >>> import stopwise as sw
    >>> features = sw.bind(PerStage([sw.Identity(), sw.Polynomial()]), context_dim=2, n_arms=3)
    >>> features.dims, features.slot_of(0, 2), features.slot_of(1, 2)
    ((2, 6), 0, 1)
    """

    kind: ClassVar[str] = "per_stage"
    maps: tuple[FeatureMap, ...]

    def __init__(self, maps: Sequence[MapLike]) -> None:
        object.__setattr__(self, "maps", tuple(as_map(m) for m in maps))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        if len(self.maps) != n_arms - 1:
            raise InvalidParameterError(
                f"PerStage needs a map for each arm but the last, {n_arms - 1} for {n_arms} arms; "
                f"there are {len(self.maps)}"
            )
        return self.maps


@dataclass(frozen=True, init=False)
class Answers:
    """What the arms have said so far is context, and so are numbers that they reveal.

    At arm i a pair (i, j) is judged by what is known there: the context that the round began with,
    the numbers that arms 0 to i revealed (a confidence, say), and for every two of these arms
    whether they agree. Rounds are decided arm by arm (docs/revealed.md).

    Parameters
    ----------
    reveals : int or sequence of int
        How many numbers each arm reveals, the last arm apart: one number for all, or one each.
    maps : sequence of feature maps or callables, optional
        One for each arm but the last, of everything known there: numbers first, then the
        agreements 0-1, 0-2, 1-2, 0-3, …, each 0 or 1. `Standard` by default.

    Examples
    --------
    Two numbers are known from the start, and each arm reveals one:

    >>> import stopwise as sw
    >>> features = sw.bind(Answers(reveals=1), context_dim=2, n_arms=3)
    >>> features.sees, [stage.context_dim for stage in features.stages]
    ((3, 4), [3, 5])
    """

    kind: ClassVar[str] = "answers"
    reveals: int | tuple[int, ...] = 0
    maps: tuple[FeatureMap, ...] | None = None

    def __init__(
        self, reveals: int | Sequence[int] = 0, maps: Sequence[MapLike] | None = None
    ) -> None:
        each = reveals if isinstance(reveals, Sequence) else [reveals]
        found = tuple(integer("what an arm reveals", n) for n in each)
        object.__setattr__(self, "reveals", found if isinstance(reveals, Sequence) else found[0])
        object.__setattr__(self, "maps", None if maps is None else tuple(map(as_map, maps)))

    def revealed(self, n_arms: int) -> tuple[int, ...]:
        """Return how many numbers each arm but the last reveals."""
        each = self.reveals if isinstance(self.reveals, tuple) else (self.reveals,) * (n_arms - 1)
        if len(each) != n_arms - 1:
            raise InvalidParameterError(
                f"Answers needs what each arm but the last reveals, {n_arms - 1} numbers for "
                f"{n_arms} arms; there are {len(each)}"
            )
        return each

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        maps = [Standard()] * (n_arms - 1) if self.maps is None else self.maps
        return PerStage(maps).slots(n_arms)


@dataclass(frozen=True, init=False)
class PerPair:
    """A map for each pair of arms (i, j), i < j: the paper's Φᵢⱼ in full.

    Examples
    --------
    >>> import stopwise as sw
    >>> maps = {(0, 1): sw.Identity(), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}
    >>> sw.bind(PerPair(maps), context_dim=2, n_arms=3).dims
    (2, 2, 6)
    """

    kind: ClassVar[str] = "per_pair"
    maps: tuple[tuple[tuple[int, int], FeatureMap], ...]

    def __init__(self, maps: Mapping[tuple[int, int], MapLike]) -> None:
        ordered = sorted(maps, key=repr)  # whatever the keys are; `slots` refuses wrong ones
        object.__setattr__(self, "maps", tuple((pair, as_map(maps[pair])) for pair in ordered))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        given, needed = dict(self.maps), pairs(n_arms)
        wrong = [f"{key!r} is none of them" for key in given if key not in needed]
        wrong += [f"{pair} is missing" for pair in needed if pair not in given]
        if wrong:
            raise InvalidParameterError(
                f"PerPair needs a map for each pair (i, j), i < j, of {n_arms} arms: "
                f"{', '.join(wrong)}"
            )
        return tuple(given[pair] for pair in needed)


Arrangement: TypeAlias = Shared | PerStage | PerPair | Answers


def pairs(n_arms: int) -> list[tuple[int, int]]:
    """Return every pair of arms (i, j) with i < j, row by row."""
    return list(combinations(range(n_arms), 2))
