"""Cross-fitting: where each round would end under a policy that has not learned from it."""

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
REPEATS = 2  # each with other folds: averages out part of what the choice of folds adds
SEED = 20261  # of the choice of folds, so that the same rounds give the same report


class CrossFit(NamedTuple):
    """Where the n rounds with every output would end.

    ``stops`` (REPEATS, n) is by the policies that were trained without the round's fold.
    ``by_policy`` (REPEATS, FOLDS, n) is by each policy on all rounds: how much policies vary.
    """

    stops: Ints
    by_policy: Ints


def cross_fit(spec: CascadeSpec, policy: PairwisePolicy, rounds: RecordedRounds) -> CrossFit:
    """Train policies, each without one fold of the rounds, and let them decide.

    ``policy`` is the one that has learned from all of these rounds. If labels have fixed its depth,
    it decides nothing by disagreement, and all policies stop there.
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
            used = fold != k
            fitted = trained(spec, rounds.select(used), missing[used])
            decided = fitted.decide_many(complete)
            left_out = fold[evaluated] == k
            by_policy[repeat, k] = decided
            stops[repeat, left_out] = decided[left_out]
    return CrossFit(stops, by_policy)


def missing_labels(policy: PairwisePolicy, rounds: RecordedRounds) -> Bools:
    """Choose rounds whose labels count as missing, so that the same share is as for ``policy``.

    The log has the labels that came, but not the requests that were never answered. They are drawn
    at random from the rounds without a label in which arms disagree.
    """
    chosen = np.zeros(rounds.n, dtype=np.bool_)
    if not policy.labels.came:
        return chosen
    labelled = _labelled(rounds)
    possible = np.flatnonzero((rounds.differ > 0).any(axis=1) & ~labelled)
    count = round(int(labelled.sum()) * policy.labels.missing / policy.labels.came)
    random = np.random.default_rng(SEED)
    chosen[random.permutation(possible)[:count]] = True
    return chosen


def trained(
    spec: CascadeSpec, rounds: RecordedRounds, missing: Bools | None = None
) -> PairwisePolicy:
    """Return a new policy that has learned from rounds in shadow: every arm ran.

    Forced rounds make it run every arm while it learns, and afterwards it decides. It learns from
    every label of the log as from one that was not asked for: if it asked for labels, all that the
    log does not have would count as missing. It asks for the ``missing`` ones only.
    """
    settings = dict(spec.policy)
    settings["forced_rounds"] = rounds.n
    if settings.get("labels"):
        settings["labels"] = 3 * rounds.n  # a third is asked for at once: any that it may ask for
    policy = cast(PairwisePolicy, specs.build(replace(spec, policy=settings)))
    unlabelled = replace(rounds, right=None, labelled=None)
    if not settings.get("labels") or missing is None:
        missing = np.zeros(rounds.n, dtype=np.bool_)
    for part in np.split(np.arange(rounds.n), np.flatnonzero(np.diff(missing)) + 1):
        some = unlabelled.select(part)
        if missing[part].any():
            policy.run_recorded(some)
        else:
            policy.observe_many(some, some.answered - 1)
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
