"""What an environment is: it draws rounds, and knows the truth about them."""

from abc import ABC, abstractmethod
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Batch(msgspec.Struct, frozen=True, eq=False):
    """Rounds drawn from an environment: what could be revealed, and the truth.

    Attributes
    ----------
    contexts : ndarray of shape (n, context_dim)
        One context a round.
    outputs : ndarray of shape (n, K) or None
        What every arm would say; a policy sees it as deep as it goes. None where only pairwise
        disagreements are defined.
    differ : ndarray of shape (n, K(K−1)/2) or None
        Whether each pair would disagree, where there are no outputs.
    labels : ndarray of shape (n,) or None
        The right answers.
    error_rates : ndarray of shape (n, K) or None
        γ_i(x).
    disagreement : ndarray of shape (n, K, K)
        p_ij(x), in the upper triangle.
    optimal : ndarray of shape (n,)
        i*(x).
    margins : ndarray of shape (n,)
        ξ(x) = min over j > i* of C_j − C_i* − p_{i*j}(x), by how much the context is weakly
        dominant; +∞ where i* is the last arm.
    """

    contexts: Floats
    disagreement: Floats
    optimal: Ints
    margins: Floats
    outputs: Ints | None = None
    differ: NDArray[np.uint8] | None = None
    labels: Ints | None = None
    error_rates: Floats | None = None

    @property
    def dominant(self) -> NDArray[np.bool_]:
        """Which contexts are weakly dominant (WD): ξ(x) > 0."""
        return self.margins > 0


class Environment(ABC):
    """A source of rounds for one cascade.

    Attributes
    ----------
    name : str
        What `make_environment` calls it.
    cascade : Cascade
        The arms and their costs.
    context_dim : int
        How many numbers a context has.
    """

    name: ClassVar[str]
    cascade: Cascade
    context_dim: int

    @abstractmethod
    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds."""


def round_robin(rows: int, rounds: int) -> Ints:
    """Return row numbers in order, from the first again past the end.

    Examples
    --------
    >>> round_robin(3, 7).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    """
    return np.arange(rounds, dtype=np.int64) % rows


def shuffled(rows: int, rounds: int, random: np.random.Generator) -> Ints:
    """Return row numbers in random order; past the end, all of them in a fresh order.

    Examples
    --------
    >>> order = shuffled(3, 6, np.random.default_rng(0))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    passes = -(-rounds // rows)
    orders = [random.permutation(rows) for _ in range(passes)]
    return np.concatenate([np.empty(0, dtype=np.int64), *orders])[:rounds]
