"""Cross-fitting: decide each round with a policy trained without it."""

from typing import NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from stopwise.arrays import Bools, Ints
from stopwise.policies.labels import recorded_label
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.records import RecordedRounds
from stopwise.service.domain import spec as specs
from stopwise.service.domain.messages import CascadeSpec

FOLDS = 5
REPEATS = 2  # each with different random folds, to average out part of their variance
SEED = 20261  # fixed, so that the same rounds give the same report


class CrossFit(NamedTuple):
    """Cross-fitted stops of the n complete rounds.

    ``stops`` (REPEATS, n) contains each round's stop, decided by the policy trained without the
    round's fold. ``by_policy`` (REPEATS, FOLDS, n) contains every policy's stops for all rounds,
    from which the variance between policies is estimated.
    """

    stops: Ints
    by_policy: Ints


def cross_fit(spec: CascadeSpec, policy: PairwisePolicy, rounds: RecordedRounds) -> CrossFit:
    """For each fold, train a policy on the other folds; return the stops of these policies.

    ``policy`` has learned from all of the rounds. If labels have fixed the arm at which it stops,
    no policies are trained, and every stop is that arm.
    """
    evaluated = rounds.answered == policy.cascade.n_arms
    complete = rounds.select(evaluated)
    by_policy = np.empty((REPEATS, FOLDS, complete.n), dtype=np.int64)
    if policy.labels.fixed_depth is not None:
        by_policy[:] = policy.labels.fixed_depth
        return CrossFit(by_policy[:, 0], by_policy)
    stops = np.empty((REPEATS, complete.n), dtype=np.int64)
    random = np.random.default_rng(SEED)
    missing = missing_labels(policy, rounds)
    for repeat in range(REPEATS):
        fold = random.permutation(rounds.n) % FOLDS
        for k in range(FOLDS):
            training = fold != k
            fitted = train_policy(spec, rounds.select(training), missing[training])
            decisions = fitted.decide_many(complete)
            held_out = fold[evaluated] == k
            by_policy[repeat, k] = decisions
            stops[repeat, held_out] = decisions[held_out]
    return CrossFit(stops, by_policy)


def missing_labels(policy: PairwisePolicy, rounds: RecordedRounds) -> Bools:
    """Return which rounds to treat as if their label had been requested but never arrived.

    The log contains labels, but not unanswered label requests. The rounds of these requests are
    therefore drawn at random from the unlabelled rounds in which arms disagree, so that the ratio
    of missing to received labels is the same as for ``policy``.
    """
    chosen = np.zeros(rounds.n, dtype=np.bool_)
    if not policy.labels.received:
        return chosen
    labelled = _labelled(rounds)
    possible = np.flatnonzero((rounds.differ > 0).any(axis=1) & ~labelled)
    count = round(int(labelled.sum()) * policy.labels.missing / policy.labels.received)
    random = np.random.default_rng(SEED)
    chosen[random.permutation(possible)[:count]] = True
    return chosen


def train_policy(
    spec: CascadeSpec, rounds: RecordedRounds, missing: Bools | None = None
) -> PairwisePolicy:
    """Return a new policy trained on shadow rounds, in which every arm ran.

    ``forced_rounds`` makes the policy run every arm while it learns. The policy requests labels
    only in the ``missing`` rounds; if it also requested labels in other rounds, every label that
    the log lacks would count as missing. It learns the labels in the log as if they had not been
    requested.
    """
    settings = dict(spec.policy)
    settings["forced_rounds"] = rounds.n
    if settings.get("labels"):
        settings["labels"] = 3 * rounds.n  # a third may be requested at once, which is `rounds.n`
    policy = cast(PairwisePolicy, specs.build(replace(spec, policy=settings)))
    unlabelled = replace(rounds, right=None, labelled=None)
    if not settings.get("labels") or missing is None:
        missing = np.zeros(rounds.n, dtype=np.bool_)
    for section in np.split(np.arange(rounds.n), np.flatnonzero(np.diff(missing)) + 1):
        selected = unlabelled.select(section)
        if missing[section].any():
            policy.run_recorded(selected)
        else:
            policy.observe_many(selected, selected.answered - 1)
    if settings.get("labels"):
        for t in np.flatnonzero(_labelled(rounds)).tolist():
            stop = int(rounds.answered[t]) - 1
            label = recorded_label(rounds, t, stop, stop, None, policy.cascade.n_arms)
            if label is not None:
                policy.learn_label(label)
    return policy


def _labelled(rounds: RecordedRounds) -> Bools:
    """Return which rounds have a label."""
    return np.zeros(rounds.n, dtype=np.bool_) if rounds.labelled is None else rounds.labelled
