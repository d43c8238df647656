"""Arms that are logistic classifiers of rising quality, answering at random as the paper's do."""

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.environments.base import Batch, Environment, Floats
from stopwise.errors import InvalidParameterError
from stopwise.theory.regret import optimal_arms


class LogisticArms(Environment):
    """Contexts uniform in [−1, 1]^d; arm i answers 1 with chance μ(xᵀw_i + b_i).

    The label is 1 with chance μ(xᵀw + b) of its own. Given the context, arms and label are
    independent, so that

        γ_i(x) = a_i(1 − y) + (1 − a_i)y,    p_ij(x) = a_i(1 − a_j) + (1 − a_i)a_j

    with a_i, y the chances of a 1.

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

    def __init__(self, cascade: Cascade, arms: ArrayLike, label: ArrayLike) -> None:
        self.cascade = cascade
        self._arms = np.array(arms, dtype=np.float64)
        self._label = np.array(label, dtype=np.float64)
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

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        says_one = _chance(x, self._arms)
        is_one = _chance(x, self._label[None, :])
        errors = says_one * (1.0 - is_one) + (1.0 - says_one) * is_one
        a = says_one[:, :, None]
        b = says_one[:, None, :]
        return Batch(
            contexts=x,
            disagreement=a * (1.0 - b) + (1.0 - a) * b,
            optimal=optimal_arms(self.cascade, errors),
            outputs=(random.random(says_one.shape) < says_one).astype(np.int64),
            labels=(random.random(rounds) < is_one[:, 0]).astype(np.int64),
            error_rates=errors,
        )


def _chance(x: Floats, weights: Floats) -> Floats:
    z = x @ weights[:, :-1].T + weights[:, -1]
    return 0.5 * (1.0 + np.tanh(0.5 * z))  # μ(z), without overflow
