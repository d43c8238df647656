"""Batch execution of rounds."""

import warnings
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Bools, Ints
from stopwise.cascade import Cascade
from stopwise.checks import as_table, rounds_in
from stopwise.errors import InvalidOutputsError, InvalidParameterError, LabelWarning
from stopwise.features import BoundFeatures
from stopwise.policies import validation
from stopwise.policies.labels import recorded_label, recorded_observation
from stopwise.progress import Progress, no_progress
from stopwise.records import Decision, Label, LabelRequest, Observation, RecordedRounds

CHUNK = 65_536  # rounds per call to the engine; bounds the memory of a long run
REPORT_EVERY = 1024  # rounds between progress reports, if played one by one


class Steps(Protocol):
    """The policy methods that batch execution needs."""

    cascade: Cascade
    uses_context: ClassVar[bool]

    @property
    def features(self) -> BoundFeatures | None: ...  # noqa: D102 (see `Policy`)

    @property
    def learns_from_labels(self) -> bool: ...  # noqa: D102

    @property
    def asks_for_labels(self) -> bool: ...  # noqa: D102

    @property
    def engine(self) -> "BatchEngine": ...  # noqa: D102

    def decide(self, x: ArrayLike | None) -> Decision: ...  # noqa: D102

    def learn(self, observation: Observation) -> LabelRequest | None: ...  # noqa: D102

    def learn_label(self, label: Label) -> None: ...  # noqa: D102


class BatchEngine:
    """Play validated rounds one by one with `decide` and `learn`.

    Subclasses for built-in policies play many rounds in one call, with the same result.
    """

    def __init__(self, policy: Steps) -> None:
        self._steps = policy

    def run(self, record: RecordedRounds, progress: Progress) -> Ints:
        """Play rounds in order; return the stops."""
        policy, n_arms = self._steps, self._steps.cascade.n_arms
        record = replace(record, contexts=checked_contexts(policy, record.contexts))
        stops = np.empty(record.n, dtype=np.int64)
        for t, x in enumerate(record.contexts):
            decision = policy.decide(x)
            stop = stops[t] = validation.checked_stop(decision.stop, n_arms)
            end = validation.learned_end(record, t, int(stop))
            if end is not None:
                self._learn(record, t, end, decision.rule_stop)
            if (t + 1) % REPORT_EVERY == 0 or t + 1 == record.n:
                progress("rounds", t + 1, record.n)
        return stops

    def _learn(self, record: RecordedRounds, t: int, end: int, rule_stop: int) -> None:
        """Learn from a finished round, and from its label if one is requested and recorded."""
        n_arms = self._steps.cascade.n_arms
        request = self._steps.learn(recorded_observation(record, t, end, rule_stop, n_arms))
        if request is not None:
            label = recorded_label(record, t, end, rule_stop, request, n_arms)
            if label is not None:
                self._steps.learn_label(label)

    def observe(self, record: RecordedRounds, arms: Ints, rule_stops: Ints) -> None:
        """Learn from the first ``arms[t]`` arms of each round t; skip rounds in which it is 0."""
        policy, n_arms = self._steps, self._steps.cascade.n_arms
        record = replace(record, contexts=checked_contexts(policy, record.contexts))
        for t in np.flatnonzero(arms > 0).tolist():
            stop, rule_stop = int(arms[t]) - 1, int(rule_stops[t])
            policy.learn(recorded_observation(record, t, stop, rule_stop, n_arms))

    def decide(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Return two arrays: where each row stops, and where the rule alone would stop."""
        decisions = [self._steps.decide(x) for x in checked_contexts(self._steps, X)]
        stops = np.array([decision.stop for decision in decisions], dtype=np.int64)
        rule_stops = np.array([decision.rule_stop for decision in decisions], dtype=np.int64)
        return stops, rule_stops

    def rule_stops(self, X: ArrayLike | RecordedRounds) -> Ints:
        """Return where the rule alone stops in every row; make no random draws if possible."""
        return self.decide(X.contexts if isinstance(X, RecordedRounds) else X)[1]

    def explore(self, n: int) -> Bools:
        """Draw which of n rounds explore, that is, run every arm regardless of the rule."""
        return np.zeros(n, dtype=np.bool_)


def run(
    policy: Steps,
    contexts: ArrayLike,
    outputs: ArrayLike | None,
    labels: ArrayLike | None = None,
    progress: Progress = no_progress,
) -> Ints:
    """Play rounds for which the outputs of all arms are available (see `Policy.run`)."""
    if outputs is None:
        raise InvalidOutputsError(
            "run requires outputs of shape (n, K), or differ= with a column per pair of arms"
        )
    n, n_arms = rounds_in(as_table(contexts)), policy.cascade.n_arms
    right, labelled = None, None
    answers = _checked_labels(policy, labels, n)
    table = validation.output_table(outputs, n, n_arms)
    if answers is not None:
        right, labelled = validation.right_arms(table, answers)
    elif policy.asks_for_labels and n:
        warnings.warn(
            f"{type(policy).__name__} requests labels, but run was called without labels=, so its "
            "requests are wasted; pass labels=, with None for unknown labels",
            LabelWarning,
            stacklevel=3,
        )
    differ = validation.disagreements(table, policy.cascade)
    answered, failed = np.full(n, n_arms), np.zeros(n, dtype=np.bool_)
    record = RecordedRounds(cast(Any, contexts), differ, answered, failed, right, labelled)
    return run_recorded(policy, record, progress)


def run_disagreements(
    policy: Steps,
    contexts: ArrayLike,
    outputs: ArrayLike | None,
    differ: ArrayLike,
    labels: ArrayLike | None,
    progress: Progress = no_progress,
) -> Ints:
    """Play rounds for which all pairwise disagreements are available (see `Policy.run`)."""
    if outputs is not None or labels is not None:
        raise InvalidParameterError(
            "differ= cannot be combined with outputs or labels=; pass outputs to use labels"
        )
    n = rounds_in(as_table(contexts))
    answered, failed = np.full(n, policy.cascade.n_arms), np.zeros(n, dtype=np.bool_)
    record = RecordedRounds(cast(Any, contexts), cast(Any, differ), answered, failed)
    return run_recorded(policy, record, progress)


def run_recorded(policy: Steps, rounds: RecordedRounds, progress: Progress = no_progress) -> Ints:
    """Play recorded rounds (see `Policy.run_recorded`)."""
    record = validation.checked_rounds(rounds, policy.cascade, policy.uses_context)
    return policy.engine.run(record, progress)


def observe_many(
    policy: Steps, rounds: RecordedRounds, stops: ArrayLike, rule_stop: ArrayLike | None = None
) -> None:
    """Learn from recorded rounds without deciding (see `Policy.observe_many`)."""
    n_arms = policy.cascade.n_arms
    record = validation.checked_rounds(rounds, policy.cascade, policy.uses_context)
    arms = validation.learned_arms(record, stops, n_arms)
    rule_stops = np.maximum(arms - 1, 0)
    if rule_stop is not None:
        # If a round ended before the rule's stop, its end counts as the rule's stop.
        column = validation.stop_column(rule_stop, record.n, n_arms)
        rule_stops = np.where(column < 0, rule_stops, np.minimum(column, rule_stops))
    policy.engine.observe(record, arms, rule_stops)


def decide_many(policy: Steps, X: ArrayLike | RecordedRounds) -> Ints:
    """Return where the rule alone stops in every row of ``X`` (see `Policy.decide_many`)."""
    if isinstance(X, RecordedRounds):
        record = validation.checked_rounds(X, policy.cascade, policy.uses_context)
        return policy.engine.rule_stops(record)
    return policy.engine.rule_stops(X)


def decide_batch(policy: Steps, X: ArrayLike) -> tuple[Ints, Ints]:
    """Decide for every row as `decide` does, including random exploration.

    Returns two columns: `Decision.stop` and `Decision.rule_stop` of every row.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.FixedDepth(sw.Cascade(costs=[0.1, 0.2, 0.2]), depth=1)
    >>> decide_batch(policy, [[0.5], [0.7]])[0].tolist()
    [1, 1]
    """
    return policy.engine.decide(X)


def should_stop_many(policy: Steps, rounds: RecordedRounds) -> Bools:
    """Return whether the rule stops each round at the last arm that answered; learn nothing.

    Use it for rounds that advance together, arm by arm, with increasing ``answered``. Call it at
    every arm of a round, in order; a randomised rule makes a new draw at each arm.
    """
    record = validation.checked_rounds(rounds, policy.cascade, policy.uses_context)
    return policy.engine.rule_stops(record) < record.answered


def explore_many(policy: Steps, n: int) -> Bools:
    """Draw which of n rounds explore, that is, run every arm regardless of the rule."""
    return policy.engine.explore(n)


def checked_contexts(policy: Steps, contexts: ArrayLike) -> NDArray[Any]:
    """Return a copy of the contexts as a table; raise if a row is invalid."""
    if policy.features is not None:
        policy.features.rows(contexts)
        return np.array(contexts, dtype=np.float64)
    table = np.array(contexts)
    rounds_in(table)
    return table


def _checked_labels(policy: Steps, labels: ArrayLike | None, n: int) -> NDArray[Any] | None:
    """Return the labels of n rounds, if any; raise if the policy does not request labels."""
    if labels is None:
        return None
    if not policy.asks_for_labels:
        kind = type(policy).__name__
        advice = f"create it with labels=, for example {kind}(cascade, …, labels=100)"
        if not policy.learns_from_labels:
            advice = "use USSLaplace or USSPD"
        raise InvalidParameterError(
            f"labels= was passed, but this {kind} does not request labels; {advice}"
        )
    return validation.label_column(labels, n)
