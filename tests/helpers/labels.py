"""Labels of rounds that a test has played with `decide` and `observe`."""

from collections.abc import Hashable, Sequence

from numpy.typing import ArrayLike

import stopwise as sw
from stopwise.policies.labels import observation_of
from stopwise.policies.validation import MAX_ARMS


def label_of(
    context: ArrayLike,
    outputs: Sequence[Hashable],
    answer: Hashable,
    *,
    rule_stop: int | None = None,
    request: sw.LabelRequest | None = None,
) -> sw.Label:
    """Return the label of a round with this right answer."""
    observation = observation_of(context, outputs, MAX_ARMS, rule_stop)
    return sw.Label(observation, tuple(output == answer for output in outputs), request)
