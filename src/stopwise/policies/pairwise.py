"""Base class of policies that run in the engine: a rule plus options.

The engine owns all learned state.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Bools, Bytes, Disagreements, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.engine import native
from stopwise.errors import InvalidContextError, InvalidParameterError, StopwiseError
from stopwise.features import BoundFeatures
from stopwise.policies import validation
from stopwise.policies.batch import CHUNK, BatchEngine
from stopwise.policies.labels import check_label, check_observation
from stopwise.policies.options import Options
from stopwise.policies.protocol import NOT_PARAMETERS, Policy
from stopwise.policies.round_in_progress import EngineSteps, RoundInProgress, flat_numbers
from stopwise.policies.rules import Rule
from stopwise.progress import Progress
from stopwise.records import (
    Change,
    Decision,
    Label,
    LabelCounts,
    LabelRequest,
    Observation,
    PairEvidence,
    RecordedRounds,
)

Estimate = TypeVar("Estimate")

MAX_CODED = 1024  # combinations of outputs in the cache; classifiers have few
TEXT = (str, bytes)  # types that are iterable, but are not sequences of outputs


class PairwisePolicy(Policy):
    """A policy that models, for each pair of arms, whether they disagree.

    Subclasses such as `USSLaplace` and `USSPD` choose the rule.
    """

    def __init__(self, cascade: Cascade, rule: Rule, options: Options) -> None:
        super().__init__(cascade)
        if options.labels and not rule.takes_labels:
            raise InvalidParameterError(f"{type(self).__name__} does not learn from labels")
        self.rule = rule
        self.options = options
        self._configured = options.bound_features(cascade)
        # If a Python function computes the features, the engine gets rows of features.
        self._passes_rows = not self._configured.native_maps.complete
        self._learner = self._new_learner()
        self._fitted = 0, self._configured  # number of fits, fitted features
        self._codes: dict[Hashable, tuple[int, int]] = {}  # cache of encoded outputs
        self._names, self._costs = cascade.names, cascade.cumulative.tolist()
        self._on_change: Callable[[Change], object] | None = None

    def _new_learner(self) -> native.Learner:
        """Return an untrained engine learner for the current features."""
        options, features = self.options, self._configured
        forced, n_pairs = options.forced_rounds, len(self.cascade.pairs())
        return native.Learner(
            self.rule.native_rule(self.cascade.n_arms),
            features.native_maps,
            gaps=self.cascade.gaps.ravel().tolist(),
            ridge=options.ridge,
            forced_rounds=None if isinstance(forced, str) else forced,
            transitive=options.transitive,
            explore=options.explored(self.rule.always_explores),
            labels=float(options.labels),
            seed=options.seed,
            half_life=options.half_life,
            most_rows=options.most_rows(features, n_pairs),
        )

    @property
    def features(self) -> BoundFeatures:  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
        """The feature maps, with their current scaling."""
        fits, features = self._fitted
        if fits != self._learner.fits:
            fits, maps = self._learner.fitted_maps()
            features = self._configured.fitted(maps)
            self._fitted = fits, features
        return features

    @property
    def reveals(self) -> tuple[int, ...] | None:
        """How many values each arm but the last adds to the context; None without ``reveals``."""
        return None if self._configured.stages is None else self._configured.stages.reveals

    # -- one round --------------------------------------------------------------------------------

    def decide(self, x: ArrayLike | None) -> Decision:
        """Return how deep to go for context ``x``; learn nothing."""
        trace = None if self._passes_rows else self._learner.decide(x)
        if trace is None:  # not a plain array, or invalid
            trace = self._learner.decide(self._configured.engine_input(x))
            assert trace is not None  # the context is valid
        return self._decided(trace.stop, trace.rule_stop, trace)

    def _decided(self, stop: int, rule_stop: int, trace: native.Trace) -> Decision:
        explored_from = rule_stop if rule_stop < stop else None
        arm, cost = self._names[stop], self._costs[stop]
        return Decision(stop, arm, cost, self._explain, trace, explored_from)

    def observe(
        self, x: ArrayLike | None, outputs: Sequence[Hashable], *, rule_stop: int | None = None
    ) -> LabelRequest | None:
        """Learn from the outputs of arms 0 … stop (see `Policy.observe`)."""
        n_arms = self.cascade.n_arms
        try:
            if not isinstance(outputs, TEXT):
                outputs = tuple(outputs)
            n, codes = self._codes[outputs]
        except (KeyError, TypeError):
            n, codes = validation.encode_outputs(outputs, n_arms)
            if len(self._codes) < MAX_CODED:
                self._codes[outputs] = n, codes
        stop = (
            n - 1 if rule_stop is None else validation.checked_stop(rule_stop, n_arms, "rule_stop")
        )
        learned = None if self._passes_rows else self._learner.observe(x, n, stop, codes)
        if learned is None:
            context = self._engine_context(x, n, self._pair_bits(validation.differing(codes, n)))
            learned = self._learner.observe(context, n, stop, codes)
            assert learned is not None  # the context is valid
        return self._result(learned)

    def learn(self, observation: Observation) -> LabelRequest | None:
        """Learn which arms of a round disagreed; return a request for its label, or None."""
        check_observation(observation, self.cascade.n_arms)
        stop, rule_stop = observation.stop, observation.rule_stop
        differ = self._pair_bits(np.asarray(observation.differ, dtype=np.bool_))
        context = self._engine_context(observation.context, stop + 1, differ)
        learned = self._learner.observe_answers(context, stop, rule_stop, differ)
        assert learned is not None  # the context is valid
        return self._result(learned)

    def learn_label(self, label: Label) -> None:
        """Learn which arms of a finished round were right (see `Policy.label`).

        The policy estimates from labels the gain g_ij(x) of continuing: how much more often arm j
        is right than arm i < j when the two disagree. Continuing from i to j lowers the error rate
        by p_ij·g_ij, so the test becomes C_j − C_i > UCB(p_ij)·UCB(g_ij).
        """
        if not self.rule.takes_labels:
            super().learn_label(label)
        check_label(label, self.cascade.n_arms)
        observation, request = label.observation, validation.checked_request(label.request)
        n = observation.stop + 1
        differ = self._pair_bits(np.asarray(observation.differ, dtype=np.bool_)[:n, :n])
        right = np.array(label.right, dtype=np.uint8)
        context = self._engine_context(observation.context, n, differ)
        self._learner.label(context, observation.rule_stop, right, differ, request)

    def start(self, x: ArrayLike | None = None) -> RoundInProgress:
        """Start a round that is decided step by step (see `Policy.start`)."""
        features = self._configured
        if features.stages is None:
            engine_input = features.engine_input(x)  # the context, or its features
            context = flat_numbers(x)
        else:
            engine_input = context = flat_numbers(x)
            if len(context) != features.initial_dim:
                raise InvalidContextError(
                    f"the context before the first arm must have {features.initial_dim} values "
                    f"(context_dim), got {len(context)}"
                )
        steps = native.start_round(self._learner, engine_input.tolist())
        return RoundInProgress(self._steps(context.tolist(), steps))

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from `RoundInProgress.state`."""
        saved = state["steps"]
        trace = native.Trace.__new__(native.Trace)
        trace.__setstate__(saved["trace"])
        steps = native.resume_round(self._learner, saved["round"], trace)
        return RoundInProgress.resumed(self._steps(saved["context"], steps), state)

    def _steps(self, context: Sequence[float], steps: native.Round) -> EngineSteps:
        return EngineSteps(
            tuple(context), steps, self._configured, decided=self._decided, result=self._result
        )

    def _result(self, learned: native.Learned) -> LabelRequest | None:
        """Report detected changes; return the label request, or None."""
        request = learned.request
        if self._on_change is not None:
            self._report(learned.changes)
        return None if request is None else LabelRequest(*request)

    def _report(self, changes: Sequence[native.Change]) -> None:
        if self._on_change is None:
            return
        for change in changes:
            fields = (change.round, change.pair, change.before, change.after, change.noticed)
            self._on_change(Change(*fields))

    def _engine_context(self, x: ArrayLike | None, n: int, differ: Disagreements) -> Floats:
        """Return the engine's input for the context of a round in which n arms ran."""
        features = self._configured
        if features.stages is None:
            return features.engine_input(x)
        values = flat_numbers(x)
        least, most = features.dim_at(n - 1), features.context_dim
        if not least <= len(values) <= most:
            expected = f"{least} to {most}" if least < most else f"{most}"
            raise InvalidContextError(
                f"the context must have {expected} values if {n} arms ran, got {len(values)}"
            )
        context = np.zeros(features.context_dim)
        context[: len(values)] = values
        refused = self._learner.find_invalid(context[None], differ[None], np.array([n]))
        if refused is not None:
            features.raise_invalid(context, *refused[1:])
        return context

    def _pair_bits(self, differ: Bools) -> Disagreements:
        """Flatten an (n, n) table to one value per pair of the cascade, 0 if an arm did not run."""
        n = len(differ)
        pairs = self.cascade.pairs()
        return np.array([j < n and differ[i, j] for i, j in pairs], dtype=np.uint8)

    @property
    def engine(self) -> "PairwiseBatch":
        """The batch engine."""
        return PairwiseBatch(self, self._learner, self._configured, self._report)

    # -- learned state ----------------------------------------------------------------------------

    def watch(self, on_change: Callable[[Change], object]) -> None:
        """Register a callback for changes in how often two arms disagree (docs/drift.md).

        The callback runs in the thread in which the policy learns. Saving keeps the detector's
        state but not the callback; register it again after loading.

        Examples
        --------
        >>> import stopwise as sw
        >>> cascade = sw.Cascade(costs=[0.01, 0.3])
        >>> policy = sw.USSPD(cascade, sw.Polynomial(1), context_dim=1, forced_rounds=1000)
        >>> policy.watch(lambda change: print(f"arms {change.pair} at about {change.round}"))
        >>> _ = policy.run([[0.5]] * 1000, [[1, 1]] * 640 + [[1, 2]] * 360)
        arms (0, 1) at about 640
        """
        self._learner.watch()
        self._on_change = on_change

    @property
    def learns_from_labels(self) -> bool:
        """Whether the policy supports `label`."""
        return self.rule.takes_labels

    @property
    def asks_for_labels(self) -> bool:
        """Whether the policy may return a `LabelRequest` after a round."""
        return self.options.labels > 0

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._learner.rounds

    @property
    def labels(self) -> LabelCounts:
        """How many labels were requested, received and missing (see `LabelCounts`)."""
        learner = self._learner
        return LabelCounts(learner.requested, learner.labels, learner.missing, learner.fixed_depth)

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate for a pair from all observations so far."""
        return _converged(self._learner.theta(self._pair(i, j)))

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse, which has huge entries for unobserved directions."""
        return self._learner.gram(self._pair(i, j))

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, the number of rounds in which both arms of a pair ran."""
        return int(self._learner.observations(self._pair(i, j)))

    def radius(self, i: int, j: int) -> float:
        """Return the rule's current radius for a pair: α, β_ij, z_t, z or v_t."""
        return self._learner.radius(self._pair(i, j))

    def _pair(self, i: int, j: int) -> int:
        self._configured.slot_of(i, j)  # raises if (i, j) is not a pair
        return self.cascade.pairs().index((i, j))

    def _explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision."""
        if decision.trace is None:
            return ()
        exact = decision.exact_evidence
        evidence = _converged(self._learner.evidence(decision.trace, decision.rule_stop, exact))
        return tuple(PairEvidence(*comparison) for comparison in evidence)

    @property
    def nbytes(self) -> int:
        """Size of the learned state in memory, in bytes."""
        return self._learner.nbytes

    @property
    def effort(self) -> dict[str, int]:
        """Counters of the work done for exact decisions (docs/certificate.md).

        ``passes`` counts passes over the history, ``hessians`` the Hessians computed, and
        ``rows_visited`` the rows read for both. ``rows_stored`` is the number of rows currently
        stored. ``settled`` counts decisions made without a certificate, normally 0.
        """
        return self._learner.effort

    # -- saving and copying -----------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments for an untrained copy of the policy, as plain values."""
        values = {**vars(self.rule), **vars(self.options)}
        names = signature(type(self)).parameters.keys() - NOT_PARAMETERS
        return {k: v for k, v in values.items() if k in names and v is not None}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the learned state as arrays by name."""
        return {"learner": np.frombuffer(self._learner.save(), dtype=np.uint8)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state`; raise ValueError and change nothing if it is invalid."""
        learner = state["learner"]
        if learner.dtype != np.uint8 or learner.ndim != 1:
            raise ValueError(
                "learner must be a one-dimensional uint8 array, got "
                f"dtype {learner.dtype} and shape {learner.shape}"
            )
        self._learner.restore(learner.tobytes())

    def __repr__(self) -> str:
        return f"{super().__repr__()} after {self.rounds} rounds"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the callback and the output cache, which may not pickle."""
        return {**self.__dict__, "_learner": self._learner.save(), "_on_change": None, "_codes": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._learner = self._new_learner()
        self._learner.restore(state["_learner"])


class PairwiseBatch(BatchEngine):
    """Batch engine that plays many rounds of a pairwise policy in one call."""

    def __init__(
        self,
        policy: PairwisePolicy,
        learner: native.Learner,
        features: BoundFeatures,
        report: Callable[[Sequence[native.Change]], None],
    ) -> None:
        super().__init__(policy)
        self._learner = learner
        self._features = features
        self._report = report
        self._asks = policy.asks_for_labels

    def run(self, record: RecordedRounds, progress: Progress) -> Ints:
        """Play rounds in order; return the stops."""
        contexts = self._engine_contexts(record)
        stops = np.empty(record.n, dtype=np.int64)
        differ, failed = np.ascontiguousarray(record.differ), _bytes(record.failed)
        right = labelled = None
        if self._asks and record.right is not None and record.labelled is not None:
            right, labelled = _bytes(record.right), _bytes(record.labelled)
        for start in range(0, record.n, CHUNK):
            window = slice(start, min(start + CHUNK, record.n))
            changes = self._learner.run(
                contexts[window],
                differ[window],
                record.answered[window],
                failed[window],
                None if right is None else right[window],
                None if labelled is None else labelled[window],
                stops[window],
            )
            self._report(changes)
            progress("rounds", window.stop, record.n)
        return stops

    def observe(self, record: RecordedRounds, arms: Ints, rule_stops: Ints) -> None:
        """Learn from the first ``arms[t]`` arms of each round t, skipping rounds with 0."""
        contexts, differ = self._engine_contexts(record), np.ascontiguousarray(record.differ)
        self._report(self._learner.learn(contexts, differ, arms, rule_stops))

    def decide(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Return two arrays: where each row stops, and where the rule alone would stop."""
        contexts = self._features.engine_inputs(X)
        stops, rule_stops = np.empty((2, len(contexts)), dtype=np.int64)
        self._learner.decide_many(contexts, stops, rule_stops)
        return stops, rule_stops

    def rule_stops(self, X: ArrayLike | RecordedRounds) -> Ints:
        """Return where the rule alone stops in every row.

        Only Thompson sampling makes random draws.
        """
        if isinstance(X, RecordedRounds):
            contexts, differ, answered = self._engine_contexts(X), X.differ, X.answered
        else:
            contexts = self._features.engine_inputs(X)
            n_arms = self._features.n_arms
            differ = np.zeros((len(contexts), n_arms * (n_arms - 1) // 2), dtype=np.uint8)
            answered = np.zeros(len(contexts), dtype=np.int64)
        stops = np.empty(len(contexts), dtype=np.int64)
        self._learner.rule_stops(contexts, differ, answered, stops)
        return stops

    def explore(self, n: int) -> Bools:
        """Draw which of n rounds explore, that is, run every arm regardless of the rule."""
        explored = np.zeros(n, dtype=np.uint8)
        self._learner.explore_many(explored)
        return explored.view(np.bool_)

    def _engine_contexts(self, record: RecordedRounds) -> Floats:
        """Return the engine's input for recorded rounds; raise if any of them is invalid."""
        features = self._features
        if not features.native_maps.complete:
            return features.engine_inputs(record.contexts)
        contexts = features.contexts(record.contexts)
        refused = self._learner.find_invalid(contexts, record.differ, record.answered)
        if refused is not None:
            row, slot, coordinate, finite = refused
            features.raise_invalid(contexts[row], slot, coordinate, finite, row)
        return contexts


def _bytes(values: Bools) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8)


def _converged(estimate: Estimate | None) -> Estimate:
    """Return an estimate; raise if it did not converge."""
    if estimate is None:
        raise StopwiseError(
            "the estimate did not converge because the data are nearly separable; use a larger "
            "ridge="
        )
    return estimate
