"""Assignment of feature maps to pairs of arms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, TypeAlias

from stopwise.errors import InvalidParameterError
from stopwise.features.maps import FeatureMap, MapLike, as_map


@dataclass(frozen=True, init=False)
class Shared:
    """One map for all pairs of arms, the fastest choice; a map passed alone means the same.

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

    def __init__(self, map: MapLike) -> None:  # noqa: A002 (a public parameter name)
        object.__setattr__(self, "map", as_map(map))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot for a cascade of ``n_arms`` arms."""
        return (self.map,)


@dataclass(frozen=True, init=False)
class PerStage:
    """One map for each arm except the last: map i is used for all pairs (i, j) with j > i.

    In policies with ``reveals=``, map i reads only the values known once arm i has answered; in
    other policies, every map reads the complete context.

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
        """Return the map of each slot for a cascade of ``n_arms`` arms."""
        if len(self.maps) != n_arms - 1:
            raise InvalidParameterError(
                f"PerStage needs {n_arms - 1} maps for {n_arms} arms (one for each arm except the "
                f"last), got {len(self.maps)}"
            )
        return self.maps


@dataclass(frozen=True, init=False)
class PerPair:
    """One map for each pair of arms (i, j) with i < j: the paper's Φᵢⱼ.

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
        ordered = sorted(
            maps, key=repr
        )  # sorted by repr, which works for keys of any type; `slots` rejects invalid keys
        object.__setattr__(self, "maps", tuple((pair, as_map(maps[pair])) for pair in ordered))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot for a cascade of ``n_arms`` arms."""
        maps = dict(self.maps)
        required = pairs(n_arms)
        problems = [f"invalid pair {pair!r}" for pair in maps if pair not in required]
        problems += [f"missing pair {pair}" for pair in required if pair not in maps]
        if problems:
            raise InvalidParameterError(
                f"PerPair needs a map for each pair (i, j) with 0 ≤ i < j < {n_arms}: "
                f"{', '.join(problems)}"
            )
        return tuple(maps[pair] for pair in required)


Assignment: TypeAlias = Shared | PerStage | PerPair


def pairs(n_arms: int) -> list[tuple[int, int]]:
    """Return every pair of arms (i, j) with i < j, row by row."""
    return list(combinations(range(n_arms), 2))
