"""Cross-fitted estimates: policies are evaluated on rounds that they did not learn from."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import stopwise as sw
from benchmarks.intervals import BASE, REVEALED, WORLDS, Day, draw_day, draw_world, shadow_day
from stopwise.logs.log import Log
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.proxy import cross_fitting, report
from stopwise.proxy.config import CascadeConfig, StageConfig
from stopwise.proxy.cross_fitting import FOLDS, CrossFit, cross_fit, missing_labels, train_policy
from stopwise.proxy.report import changed_share, estimate, intervals, mean_saving
from stopwise.records import RecordedRounds
from stopwise.service.domain import spec as specs
from tests.helpers.labels import label_of

COSTS = [0.01, 0.06, 0.25]


def cascade(**options) -> CascadeConfig:
    stages = [
        StageConfig(name=f"stage {arm}", python="math:sqrt", cost=cost)
        for arm, cost in enumerate(COSTS)
    ]
    return CascadeConfig(name="simulated", stage=stages, **options)


def simulated(n: int, seed: int = 0) -> Day:
    random = np.random.default_rng(seed)
    world = draw_world(random, len(COSTS), "informative")
    return draw_day(random, world, n)


def served(
    config: CascadeConfig, day: Day, failing: int = 0, label: int | None = None
) -> PairwisePolicy:
    """Return the policy after shadow rounds, as the service runs them.

    Every ``failing``-th round ends after its first stage; label requests get this label.
    """
    policy = specs.build(config.spec())
    assert isinstance(policy, PairwisePolicy)
    for number, (context, outputs) in enumerate(
        zip(day.contexts.tolist(), day.outputs.tolist(), strict=True)
    ):
        current = policy.start(context[:BASE])
        current.run_all()
        while (arm := current.next()) is not None:
            if arm == 1 and failing and number % failing == 0:
                break
            start = BASE + REVEALED * arm
            current.give(outputs[arm], context[start : start + REVEALED])
        current.learn()
        if label is not None and current.wants_label:
            request = current.request
            policy.learn_label(label_of(current.context, current.outputs, label, request=request))
    return policy


def stops_of(policy: PairwisePolicy, rounds: RecordedRounds) -> list[int]:
    return policy.decide_many(rounds).tolist()


def with_failures(rounds: RecordedRounds, failing: int) -> RecordedRounds:
    failed = np.arange(rounds.n) % failing == 0
    return replace(rounds, failed=failed, answered=np.where(failed, 1, rounds.answered))


def write_log(day: Day, path: Path) -> Log:
    columns = [f"context.x{c}" for c in range(BASE)]
    for arm in range(len(COSTS) - 1):
        columns += [f"context.stage {arm}.x{c}" for c in range(REVEALED)]
    columns += [f"output.stage {arm}" for arm in range(len(COSTS))]
    rows = np.hstack([day.contexts, day.outputs]).tolist()
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return Log(path)


@pytest.mark.parametrize("failing", [0, 7])
def test_a_trained_policy_equals_the_one_that_learned_in_shadow(failing: int) -> None:
    config, day, later = cascade(), simulated(300), simulated(500, seed=1).rounds()
    rounds = with_failures(day.rounds(), failing) if failing else day.rounds()
    again = train_policy(config.spec(), rounds)
    assert stops_of(again, later) == stops_of(served(config, day, failing), later)
    assert len(set(stops_of(again, later))) == 3


def test_policies_are_trained_on_the_labels_of_the_log() -> None:
    config, day, later = cascade(labels=30), simulated(600), simulated(500, seed=1).rounds()
    policy = served(config, day, label=0)
    assert isinstance(policy, sw.USSLaplace)
    assert policy.labels.received == 30
    labelled = np.ones(600, dtype=np.bool_)
    rounds = replace(day.rounds(), right=day.outputs == 0, labelled=labelled)
    again = train_policy(config.spec(), rounds)
    without = train_policy(cascade(policy="uss-laplace").spec(), day.rounds())
    assert again.labels.received > 30
    assert stops_of(again, later) != stops_of(without, later)


@pytest.mark.parametrize("answered", [1, 2])
def test_rounds_without_a_label_do_not_count_as_missing_labels(answered: int) -> None:
    """Only unanswered label requests count: here none, or every second."""
    config, day, later = cascade(labels=60), simulated(600), simulated(1000, seed=1).rounds()
    policy, labelled = specs.build(config.spec()), np.zeros(600, dtype=np.bool_)
    assert isinstance(policy, PairwisePolicy)
    for t, outputs in enumerate(day.outputs.tolist()):
        current = policy.start(day.contexts[t, :BASE])
        current.run_all()
        while (arm := current.next()) is not None:
            start = BASE + REVEALED * arm
            current.give(outputs[arm], day.contexts[t, start : start + REVEALED].tolist())
        current.learn()
        if current.wants_label and policy.labels.requested % answered == 0:
            policy.label(current, outputs[0])
            labelled[t] = True
    right = day.outputs == day.outputs[:, [0]]
    rounds = replace(day.rounds(), right=right, labelled=labelled)
    missing = missing_labels(policy, rounds)
    again = train_policy(config.spec(), rounds, missing)
    assert (policy.labels.requested, policy.labels.received) == (60, 60 // answered)
    assert (again.labels.missing, again.labels.received) == (
        policy.labels.missing,
        policy.labels.received,
    )
    # Stage 0 is always right, which is proved only if every label request is answered.
    assert stops_of(again, later) == [0] * 1000 or answered == 2
    assert (set(stops_of(policy, later)) == {0}) == (set(stops_of(again, later)) == {0})
    fit = cross_fit(config.spec(), policy, rounds)
    assert (float((fit.stops == 0).mean()) > 0.95) == (answered == 1)


def test_every_policy_stops_at_a_depth_fixed_by_labels() -> None:
    """Stage 1 is always right and the last stage never, so labels fix depth 1."""
    config, random = cascade(labels=200), np.random.default_rng(0)
    day = simulated(300)
    day.outputs[:, 0] = random.random(300) < 0.5
    day.outputs[:, 1:] = [0, 1]
    policy = served(config, day, label=0)
    fit = cross_fit(config.spec(), policy, day.rounds())
    assert set(fit.by_policy.ravel().tolist()) == {1}


def test_every_round_is_decided_by_policies_trained_without_it() -> None:
    config, day = cascade(), simulated(200)
    rounds = with_failures(day.rounds(), 10)
    fit = cross_fit(config.spec(), served(config, day, 10), rounds)
    random, complete = np.random.default_rng(cross_fitting.SEED), ~rounds.failed
    for stops in fit.stops:
        fold = random.permutation(200) % FOLDS
        for k in range(FOLDS):
            policy = train_policy(config.spec(), rounds.select(fold != k))
            left_out = rounds.select(complete & (fold == k))
            assert stops[fold[complete] == k].tolist() == stops_of(policy, left_out)


def test_the_interval_of_changed_answers_covers_those_of_new_requests() -> None:
    """Of 24 intervals with 90 % coverage, fewer than 17 cover the truth once in 600 trials, with
    85 % once in 50. In sample, 7 do.
    """
    days = [shadow_day(seed, 5, 100, kind) for kind in WORLDS for seed in range(12)]
    assert sum(day["changed"].covered for day in days) >= 17
    assert sum(day["in sample"].covered for day in days) < 17


def test_identical_rounds_do_not_give_a_zero_width_interval() -> None:
    stops = np.zeros((2, 200), dtype=np.int64)
    fit = CrossFit(stops, np.zeros((2, FOLDS, 200), dtype=np.int64))
    agree = np.zeros((200, 3), dtype=np.bool_)
    saving, changed = intervals(np.array(COSTS), 2, agree, fit)
    assert (changed.value, changed.low) == (0.0, 0.0)
    assert 0.01 < changed.high < 0.02
    assert saving.value == saving.high == pytest.approx(0.24)  # no request saves more
    assert 0.23 < saving.low < 0.24


def test_policies_that_vary_widen_both_intervals() -> None:
    each = np.repeat([0.0, 0.2], 100)
    narrow, wide = (mean_saving(each, s2, -0.1, 0.24) for s2 in (0.0, 0.001))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    changed = np.repeat([0.0, 1.0], [150, 50])
    narrow, wide = (changed_share(changed, s2) for s2 in (0.0, 0.001))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_a_report_needs_100_rounds_and_uses_the_newest(tmp_path: Path, monkeypatch) -> None:
    config, day = cascade(), simulated(400)
    spec, policy = config.spec(), served(config, day)
    few = Day(day.contexts[:99], day.outputs[:99])
    estimated = estimate(config, spec, policy, write_log(few, tmp_path / "few.csv"))
    assert (estimated.rounds, estimated.saving, estimated.changed) == (99, None, None)
    estimated = estimate(config, spec, policy, write_log(day, tmp_path / "all.csv"))
    assert estimated.rounds == 400
    assert estimated.changed is not None
    assert estimated.saving is not None
    assert sum(estimated.stops.values()) == pytest.approx(1)
    fit = cross_fit(spec, policy, day.rounds())
    saving, changed = intervals(np.array(COSTS), 2, day.outputs != day.outputs[:, [2]], fit)
    assert (estimated.saving, estimated.changed) == (saving, changed)
    changes = {(old, new): count for old, new, count in estimated.changes}
    assert (
        sum(changes.values())
        == (day.outputs[np.arange(400), fit.stops[0]] != day.outputs[:, 2]).sum()
    )
    # With two chunks, equal answers have different codes but count together.
    log = write_log(day, tmp_path / "all.csv")
    chunks = log.chunks
    monkeypatch.setattr(log, "chunks", lambda: chunks(150))
    assert estimate(config, spec, policy, log) == estimated
    monkeypatch.setattr(report, "MAX_ROUNDS", 120)
    newest = estimate(config, spec, policy, log)
    assert newest.rounds == 400
    recent = Day(day.contexts[150:], day.outputs[150:])
    alone = estimate(config, spec, policy, write_log(recent, tmp_path / "some.csv"))
    assert (newest.saving, newest.changed) == (alone.saving, alone.changed)
