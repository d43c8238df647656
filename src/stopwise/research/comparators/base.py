"""Base class of comparators, and the ground truth that they use."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision
from stopwise.research.environments.base import Batch


class Truth(msgspec.Struct, frozen=True, eq=False):
    """The ground truth about a round, which is unknown in production.

    ``label`` is the right answer. ``optimal`` is i*, the deepest arm with the minimum expected
    total loss. ``disagreement`` contains p_ij(x) in its upper triangle.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> research.Oracle(sw.Cascade(costs=[0.1, 0.2])).decide(None, research.Truth(optimal=1)).stop
    1
    """

    label: Any = None
    optimal: int | None = None
    disagreement: Floats | None = None


class Comparator(ABC):
    """A reference rule that uses the ground truth.

    Not a `Policy`, because live traffic has no ground truth.
    """

    name: ClassVar[str]  # key in ``COMPARATORS``

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade

    @abstractmethod
    def play(self, batch: Batch, progress: Progress = no_progress) -> Ints:
        """Play rounds drawn from an environment; return the stops."""

    def _decision(self, stop: int) -> Decision:
        return Decision(stop, self.cascade.names[stop], self.cascade.cost(stop))


def checked_length(name: str, values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return ``values``; raise an error unless they have one entry per round."""
    if values.ndim == 0 or len(values) != n:
        raise InvalidParameterError(
            f"{name} must have {n} entries (one per round), got shape {np.shape(values)}"
        )
    return values
