"""Arms that answer 0 or 1, with chances that are known: all the truth follows from them."""

from abc import abstractmethod

import numpy as np

from stopwise.environments.base import Batch, Environment, Floats
from stopwise.errors import InvalidParameterError
from stopwise.theory.dominance import dominance_margins
from stopwise.theory.regret import optimal_arms


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
