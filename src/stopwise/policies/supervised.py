"""The supervised comparator: what could be learned from right answers."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.engine import native
from stopwise.errors import InvalidParameterError, TruthRequiredError
from stopwise.policies.base import Policy
from stopwise.policies.checking import Differ, KnownTruth, checked_stop, encode_outputs
from stopwise.policies.uss_pd import ConfidencePolicy
from stopwise.records import Truth


class Supervised(ConfidencePolicy):
    """Given whether each revealed arm was right, it estimates error rates and stops by them.

    ::

        γ̂_i(x) = μ(φᵀθ̂_i), with bounds μ(φᵀθ̂_i ± α‖φ‖_{V_i⁻¹})
        stop at the first arm i with   C_j − C_i > UCB(γ_i) − LCB(γ_j)   for all j > i

    As `USSPD`, with the same parameters and one model per arm ("was it wrong?") instead of one per
    pair. For comparison only: it needs the truth that the other policies do without.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> policy = research.Supervised(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, forced_rounds=20)
    >>> for _ in range(40):
    ...     stop = policy.decide([0.5, 1.0]).stop
    ...     policy.observe([0.5, 1.0], ["spam", "spam"][: stop + 1], research.Truth(label="spam"))
    >>> policy.decide([0.5, 1.0]).stop
    0
    """

    name: ClassVar[str] = "supervised"
    needs_truth: ClassVar[tuple[str, ...]] = ("labels",)
    estimates_disagreement: ClassVar[bool] = False
    label = Policy.label  # its labels come with the outputs

    def _rule(self) -> native.Rule:
        return native.Supervised(self.ellipsoid)

    def questions(self) -> list[tuple[int, int]]:
        """Return the slot of features and the arm of each question: whether an arm is wrong."""
        if len(self.features.maps) > 1:
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
        outputs = list(outputs) if isinstance(outputs, Iterator) else outputs  # read twice below
        n, _ = encode_outputs(outputs, self._n_arms)
        if truth is None or truth.label is None or truth.label != truth.label:
            raise TruthRequiredError(
                "the supervised comparator learns from right answers: "
                "observe(x, outputs, Truth(label=...))"
            )
        rule_stop = n - 1 if rule_stop is None else checked_stop(rule_stop, self._n_arms)
        wrong = np.zeros((1, self._n_arms), dtype=np.uint8)
        wrong[0, :n] = [output != truth.label for output in outputs]
        ends = np.array([n - 1]), np.array([rule_stop])
        self.learner.learn(self.features.row(x)[None], wrong, *ends, None)

    def _answers(self, outputs: NDArray[Any], truth: KnownTruth) -> Differ:
        """Return which arms were wrong."""
        return np.ascontiguousarray(outputs != truth["labels"][:, None]).view(np.uint8)
