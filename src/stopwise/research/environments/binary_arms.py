"""Arms that answer 0 or 1, with chances that are known: all the truth follows from them."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.checks import table, vector
from stopwise.errors import InvalidParameterError
from stopwise.research.environments.base import Batch, Environment
from stopwise.research.environments.training import predict_logistic
from stopwise.research.theory.dominance import dominance_margins
from stopwise.research.theory.regret import optimal_arms


class BinaryArms(Environment):
    """Arm i answers 1 with chance a_i(x), the label is 1 with chance y(x), all independently.

    Then

        γ_i(x) = a_i(1 − y) + (1 − a_i)y,    p_ij(x) = a_i(1 − a_j) + (1 − a_i)a_j

    and the optimal arm and the margin ξ(x) follow. For an environment of your own, set
    ``cascade`` and ``context_dim`` in ``__init__`` and write `draw` (``docs/environments.md``).
    """

    @abstractmethod
    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts, and how likely each answer is there.

        Returns the contexts, of shape (rounds, context_dim); a_i(x), the chance that each arm
        answers 1, (rounds, K); and y(x), the chance that 1 is right, (rounds,): 0 or 1 where the
        label is certain.
        """

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds: contexts, then all answers, then the labels."""
        contexts, says_one, is_one = self.draw(rounds, random)
        self._check(rounds, contexts, says_one, is_one)
        right = is_one[:, None]
        errors = says_one * (1.0 - right) + (1.0 - says_one) * right
        a = says_one[:, :, None]
        b = says_one[:, None, :]
        disagreement = a * (1.0 - b) + (1.0 - a) * b
        optimal = optimal_arms(self.cascade, errors)
        return Batch(
            contexts=contexts,
            disagreement=disagreement,
            optimal=optimal,
            margins=dominance_margins(self.cascade, disagreement, optimal),
            outputs=(random.random(says_one.shape) < says_one).astype(np.int64),
            labels=(random.random(rounds) < is_one).astype(np.int64),
            error_rates=errors,
        )

    def _check(self, rounds: int, contexts: Floats, says_one: Floats, is_one: Floats) -> None:
        """Refuse what a `draw` written by a user must not return."""
        for what, values, shape in (
            ("contexts", contexts, (rounds, self.context_dim)),
            ("says_one", says_one, (rounds, self.cascade.n_arms)),
            ("is_one", is_one, (rounds,)),
        ):
            if values.shape != shape:
                raise InvalidParameterError(
                    f"draw must return {what} of shape {shape}; this has shape {values.shape}"
                )
            if what != "contexts" and not ((values >= 0) & (values <= 1)).all():
                raise InvalidParameterError(f"draw must return chances from 0 to 1 as {what}")


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
        return x, predict_logistic(x, self._arms), predict_logistic(x, self._label[None, :])[:, 0]
