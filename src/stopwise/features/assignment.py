"""Which pair of arms uses which feature map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, TypeAlias

from stopwise.errors import InvalidParameterError
from stopwise.features.maps import FeatureMap, MapLike, as_map


@dataclass(frozen=True, init=False)
class Shared:
    """One map for all pairs of arms, as a map on its own: the usual choice, and the fastest.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPD(
    ...     sw.Cascade(costs=[0.1, 0.2]), features=sw.Shared(sw.Identity()), context_dim=2
    ... )
    >>> policy.features.n_features
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
    """A map for each stage: map i serves each pair (i, j), for every j > i.

    ``maps`` has one for each arm but the last, where nothing is left to decide. Each sees the
    complete context or, in a policy with ``reveals=``, what is known at its arm.

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


Assignment: TypeAlias = Shared | PerStage | PerPair


def pairs(n_arms: int) -> list[tuple[int, int]]:
    """Return every pair of arms (i, j) with i < j, row by row."""
    return list(combinations(range(n_arms), 2))
