"""Environments whose arms independently answer 0 or 1 with known probabilities."""

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
    """Arm i answers 1 with probability a_i(x) and the label is 1 with probability y(x).

    Given x, all answers and the label are independent, so

        γ_i(x) = a_i(1 − y) + (1 − a_i)y,    p_ij(x) = a_i(1 − a_j) + (1 − a_i)a_j

    These determine the optimal arm and the margin ξ(x). Subclasses set ``cascade`` and
    ``context_dim`` in ``__init__`` and implement `draw` (``docs/environments.md``).
    """

    @abstractmethod
    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts; return them with a_i(x) and y(x).

        Returns
        -------
        contexts : ndarray of shape (rounds, context_dim)
        arm_probabilities : ndarray of shape (rounds, K)
            a_i(x), the probability that each arm answers 1.
        label_probability : ndarray of shape (rounds,)
            y(x), the probability that the label is 1; use 0 or 1 for deterministic labels.
        """

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds: first contexts, then all answers, then labels."""
        contexts, arm_probabilities, label_probability = self.draw(rounds, random)
        self._check(rounds, contexts, arm_probabilities, label_probability)
        y = label_probability[:, None]
        errors = arm_probabilities * (1.0 - y) + (1.0 - arm_probabilities) * y
        a = arm_probabilities[:, :, None]
        b = arm_probabilities[:, None, :]
        disagreement = a * (1.0 - b) + (1.0 - a) * b
        optimal = optimal_arms(self.cascade, errors)
        return Batch(
            contexts=contexts,
            disagreement=disagreement,
            optimal=optimal,
            margins=dominance_margins(self.cascade, disagreement, optimal),
            outputs=(random.random(arm_probabilities.shape) < arm_probabilities).astype(np.int64),
            labels=(random.random(rounds) < label_probability).astype(np.int64),
            error_rates=errors,
        )

    def _check(
        self,
        rounds: int,
        contexts: Floats,
        arm_probabilities: Floats,
        label_probability: Floats,
    ) -> None:
        """Validate the result of a user-defined `draw`."""
        for name, values, shape in (
            ("contexts", contexts, (rounds, self.context_dim)),
            ("arm_probabilities", arm_probabilities, (rounds, self.cascade.n_arms)),
            ("label_probability", label_probability, (rounds,)),
        ):
            if values.shape != shape:
                raise InvalidParameterError(
                    f"draw must return {name} of shape {shape}, got shape {values.shape}"
                )
            if name != "contexts" and not ((values >= 0) & (values <= 1)).all():
                raise InvalidParameterError(
                    f"draw must return {name} in [0, 1], got values from {values.min():g} to "
                    f"{values.max():g}"
                )


class LogisticArms(BinaryArms):
    """Contexts uniform in [−1, 1]^d; arm i answers 1 with probability μ(xᵀw_i + b_i).

    The label is 1 with probability μ(xᵀw + b). Given the context, the answers and the label are
    independent (see `BinaryArms`). ``arms`` has a row (w_i, b_i) per arm; ``label`` is (w, b).

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
                f"arms must have {cascade.n_arms} rows (one per arm), each with at least one "
                f"weight and a bias, got shape {self._arms.shape}"
            )
        self._label = vector("label", label, size=self._arms.shape[1])
        self.context_dim = self._arms.shape[1] - 1

    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts; return them with a_i(x) and y(x) (see `BinaryArms.draw`)."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        return x, predict_logistic(x, self._arms), predict_logistic(x, self._label[None, :])[:, 0]
