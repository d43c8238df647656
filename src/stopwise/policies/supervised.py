"""The supervised comparator: what could be learned from right answers."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import as_table, rounds_in
from stopwise.engine import native
from stopwise.errors import InvalidParameterError, TruthRequiredError
from stopwise.features import FeaturesLike
from stopwise.policies.base import Policy
from stopwise.policies.checking import coded, output_table
from stopwise.policies.confidence import ConfidencePolicy
from stopwise.policies.contextual import Bytes, Ints
from stopwise.policies.overrides import at_once
from stopwise.records import Progress, Truth, no_progress


class Supervised(ConfidencePolicy):
    """Given whether each revealed arm was right, it estimates error rates and stops by them.

    ::

        γ̂_i(x) = μ(φᵀθ̂_i), with bounds μ(φᵀθ̂_i ± α‖φ‖_{V_i⁻¹})
        stop at the first arm i with   C_j − C_i > UCB(γ_i) − LCB(γ_j)   for all j > i

    The same machinery as `USSPD` with one model per arm ("was it wrong?") instead of one per
    pair. For comparison only: it needs the truth that the other policies do without.

    Parameters
    ----------
    cascade, features, context_dim, delta, sigma, kappa, forced_rounds, ridge
        As in `USSPD`; one feature map for all arms.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.Supervised(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, forced_rounds=20)
    >>> for _ in range(40):
    ...     stop = policy.decide([0.5, 1.0]).stop
    ...     policy.observe([0.5, 1.0], ["spam", "spam"][: stop + 1], sw.Truth(label="spam"))
    >>> policy.decide([0.5, 1.0]).stop
    0
    """

    name: ClassVar[str] = "supervised"
    needs_truth: ClassVar[tuple[str, ...]] = ("labels",)
    estimates_disagreement: ClassVar[bool] = False

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        delta: float = 0.05,
        sigma: float = 0.1,
        kappa: float = 0.25,
        forced_rounds: int | str = 50,
        ridge: float = 1e-3,
    ) -> None:
        super().__init__(
            cascade,
            features,
            context_dim,
            delta=delta,
            sigma=sigma,
            kappa=kappa,
            forced_rounds=forced_rounds,
            ridge=ridge,
        )

    def _rule(self) -> native.Rule:
        return native.Supervised(self.ellipsoid)

    def _questions(self) -> list[tuple[int, int]]:
        if not self.features.shared:
            raise InvalidParameterError(
                "the supervised comparator models arms, not pairs: give it one feature map, "
                "not one per stage or pair"
            )
        return [(0, arm) for arm in range(self.cascade.n_arms)]

    def observe(
        self,
        x: ArrayLike,
        outputs: Sequence[Hashable],
        truth: Truth | None = None,
        *,
        rule_stop: int | None = None,
    ) -> None:
        """Learn which of the revealed outputs equal ``truth.label``."""
        del rule_stop
        n, _ = coded(outputs, self._n_arms)
        if truth is None or truth.label is None or truth.label != truth.label:
            raise TruthRequiredError(
                "the supervised comparator learns from right answers: "
                "observe(x, outputs, Truth(label=...))"
            )
        wrong = np.zeros(self.cascade.n_arms, dtype=np.uint8)
        for arm, output in enumerate(outputs):
            wrong[arm] = output != truth.label
        self._learner.observe_answers(self.features.row(x), n - 1, n - 1, wrong)

    @at_once(Policy.run)
    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order, in the engine; ``labels`` (n,) are the right answers."""
        labels = self._checked_truth(rounds_in(as_table(contexts)), truth)["labels"]
        rows = self.features.rows(contexts)
        table = output_table(outputs, len(rows), self._n_arms)

        def outcomes(part: slice) -> Bytes:
            wrong = table[part] != labels[part, None]
            return np.ascontiguousarray(wrong).view(np.uint8)

        return self._run(rows, outcomes, progress)

    def error_theta(self, arm: int) -> NDArray[np.float64]:
        """Return the exact estimate of an arm's error model."""
        return self._theta(self.cascade.index(arm))
