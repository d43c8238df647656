"""Base class of environments, and the batches of rounds that they draw."""

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec
import numpy as np

from stopwise.arrays import Bools, Disagreements, Floats, Ints
from stopwise.cascade import Cascade


class Batch(msgspec.Struct, frozen=True, eq=False):
    """Rounds drawn from an environment, with their ground truth.

    Attributes
    ----------
    contexts : ndarray of shape (n, context_dim)
    disagreement : ndarray of shape (n, K, K)
        p_ij(x), in the upper triangle.
    optimal : ndarray of shape (n,)
        i*(x), the optimal arm.
    margins : ndarray of shape (n,)
        ξ(x), the margin of weak dominance (see `dominance_margins`).
    outputs : ndarray of shape (n, K) or None
        The output of every arm; a policy sees only those up to its stop.
    differ : ndarray of shape (n, K(K−1)/2) or None
        Whether each pair disagrees, in the order of ``cascade.pairs()``; used if there are no
        outputs.
    labels : ndarray of shape (n,) or None
        The right answers.
    error_rates : ndarray of shape (n, K) or None
        γ_i(x), the probability that each arm is wrong.
    """

    contexts: Floats
    disagreement: Floats
    optimal: Ints
    margins: Floats
    outputs: Ints | None = None
    differ: Disagreements | None = None
    labels: Ints | None = None
    error_rates: Floats | None = None

    @property
    def dominant(self) -> Bools:
        """Whether each context is weakly dominant (WD): ξ(x) > 0."""
        return self.margins > 0


class Environment(ABC):
    """A source of rounds for a cascade, with contexts of ``context_dim`` numbers.

    ``name`` is the key of the class in ``ENVIRONMENTS``.
    """

    name: ClassVar[str]
    cascade: Cascade
    context_dim: int

    @abstractmethod
    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw ``rounds`` rounds, with ``random`` as the only source of randomness."""
