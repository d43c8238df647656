"""Feature maps Φ: what the model of disagreement sees of a context, of norm at most one.

Maps are in `maps`, which pair of arms uses which map in `arrangements`; `bind` joins both to a
cascade.
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
