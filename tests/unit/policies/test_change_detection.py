"""Tests of change detection: ADWIN, the rounds that count, and equivalent ways to play rounds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.engine.native import Adwin
from stopwise.records import Change
from tests.helpers import archive
from tests.helpers.cascades import Simulated, simulated

COSTS = (0.02, 0.08, 0.1)
BLOCK, UNIT = Adwin.TEST_BATCH, Adwin.RESIDUAL_UNIT
BUCKETS, SMALLEST_SHIFT = 48, 0.1  # per window; in standard deviations


def changing(n: int, seed: int = 0) -> Simulated:
    """Return rounds in which the first arm errs in 10 % of the first half, then in 35 %."""
    before, after = (
        simulated(n // 2, seed + k, COSTS, (error, 0.05, 0.02))
        for k, error in enumerate((0.1, 0.35))
    )
    halves: list[Any] = list(zip(before, after, strict=True))[1:]
    contexts, outputs, labels = (np.concatenate(half) for half in halves)
    return Simulated(before.cascade, contexts, outputs, labels)


def watched(rounds: Simulated, **parameters: Any) -> tuple[Any, list[Change]]:
    changes: list[Change] = []
    policy = sw.USSPD(rounds.cascade, sw.Polynomial(1), context_dim=4, **parameters)
    policy.watch(changes.append)
    return policy, changes


def sums_of(residuals: np.ndarray) -> tuple[int, int, int, int]:
    r = residuals.astype(np.int64)
    return len(r), int(r.sum()), int((r * r).sum()), int((r > 0).sum())


def test_adwin_cuts_where_the_difference_most_exceeds_the_bound() -> None:
    random = np.random.default_rng(3)
    raw = np.where(random.random(1280) < np.repeat([0.1, 0.4], 640), 9_000, -1_000)
    parts = raw.reshape(-1, BLOCK)
    window = Adwin(0.001)
    for k, part in enumerate(parts):
        cut = window.add(*sums_of(part), BLOCK * k)
        seen, excess = raw[: BLOCK * (k + 1)] / UNIT, {}
        for at in range(BLOCK, len(seen), BLOCK):  # compute the bound from the residuals
            old, new = seen[:at], seen[at:]
            log, m = math.log(2 * math.log(len(seen)) / 0.001), 1 / (1 / len(old) + 1 / len(new))
            limit = math.sqrt(2 * seen.var() * log / m) + 2 * log / (3 * m)
            limit += SMALLEST_SHIFT * seen.std()
            excess[at] = abs(new.mean() - old.mean()) - limit
        best = max(excess, key=excess.__getitem__, default=0)
        if not excess or excess[best] <= 0:
            assert cut is None
            continue
        assert cut is not None
        assert cut[0] == best == 640
        shift = seen[best:].mean() - seen[:best].mean()
        assert cut[2] - cut[1] == pytest.approx(shift)
        rows = sum(bucket[0] for bucket in window.buckets)
        assert rows == len(seen) - best  # older residuals are dropped
        return
    pytest.fail("the change was not detected")


def test_a_window_has_bounded_memory_and_keeps_all_residuals() -> None:
    random = np.random.default_rng(4)
    raw = np.where(random.random(64_000) < 0.2, 8_000, -2_000)
    window = Adwin(1e-9)
    for k, part in enumerate(raw.reshape(-1, BLOCK)):
        assert window.add(*sums_of(part), BLOCK * k) is None
    buckets = np.array(window.buckets)
    assert len(buckets) == BUCKETS
    assert buckets[:, :4].sum(axis=0).tolist() == list(sums_of(raw))
    assert (np.diff(buckets[:, 4]) > 0).all()
    window.move(150)
    assert np.array(window.buckets)[:, :3].sum(axis=0).tolist() == list(sums_of(raw + 150)[:3])


def test_single_rounds_and_a_run_report_the_same_changes(tmp_path: Path) -> None:
    rounds = changing(3000)
    policy, expected = watched(rounds, explore=0.3)
    policy.run(rounds.contexts, rounds.outputs)
    assert (0, 1) in {change.pair for change in expected}
    assert all(1400 <= change.round <= change.noticed <= 2000 for change in expected)
    single, changes = watched(rounds, explore=0.3)
    for t, (x, outputs) in enumerate(zip(rounds.contexts, rounds.outputs.tolist(), strict=True)):
        decision = single.decide(x)
        single.observe(x, outputs[: decision.stop + 1], rule_stop=decision.rule_stop)
        if t in (100, 1000, 1530):  # including the middle of a block
            single.save(tmp_path / "policy")
            single: Any = sw.load(tmp_path / "policy")
            single.watch(changes.append)
    assert changes == expected
    assert (policy.state()["learner"] == single.state()["learner"]).all()


def test_watching_changes_no_decision() -> None:
    rounds = changing(3000)
    policy, _ = watched(rounds, explore=0.3)
    unwatched = sw.USSPD(rounds.cascade, sw.Polynomial(1), context_dim=4, explore=0.3)
    stops = policy.run(rounds.contexts, rounds.outputs)
    assert (unwatched.run(rounds.contexts, rounds.outputs) == stops).all()


def test_features_that_scale_themselves_are_watched_after_fitting() -> None:
    rounds, changes = changing(6000), list[Change]()
    policy = sw.USSLaplace(rounds.cascade, context_dim=4)
    policy.watch(changes.append)
    policy.run(rounds.contexts, rounds.outputs)
    assert changes
    assert all(2800 <= change.round <= 3200 for change in changes)


def test_with_reveals_only_rounds_decided_before_the_pair_count() -> None:
    policy = sw.USSPD(sw.Cascade(COSTS), sw.Polynomial(1), context_dim=1, reveals=0)
    policy.watch(print)
    for _ in range(256):  # until the first model
        policy.observe([0.5], [0, 0, 0])
    stops = [(2, 2), (2, 1), (2, 0), (1, 0), (0, 0)]  # (stop, rule_stop)
    for t in range(BLOCK):
        stop, rule_stop = stops[t % 5]
        policy.observe([0.5], [0] * (stop + 1), rule_stop=rule_stop)
    parts = archive.parts(policy)
    rows = [int(parts[f"drift.{k}.bucket"][:, 0].sum()) for k in range(3)]
    assert rows == [52, 13, 39]  # 4, 1 and 3 of 5 for the pairs (0, 1), (0, 2), (1, 2)


@pytest.mark.parametrize(
    ("name", "value"), [("drift.seen", 10**6), ("drift.era", 201), ("watches", 2)]
)
def test_an_invalid_state_is_rejected(name: str, value: int) -> None:
    policy, _ = watched(changing(200))
    parts = archive.parts(policy)
    parts[name][0] = value
    with pytest.raises(ValueError, match="invalid"):
        policy.restore({"learner": archive.joined(parts)})


def test_a_new_model_drops_residuals_of_the_first_half_of_the_rounds() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.3]), sw.Polynomial(1), 1, forced_rounds=10_000)
    policy.watch(lambda change: pytest.fail(str(change)))
    rng = np.random.default_rng(0)
    for rounds in (256, 512, 1024, 2048, 4096):
        n = rounds - policy.rounds
        policy.run(rng.uniform(-1, 1, (n, 1)), (rng.random((n, 2)) < 0.2).astype(np.int64))
        buckets = archive.parts(policy)["drift.0.bucket"]
        oldest = buckets[:, 4].min(initial=rounds)
        assert oldest >= rounds // 2
