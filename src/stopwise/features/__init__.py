"""Feature maps Φ, which compute the inputs of the disagreement model, with norm at most one.

`maps` contains the maps, `assignment` assigns them to pairs of arms, and `binding` binds both to
the dimensions of a context and a cascade.
"""

from stopwise.features.assignment import PerPair as PerPair
from stopwise.features.assignment import PerStage as PerStage
from stopwise.features.assignment import Shared as Shared
from stopwise.features.binding import BoundFeatures as BoundFeatures
from stopwise.features.binding import FeaturesLike as FeaturesLike
from stopwise.features.binding import Stages as Stages
from stopwise.features.binding import bind as bind
from stopwise.features.binding import stages_of as stages_of
from stopwise.features.maps import Custom as Custom
from stopwise.features.maps import FeatureMap as FeatureMap
from stopwise.features.maps import Identity as Identity
from stopwise.features.maps import MapLike as MapLike
from stopwise.features.maps import Polynomial as Polynomial
from stopwise.features.maps import Scaled as Scaled
from stopwise.features.maps import Standard as Standard
from stopwise.features.maps import map_from_spec as map_from_spec
