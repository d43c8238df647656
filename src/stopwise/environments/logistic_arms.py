"""Arms that are logistic classifiers of rising quality, answering at random as the paper's do."""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.checks import table, vector
from stopwise.environments.base import Floats
from stopwise.environments.binary_arms import BinaryArms
from stopwise.environments.training import chance_of_one
from stopwise.errors import InvalidParameterError


class LogisticArms(BinaryArms):
    """Contexts uniform in [−1, 1]^d; arm i answers 1 with chance μ(xᵀw_i + b_i).

    The label is 1 with chance μ(xᵀw + b) of its own. Given the context, arms and label are
    independent (see `BinaryArms`). ``arms`` has a row (w_i, b_i) per arm, ``label`` is (w, b).

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
        self._arms = table("arms", arms).copy()
        if len(self._arms) != cascade.n_arms or self._arms.shape[1] < 2:
            raise InvalidParameterError(
                f"arms needs a row of one weight or more, and then the bias, for each of "
                f"{cascade.n_arms} arms; this has shape {self._arms.shape}"
            )
        self._label = vector("label", label, size=self._arms.shape[1])
        self.context_dim = self._arms.shape[1] - 1

    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts, and how likely each answer is there."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        return x, chance_of_one(x, self._arms), chance_of_one(x, self._label[None, :])[:, 0]
