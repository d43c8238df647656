"""Options shared by pairwise policies."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, integer, real, size_in_bytes
from stopwise.errors import InvalidParameterError, WideFeaturesWarning
from stopwise.features import BoundFeatures, FeaturesLike, Standard, bind, stages_of

SMALLEST_RIDGE = 1e-9  # keeps H positive definite in double precision after 10⁶ rounds
MOST_FORCED = (1 << 53) - 1  # exact as a double
EXPLORED = 0.06  # default initial share of rounds that explore (heuristic, chosen by simulation)
COUNTED = 4096  # distinct rows per stop that the engine counts even beyond `memory`
MOST_FITTED = 66  # maximum number of features of a `Standard` map of degree 2
WIDE = 250  # with more features, a round takes over about 10 ms (docs/features.md)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Validated options of a pairwise policy, documented at `USSPD`."""

    features: FeaturesLike | None = None
    context_dim: int | None = None
    reveals: int | Sequence[int] | None = None
    answers: bool | None = None
    labels: float = 0
    forced_rounds: int | str = 0
    ridge: float | None = None
    explore: float | None = None
    transitive: bool = False
    seed: int = 0
    half_life: float | None = None
    memory: int | str | None = None

    def __post_init__(self) -> None:
        if self.forced_rounds != "auto":
            name = 'forced_rounds, unless "auto",'
            self._set("forced_rounds", integer(name, self.forced_rounds, most=MOST_FORCED))
        if self.ridge is not None:
            self._set("ridge", real("ridge", self.ridge, least=SMALLEST_RIDGE))
        if self.explore is not None:
            self._set("explore", real("explore", self.explore, least=0, most=1))
        labels = real("labels", self.labels, least=0)
        self._set("labels", labels if 0 < labels < 1 else integer("labels", labels))
        self._set("seed", checked_seed(self.seed))
        if self.reveals is not None and not isinstance(self.reveals, int):
            self._set("reveals", tuple(self.reveals))
        if self.half_life is not None:
            self._set("half_life", real("half_life", self.half_life, least=1, most=1e15))
        if self.memory is not None:
            self._set("memory", size_in_bytes("memory", self.memory))
        self._check_combinations()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_combinations(self) -> None:
        if self.half_life is not None and self.memory is not None:
            raise InvalidParameterError(
                "half_life and memory cannot be combined; half_life alone already bounds memory"
            )
        if self.half_life is not None and self.forced_rounds == "auto":
            raise InvalidParameterError(
                'forced_rounds="auto" cannot be combined with half_life, because forgetting may '
                "keep V too small forever; pass a number"
            )
        if self.transitive and self.reveals is not None:
            raise InvalidParameterError(
                "transitive=True cannot be combined with reveals=, because transitivity needs the "
                "complete context from the start; omit one of them"
            )
        if self.answers is not None and self.reveals is None:
            raise InvalidParameterError(
                "answers= requires reveals=, the number of values that each stage adds to the "
                "context (0 for none)"
            )

    def bound_features(self, cascade: Cascade) -> BoundFeatures:
        """Return the feature maps, bound to a cascade."""
        features = Standard() if self.features is None else self.features
        stages = stages_of(self.reveals, self.answers, cascade.n_arms)
        context_dim = self.context_dim
        if context_dim is None:
            if self.reveals is None:
                raise InvalidParameterError(
                    "context_dim (the number of values in a context) is required, for example "
                    "context_dim=8"
                )
            context_dim = 0
        bound = bind(features, context_dim, cascade.n_arms, stages)
        if (wide := bound.n_features) > WIDE:
            warnings.warn(
                f"{wide:,} features make rounds slow (about {35 * (wide / 384) ** 3:,.0f} ms each "
                "after as many rounds as features). The time grows with the cube of the number of "
                "features; use a lower degree, Polynomial.independent(X), or a projection to about "
                "50 features",
                WideFeaturesWarning,
                stacklevel=4,
            )
        return bound

    def explored(self, always: bool) -> float:
        """Return the initial share of rounds that explore; if ``always``, not 0 by default."""
        if self.explore is not None:
            return self.explore
        return EXPLORED if always or self.labels or self.reveals is not None else 0.0

    def most_rows(self, features: BoundFeatures, n_pairs: int) -> int | None:
        """Return how many rows of features may be stored individually, or None for no limit."""
        if self.memory is None:
            return None
        assert isinstance(self.memory, int)
        width = features.width
        if features.self_scaling:  # refitting may add features
            width = max(width, MOST_FITTED * len(features.maps))
        row, counted = 8 * width + n_pairs / 8, 8 * width + 4 * n_pairs + 48
        least = COUNTED * features.n_arms * counted + 1024 * row
        if self.memory < least:
            raise InvalidParameterError(
                f"memory must be at least {least / 1e6:.1f} MB for these features, "
                f"got {self.memory / 1e6:.3g} MB"
            )
        return int((self.memory - least) / row) + 1024
