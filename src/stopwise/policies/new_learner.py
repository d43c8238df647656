"""What a contextual policy tells the engine when it begins to learn."""

from typing import TYPE_CHECKING

from stopwise.engine.native import Learner, Rule
from stopwise.errors import InvalidParameterError
from stopwise.features import BoundFeatures
from stopwise.policies.self_scaling import MOST_FEATURES

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual

COUNTED = 4096  # distinct rows for each stop that the engine counts, whatever the memory


def new_learner(policy: "Contextual", features: BoundFeatures, rule: Rule) -> Learner:
    """Return a learner that has seen nothing."""
    cascade = policy.cascade
    scopes = [(slot, arm, arm) for slot, arm in policy.questions()]
    if features.sees is not None:
        pairs = zip(scopes, cascade.pairs(), strict=True)
        scopes = [(slot, arm, policy.answered_from(*pair)) for (slot, arm, _), pair in pairs]
    # Questions that see the same features in the same rounds have the same V.
    grams = list(dict.fromkeys(scopes))
    offsets, dims, linear = features.offsets, features.dims, features.linear
    return Learner(
        rule,
        n_arms=cascade.n_arms,
        width=features.width,
        questions=[grams.index(one) for one in scopes],
        grams=[(offsets[s], dims[s], arm, first, linear[s]) for s, arm, first in grams],
        gaps=cascade.gaps.ravel().tolist(),
        ridge=policy.prior_precision(features),
        forced_rounds=-1 if isinstance(policy.forced_rounds, str) else policy.forced_rounds,
        transitive=policy.transitive,
        explore=policy.share_explored,
        labels=float(policy.labels),
        seed=policy.seed,
        half_life=policy.half_life or 0.0,
        most_rows=_most_rows(policy, features),
    )


def _most_rows(policy: "Contextual", features: BoundFeatures) -> int:
    """Return how many rows of features may be stored one by one, 0 for all."""
    if policy.memory is None:
        return 0
    n_questions, width = len(policy.questions()), features.width
    if features.scales_itself:  # as wide as they may become
        width = max(width, MOST_FEATURES * len(features.maps))
    row, counted = 8 * width + n_questions / 8, 8 * width + 4 * n_questions + 48
    least = COUNTED * policy.cascade.n_arms * counted + 1024 * row
    if policy.memory < least:
        raise InvalidParameterError(
            f"memory must be at least {least / 1e6:.1f} MB for these features"
        )
    return int((policy.memory - least) / row) + 1024
