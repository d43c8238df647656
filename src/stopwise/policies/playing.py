"""Batch execution in the engine, in chunks that end where features are fitted again."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Differ, Floats, Ints
from stopwise.policies.batch import CHUNK, BatchEngine
from stopwise.policies.staged import recorded_rows
from stopwise.progress import Progress
from stopwise.records import RecordedRounds

if TYPE_CHECKING:
    from stopwise.policies.contextual import Contextual


class ContextualEngine(BatchEngine):
    """Plays many rounds of a contextual policy in one call."""

    def __init__(self, policy: "Contextual") -> None:
        super().__init__(policy)
        self._policy = policy

    def run(self, record: RecordedRounds, progress: Progress) -> Ints:
        """Play rounds in order; return the stops."""
        with self._policy.lock:
            return play(self._policy, record, progress)

    def observe(self, record: RecordedRounds, ends: Ints, rule_ends: Ints) -> None:
        """Learn from rounds that ended at ``ends`` (−1: not at all), deciding nothing."""
        with self._policy.lock:
            learn_recorded(self._policy, record, ends, rule_ends)

    def decide(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Return the stop of every row, and where the rule itself stops."""
        policy = self._policy
        with policy.lock:
            rows = policy.features.rows(X)
            stops, rule_stop = np.empty((2, len(rows)), dtype=np.int64)
            policy.learner.decide_many(rows, stops, rule_stop)
        return stops, rule_stop

    def rule_stops(self, X: ArrayLike) -> Ints:
        """Return where the rule stops for every row; draw nothing, except for the rule."""
        with self._policy.lock:
            return rule_stops(self._policy, self._policy.features.rows(X))

    def should_stop(self, record: RecordedRounds) -> Bools:
        """Return whether the rule stops each round at the last arm that answered."""
        policy = self._policy
        if not policy.sees_revealed:
            return super().should_stop(record)
        with policy.lock:
            return rule_stops(policy, recorded_rows(policy.features, record)) < record.answered

    def explore(self, n: int) -> Bools:
        """Draw which of n rounds go to the last arm at random."""
        explored = np.zeros(n, dtype=np.uint8)
        self._policy.learner.explore_many(explored)
        return explored.view(np.bool_)


def play(policy: "Contextual", rounds: RecordedRounds, progress: Progress) -> Ints:
    """Decide rounds in order, reveal what each stop reveals, learn; return the stops."""
    contexts = np.asarray(rounds.contexts, dtype=np.float64)
    record = replace(rounds, contexts=contexts)
    n, done = record.n, 0
    # as the engine reads it: what a failed round knows differs from what a record lacks
    last = record.answered - 1
    known = np.where(record.failed & (last >= 0), -2 - last, last)
    wrong = _wrong(record)
    (stops, rule_stop), requests = np.empty((2, n), dtype=np.int64), np.empty((n, 3))
    _check(policy, record)
    while done < n:
        here = _next(policy, done, n)
        part, reach = _part(record, here), known[here]
        rows = recorded_rows(policy.features, part)
        ends = stops[here], rule_stop[here], requests[here]
        labels = None if wrong is None else wrong[here]
        policy.learner.run(rows, part.differ, reach, labels, *ends)
        learned = np.flatnonzero(~np.isnan(requests[here, 0]))
        reached = np.where(reach < -1, np.minimum(stops[here], -2 - reach), stops[here])
        _hold(policy, part, learned, reached, rule_stop[here], requests[here])
        done = here.stop
        progress("rounds", done, n)
    return stops


def rule_stops(policy: "Contextual", rows: Floats) -> Ints:
    """Return where the rule stops by these features, learning nothing.

    Features of arms that have not run are zeros: a stop beyond the last arm that ran means only
    that the rule does not stop before.
    """
    stops = np.empty(len(rows), dtype=np.int64)
    policy.learner.decide_many(rows, stops, None)
    return stops


def learn_recorded(
    policy: "Contextual", record: RecordedRounds, ends: Ints, rule_ends: Ints
) -> None:
    """Learn from rounds that ended at ``ends`` (−1: not at all), deciding nothing."""
    done = 0
    _check(policy, record)
    while done < record.n:
        here = _next(policy, done, record.n)
        part = _part(record, here)
        rows = recorded_rows(policy.features, part)
        policy.learner.learn(rows, part.differ, ends[here], rule_ends[here], None)
        _hold(policy, part, np.flatnonzero(ends[here] >= 0), ends[here], rule_ends[here], None)
        done = here.stop


def _check(policy: "Contextual", record: RecordedRounds) -> None:
    """Refuse all rounds before any is played, where they are not played at once."""
    if policy.held is not None or record.n == 0:
        recorded_rows(policy.features, record)


def _next(policy: "Contextual", done: int, n: int) -> slice:
    """Return the rounds that can be played before features change."""
    room = CHUNK if policy.alarm is None else policy.alarm.room
    return slice(done, min(done + (room if policy.held is None else policy.held.room), n))


def _hold(
    policy: "Contextual",
    record: RecordedRounds,
    learned: Ints,
    stops: Ints,
    rule_stops: Ints,
    requests: Floats | None,
) -> None:
    """Let a policy hold what it has learned while features are to be fitted; watch it after."""
    if policy.held is None and policy.alarm is not None:
        ends = stops[learned], rule_stops[learned]
        policy.alarm.add(record.contexts[learned], record.differ[learned], *ends)
    for t in learned.tolist() if policy.held is not None else ():
        stop, rule_stop, differ = int(stops[t]), int(rule_stops[t]), record.differ[t]
        asked = requests is not None and requests[t, 0] > 0
        label = _label(record, t, stop) if asked else None
        if requests is not None and label is not None and policy.held is not None:
            context = record.contexts[t].tolist()
            probability, explored, number = requests[t].tolist()
            request = (probability, explored, number)
            policy.held.hold_label(
                context, rule_stop, label, differ.tolist(), request, of_next=True
            )
        policy.hold(record.contexts[t], stop, rule_stop, differ, requests is not None)


def _part(record: RecordedRounds, here: slice) -> RecordedRounds:
    """Return some of the rounds, in the form that the engine reads."""
    part = record.select(here)
    return replace(part, differ=np.ascontiguousarray(part.differ))


def _label(record: RecordedRounds, t: int, stop: int) -> list[bool] | None:
    """Return which arms up to the stop were right; None if round t has no label."""
    if record.right is None or record.labelled is None or not record.labelled[t]:
        return None
    return record.right[t, : stop + 1].tolist()


def _wrong(record: RecordedRounds) -> Differ | None:
    """Return the labels as the engine reads them: 1 where an arm was wrong, 2 where unknown."""
    if record.right is None or record.labelled is None:
        return None
    return np.where(record.labelled[:, None], ~record.right, 2).astype(np.uint8)
