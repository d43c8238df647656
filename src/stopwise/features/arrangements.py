"""Which pair of arms uses which feature map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from stopwise.checks import integer
from stopwise.errors import InvalidParameterError
from stopwise.features.maps import FeatureMap, MapLike, as_map


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
    >>> import stopwise as sw
    >>> sw.bind(Shared(sw.Identity()), context_dim=3, n_arms=4).dims
    (3,)
    """

    kind: ClassVar[str] = "shared"
    map: FeatureMap

    def __init__(self, map: MapLike) -> None:  # noqa: A002 (the word for it)
        object.__setattr__(self, "map", as_map(map))

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        return (self.map,)

    def slot_of(self, i: int, j: int, n_arms: int) -> int:
        """Return the slot of a pair that is known to exist."""
        return 0


@dataclass(frozen=True, init=False)
class PerStage:
    """A map for each stage: map i sees what is known at arm i, and serves each pair (i, j).

    Parameters
    ----------
    maps : sequence of feature maps or callables
        One for each arm but the last, where nothing is left to decide.
    sees : sequence of int, optional
        Where stages reveal parts of the context: map i sees the first ``sees[i]`` coordinates,
        those known once arm i has run. By default each sees the complete context.

    Examples
    --------
    Two numbers are known from the start, and the second arm adds a third:

    >>> import stopwise as sw
    >>> revealed = PerStage([sw.Identity(), sw.Identity()], sees=[2, 3])
    >>> features = sw.bind(revealed, context_dim=3, n_arms=3)
    >>> features.dims, features.slot_of(0, 2), features.slot_of(1, 2)
    ((2, 3), 0, 1)
    """

    kind: ClassVar[str] = "per_stage"
    maps: tuple[FeatureMap, ...]
    sees: tuple[int, ...] | None = None

    def __init__(self, maps: Sequence[MapLike], sees: Sequence[int] | None = None) -> None:
        object.__setattr__(self, "maps", tuple(as_map(m) for m in maps))
        if sees is not None:
            sees = tuple(integer("what a stage sees", n, least=1) for n in sees)
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
    >>> import stopwise as sw
    >>> maps = {(0, 1): sw.Identity(), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}
    >>> sw.bind(PerPair(maps), context_dim=2, n_arms=3).dims
    (2, 2, 6)
    """

    kind: ClassVar[str] = "per_pair"
    maps: tuple[tuple[tuple[int, int], FeatureMap], ...]

    def __init__(self, maps: Mapping[tuple[int, int], MapLike]) -> None:
        for pair in maps:
            if len(pair) != 2 or not 0 <= integer("an arm", pair[0]) < integer("an arm", pair[1]):
                raise InvalidParameterError(f"a pair of arms is (i, j) with 0 ≤ i < j, not {pair}")
        ordered = tuple(((int(i), int(j)), as_map(maps[i, j])) for i, j in sorted(maps))
        object.__setattr__(self, "maps", ordered)

    def slots(self, n_arms: int) -> tuple[FeatureMap, ...]:
        """Return the map of each slot in a cascade of this size."""
        needed = pairs(n_arms)
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


def pairs(n_arms: int) -> list[tuple[int, int]]:
    """Return every pair of arms (i, j) with i < j, row by row."""
    return [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
