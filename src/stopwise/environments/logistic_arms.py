"""Arms that are logistic classifiers of rising quality, answering at random as the paper's do."""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.checks import numbers
from stopwise.environments.base import Floats
from stopwise.environments.binary_arms import BinaryArms
from stopwise.environments.training import chance_of_one
from stopwise.errors import InvalidParameterError


class LogisticArms(BinaryArms):
    """Contexts uniform in [−1, 1]^d; arm i answers 1 with chance μ(xᵀw_i + b_i).

    The label is 1 with chance μ(xᵀw + b) of its own. Given the context, arms and label are
    independent (see `BinaryArms`).

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    arms : array_like of shape (K, d + 1)
        A row (w_i, b_i) per arm.
    label : array_like of shape (d + 1,)
        (w, b) of the label.

    Examples
    --------
    >>> import stopwise as sw
    >>> env = LogisticArms(sw.Cascade(costs=[0.1, 0.2]), [[1, 0, 0], [4, 4, 0]], [8, 8, 0])
    >>> batch = env.sample(5, np.random.default_rng(0))
    >>> batch.contexts.shape, batch.outputs.shape, batch.error_rates.shape
    ((5, 2), (5, 2), (5, 2))
    """

    name: ClassVar[str] = "logistic-arms"

    def __init__(self, cascade: Cascade, arms: ArrayLike, label: ArrayLike) -> None:
        self.cascade = cascade
        self._arms = numbers("arms", arms).copy()
        self._label = numbers("label", label).copy()
        if self._arms.ndim != 2 or len(self._arms) != cascade.n_arms:
            raise InvalidParameterError(
                f"arms needs one row of weights (and a bias) for each of {cascade.n_arms} arms; "
                f"this has shape {self._arms.shape}"
            )
        if self._label.shape != self._arms.shape[1:]:
            raise InvalidParameterError("label needs as many numbers as a row of arms")
        self.context_dim = self._arms.shape[1] - 1
        if self.context_dim < 1:
            raise InvalidParameterError("a row of arms is one weight or more, and then the bias")
        if not (np.isfinite(self._arms).all() and np.isfinite(self._label).all()):
            raise InvalidParameterError("weights must be finite")

    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts, and say how likely each answer is there."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        return x, chance_of_one(x, self._arms), chance_of_one(x, self._label[None, :])[:, 0]
