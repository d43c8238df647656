"""The supervised comparator, which learns error rates from labels."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import as_table, checked_seed, integer, real, short_repr
from stopwise.engine import native
from stopwise.errors import (
    InvalidOutputsError,
    InvalidParameterError,
    StopwiseError,
    TruthRequiredError,
)
from stopwise.features import BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.validation import checked_stop, encode_outputs, output_table
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision, PairEvidence
from stopwise.research.comparators.base import Comparator, Truth, checked_length
from stopwise.research.environments.base import Batch

CHUNK = 65_536  # rounds between progress reports


class Supervised(Comparator):
    """The stopping test with error rates, learned from labels and the outputs of arms that ran.

    ::

        γ̂_i(x) = μ(φᵀθ̂_i), with bounds μ(φᵀθ̂_i ± α‖φ‖_{V_i⁻¹})
        stop at the first arm i with   C_j − C_i > UCB(γ_i) − LCB(γ_j)   for all j > i

    The parameters are those of `USSPD`. There is one model per arm ("was it wrong?") instead of one
    per pair.

    Examples
    --------
    >>> import stopwise as sw
    >>> from stopwise import research
    >>> cascade = sw.Cascade(costs=[0.01, 0.3])
    >>> supervised = research.Supervised(cascade, context_dim=2, forced_rounds=20)
    >>> for _ in range(40):
    ...     outputs = ["spam", "spam"][: supervised.decide([0.5, 1.0]).stop + 1]
    ...     supervised.observe([0.5, 1.0], outputs, research.Truth(label="spam"))
    >>> supervised.decide([0.5, 1.0]).stop
    0
    """

    name: ClassVar[str] = "supervised"

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int = 0,
        *,
        delta: float = 0.05,
        sigma: float = 0.1,
        kappa: float = 0.25,
        forced_rounds: int | str = 50,
        ridge: float = 1e-3,
        explore: float = 0.0,
        seed: int = 0,
        half_life: float | None = None,
    ) -> None:
        super().__init__(cascade)
        self.features: BoundFeatures = bind(
            Identity() if features is None else features, context_dim, cascade.n_arms
        )
        if self.features.self_scaling or len(self.features.maps) > 1:
            raise InvalidParameterError(
                "features must be one map for all arms, such as Polynomial or Scaled, because "
                f"Supervised models arms, not pairs; got {short_repr(features)}"
            )
        self.delta = real("delta", delta, above=0, below=1)
        self.sigma = real("sigma", sigma, above=0)
        self.kappa = real("kappa", kappa, above=0, most=0.25)
        if forced_rounds != "auto":
            forced_rounds = integer('forced_rounds, unless "auto",', forced_rounds)
        self.forced_rounds = forced_rounds
        self.ridge = real("ridge", ridge, least=1e-9)
        self.explore = real("explore", explore, least=0, most=1)
        self.seed = checked_seed(seed)
        self.half_life = None if half_life is None else real("half_life", half_life, least=1)
        self.learner = self._new_learner()

    @property
    def rounds(self) -> int:
        """The number of rounds learned from so far."""
        return self.learner.rounds

    # -- one round ----------------------------------------------------------------------------

    def decide(self, x: ArrayLike) -> Decision:
        """Return the stop for context ``x``; learn nothing."""
        trace = self.learner.decide(self.features.engine_input(x))
        assert trace is not None  # contexts are validated above
        stop, rule_stop = trace.stop, trace.rule_stop
        explored_from = rule_stop if rule_stop < stop else None
        arm, cost = self.cascade.names[stop], self.cascade.cost(stop)
        return Decision(stop, arm, cost, self._explain, trace, explored_from)

    def observe(
        self,
        x: ArrayLike,
        outputs: Sequence[Hashable],
        truth: Truth,
        *,
        rule_stop: int | None = None,
    ) -> None:
        """Learn which of the revealed outputs equal ``truth.label``."""
        n_arms = self.cascade.n_arms
        outputs = outputs if isinstance(outputs, str | bytes) else tuple(outputs)
        n, _ = encode_outputs(outputs, n_arms)
        if truth.label is None or truth.label != truth.label:
            raise TruthRequiredError(
                "Supervised requires labels; call observe(x, outputs, Truth(label=...))"
            )
        rule_stop = n - 1 if rule_stop is None else checked_stop(rule_stop, n_arms)
        wrong = np.zeros(n_arms, dtype=np.uint8)
        wrong[:n] = [output != truth.label for output in outputs]
        self.learner.observe_answers(self.features.engine_input(x), n - 1, rule_stop, wrong)

    def _explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the evidence for a decision: the compared differences in error rates."""
        compared = self.learner.evidence(decision.trace, decision.rule_stop, True)
        if compared is None:
            raise StopwiseError(
                f"the error rate estimates did not converge; increase ridge above {self.ridge:g}"
            )
        return tuple(PairEvidence(*comparison) for comparison in compared)

    # -- many rounds --------------------------------------------------------------------------

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        *,
        labels: ArrayLike | None = None,
        progress: Progress = no_progress,
    ) -> Ints:
        """Play rounds, learning from labels which arms up to each stop were right.

        ``labels`` contains the right answer in each round, in the same form as ``outputs`` (n, K).
        Returns the stops.
        """
        if outputs is None or labels is None:
            raise TruthRequiredError(
                "Supervised requires outputs and labels; call run(contexts, outputs, labels=...)"
            )
        inputs = self.features.engine_inputs(contexts)
        n, n_arms = len(inputs), self.cascade.n_arms
        table = output_table(outputs, n, n_arms)
        answers = checked_length("labels", as_table(labels), n)
        if answers.ndim != 1:
            raise InvalidParameterError(f"labels must have shape ({n},), got shape {answers.shape}")
        for t, answer in enumerate(answers.tolist()):
            if answer is None or answer != answer:
                raise InvalidOutputsError(
                    f"labels must not contain None or NaN, got {answer!r} in round {t}"
                )
        wrong = np.ascontiguousarray(table != answers[:, None]).view(np.uint8)
        stops, answered = np.empty(n, dtype=np.int64), np.full(n, n_arms)
        failed = np.zeros(n, dtype=np.uint8)
        for start in range(0, n, CHUNK):
            part = slice(start, min(start + CHUNK, n))
            self.learner.run(
                inputs[part], wrong[part], answered[part], failed[part], None, None, stops[part]
            )
            progress("rounds", part.stop, n)
        return stops

    def play(self, batch: Batch, progress: Progress = no_progress) -> Ints:
        """Play rounds drawn from an environment with labels; return the stops."""
        return self.run(batch.contexts, batch.outputs, labels=batch.labels, progress=progress)

    # -- the learned state --------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Memory of the learned state in bytes."""
        return self.learner.nbytes

    @property
    def effort(self) -> dict[str, int]:
        """Counters of the work done for exact decisions (docs/certificate.md)."""
        return self.learner.effort

    def theta(self, arm: int) -> Floats | None:
        """Return θ̂_i, the estimate for an arm, or None if it has not converged."""
        return self.learner.theta(self.cascade.index(arm))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned state as arrays by name."""
        return {"learner": np.frombuffer(self.learner.save(), dtype=np.uint8)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a `state`; if it is invalid, raise ValueError and change nothing."""
        learner = self._new_learner()
        learner.restore(state["learner"].tobytes())
        self.learner = learner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learner": self.learner.save()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.learner = self._new_learner()
        self.learner.restore(state["learner"])

    def _new_learner(self) -> native.Learner:
        cascade = self.cascade
        ellipsoid = native.Ellipsoid(self.sigma, self.kappa, self.delta, cascade.n_arms)
        return native.Learner(
            native.Supervised(ellipsoid),
            self.features.native_maps,
            gaps=cascade.gaps.ravel().tolist(),
            ridge=self.ridge,
            forced_rounds=None if isinstance(self.forced_rounds, str) else self.forced_rounds,
            transitive=False,
            explore=self.explore,
            labels=0.0,
            seed=self.seed,
            half_life=self.half_life,
            most_rows=None,
        )
