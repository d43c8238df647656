"""The clairvoyant comparator: the stopping test with the true disagreement."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats, Ints
from stopwise.checks import as_table, rounds_in
from stopwise.errors import InvalidParameterError, TruthRequiredError
from stopwise.policies.stopping import first_passing
from stopwise.policies.validation import output_table
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision
from stopwise.research.comparators.base import Comparator, Truth, checked_length
from stopwise.research.environments.base import Batch
from stopwise.research.theory.regret import TIE


class Clairvoyant(Comparator):
    """The stopping test of USS-PD with the true p_ij(x) instead of estimates.

    It is optimal in every context with weak dominance. In other contexts, disagreement cannot
    identify the best arm.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> clairvoyant = research.Clairvoyant(sw.Cascade(costs=[0.1, 0.2]))
    >>> clairvoyant.decide(None, research.Truth(disagreement=[[0.0, 0.1], [0.1, 0.0]])).stop
    0
    """

    name: ClassVar[str] = "clairvoyant"

    def decide(self, x: Any, truth: Truth) -> Decision:
        """Return the stop for ``truth.disagreement``; the context is not used."""
        if truth.disagreement is None:
            raise TruthRequiredError("Clairvoyant requires p_ij(x); pass Truth(disagreement=...)")
        p = self._checked(np.asarray(truth.disagreement)[None], 1)
        return self._decision(int(self._stops(p)[0]))

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        disagreement: ArrayLike,
        progress: Progress = no_progress,
    ) -> Ints:
        """Return the stops, given ``disagreement``, the true p_ij(x) of shape (n, K, K).

        ``outputs`` are validated but not used.
        """
        n = rounds_in(as_table(contexts))
        if outputs is not None:
            output_table(outputs, n, self.cascade.n_arms)
        stops = self._stops(self._checked(disagreement, n))
        progress("rounds", n, n)
        return stops

    def play(self, batch: Batch, progress: Progress = no_progress) -> Ints:
        """Play rounds drawn from an environment; return the stops."""
        p = batch.disagreement
        return self.run(batch.contexts, batch.outputs, disagreement=p, progress=progress)

    def _checked(self, disagreement: ArrayLike, n: int) -> Floats:
        p = checked_length("disagreement", np.asarray(disagreement), n)
        k = self.cascade.n_arms
        if p.shape != (n, k, k):
            raise InvalidParameterError(
                f"disagreement must have shape ({n}, {k}, {k}), got shape {p.shape}"
            )
        if np.isnan(p).any():
            raise InvalidParameterError(
                f"disagreement must not contain NaN, got {np.isnan(p).sum()} NaN values"
            )
        return p

    def _stops(self, disagreement: Floats) -> Ints:
        # A gap within TIE of p is a tie, as in `optimal_arms`. Otherwise, rounding errors would
        # add regret.
        return first_passing(self.cascade.gaps - disagreement > TIE)
