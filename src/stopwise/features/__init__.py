"""Feature maps Φ: what the model of disagreement sees of a context, never longer than one.

The paper models the chance that arms i and j disagree as μ(Φᵢⱼ(x)ᵀθ), with ‖Φᵢⱼ(x)‖₂ ≤ 1. A map
guarantees that norm if every coordinate of a context lies within [−bound, bound], which the user
promises. `Scaled` brings other data into that box.

Maps: `Identity`, `Polynomial`, `Scaled`, `Custom` (any function). Which pair of arms uses which
map: `Shared`, `PerStage`, `PerPair`. `bind` joins them to the size of a cascade.
"""

from stopwise.features.arrangements import PerPair, PerStage, Shared
from stopwise.features.binding import BoundFeatures, FeaturesLike, bind
from stopwise.features.maps import (
    Custom,
    FeatureMap,
    Identity,
    MapLike,
    Polynomial,
    Scaled,
    map_from_spec,
)

__all__ = [
    "BoundFeatures",
    "Custom",
    "FeatureMap",
    "FeaturesLike",
    "Identity",
    "MapLike",
    "PerPair",
    "PerStage",
    "Polynomial",
    "Scaled",
    "Shared",
    "bind",
    "map_from_spec",
]
