"""The supervised comparator: what could be learned if the right answers were told."""

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.engine import native
from stopwise.errors import TruthRequiredError
from stopwise.features import FeaturesLike
from stopwise.policies.base import Progress, number
from stopwise.policies.contextual import Bytes, Contextual, Ints
from stopwise.policies.uss_pd import ellipsoid
from stopwise.records import Truth


class Supervised(Contextual):
    """Told whether each revealed arm was right, it estimates error rates and stops by them.

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
    needs_truth: ClassVar[bool] = True
    _supervised: ClassVar[bool] = True

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
        self.delta = number("delta", delta, above=0, below=1)
        self.sigma = number("sigma", sigma, above=0)
        self.kappa = number("kappa", kappa, above=0, most=0.25)
        super().__init__(
            cascade,
            features,
            context_dim,
            forced_rounds=forced_rounds,
            ridge=ridge,
        )

    def _rule(self) -> native.Rule:
        return native.Supervised(ellipsoid(self))

    def observe(
        self,
        x: ArrayLike,
        outputs: Sequence[Hashable],
        truth: Truth | None = None,
        *,
        wanted: int | None = None,
    ) -> None:
        """Learn which of the revealed outputs equal ``truth.label``."""
        del wanted
        n, _ = self._coded(outputs)
        if truth is None or truth.label is None or truth.label != truth.label:
            raise TruthRequiredError(
                "the supervised comparator learns from right answers: "
                "observe(x, outputs, Truth(label=...))"
            )
        wrong = np.zeros(self.cascade.n_arms, dtype=np.uint8)
        for arm, output in enumerate(outputs):
            wrong[arm] = output != truth.label
        self._learner.observe_answers(self.features.row(x), n - 1, n - 1, wrong)

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        progress: Progress | None = None,
    ) -> Ints:
        """Play rounds in order, in the engine; ``labels`` (n,) are the right answers."""
        if labels is None:
            raise TruthRequiredError("the supervised comparator needs labels=, one per round")
        rows = self.features.rows(contexts)
        told = self._checked_table(len(rows), outputs)
        right = self._checked_labels(len(rows), labels)

        def outcomes(start: int, stop: int) -> Bytes:
            wrong = told[start:stop] != right[start:stop, None]
            return np.ascontiguousarray(wrong).view(np.uint8)

        return self._run(rows, outcomes, progress)

    def run_disagreements(
        self, contexts: ArrayLike, differ: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Refuse: disagreements do not say who was right."""
        raise TruthRequiredError("the supervised comparator needs run(contexts, outputs, labels)")

    def error_theta(self, arm: int) -> NDArray[np.float64]:
        """Return the exact estimate of an arm's error model."""
        return self._theta(self.cascade.index(arm))

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untaught policy."""
        return {
            "delta": self.delta,
            "sigma": self.sigma,
            "kappa": self.kappa,
            "forced_rounds": self.forced_rounds,
            "ridge": self.ridge,
        }

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        raise TruthRequiredError("the supervised comparator learns from right answers only")

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        raise TruthRequiredError(
            "disagreements do not say who was right; the supervised comparator needs "
            "observe(x, outputs, Truth(label=...))"
        )
