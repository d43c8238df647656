"""The oracle comparator: the optimal arm in every context."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Ints
from stopwise.checks import as_table, rounds_in, short_repr
from stopwise.errors import InvalidStopError, TruthRequiredError
from stopwise.policies.validation import output_table
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision
from stopwise.research.comparators.base import Comparator, Truth, checked_length
from stopwise.research.environments.base import Batch


class Oracle(Comparator):
    """The rule that stops at the optimal arm in every context; its regret is zero by definition.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> oracle = research.Oracle(sw.Cascade(costs=[0.1, 0.2]))
    >>> oracle.decide(None, research.Truth(optimal=1)).stop
    1
    >>> oracle.run([[0.5], [0.7]], optimal=[1, 0]).tolist()
    [1, 0]
    """

    name: ClassVar[str] = "oracle"

    def decide(self, x: Any, truth: Truth) -> Decision:
        """Return the optimal arm, ``truth.optimal``; the context is not used."""
        if truth.optimal is None:
            raise TruthRequiredError("Oracle requires the optimal arm; pass Truth(optimal=...)")
        return self._decision(int(self._checked([truth.optimal], 1)[0]))

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        optimal: ArrayLike,
        progress: Progress = no_progress,
    ) -> Ints:
        """Return ``optimal``, the optimal arm of each round, as the stops.

        ``outputs`` are validated but not used.
        """
        n = rounds_in(as_table(contexts))
        if outputs is not None:
            output_table(outputs, n, self.cascade.n_arms)
        stops = self._checked(optimal, n)
        progress("rounds", n, n)
        return stops

    def play(self, batch: Batch, progress: Progress = no_progress) -> Ints:
        """Play rounds drawn from an environment; return the stops."""
        return self.run(batch.contexts, batch.outputs, optimal=batch.optimal, progress=progress)

    def _checked(self, optimal: ArrayLike, n: int) -> Ints:
        stops = checked_length("optimal", np.asarray(optimal), n)
        n_arms = self.cascade.n_arms
        if stops.shape != (n,) or not np.isin(stops, range(n_arms)).all():
            raise InvalidStopError(
                f"optimal must have one arm index (0 to {n_arms - 1}) per round, got "
                f"{short_repr(stops.tolist())}"
            )
        return stops.astype(np.int64)
