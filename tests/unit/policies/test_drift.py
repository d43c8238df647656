"""The change alarm: the cut of ADWIN, the rounds that count, and the same alarms by every way."""

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
BLOCK, UNIT = Adwin.TESTED, Adwin.UNIT
BUCKETS, SMALLEST = 48, 0.1  # of a window; the least shift, in standard deviations


def changing(n: int, seed: int = 0) -> Simulated:
    """The first arm errs in a tenth of the rounds of the first half, then in a third."""
    before, after = (
        simulated(n // 2, seed + k, COSTS, (error, 0.05, 0.02))
        for k, error in enumerate((0.1, 0.35))
    )
    both: list[Any] = list(zip(before, after, strict=True))[1:]
    return Simulated(before.cascade, *map(np.concatenate, both))


def watched(drawn: Simulated, **parameters: Any) -> tuple[Any, list[Change]]:
    found: list[Change] = []
    policy = sw.USSPD(drawn.cascade, sw.Polynomial(1), context_dim=4, **parameters)
    policy.watch(found.append)
    return policy, found


def sums_of(residuals: np.ndarray) -> tuple[int, int, int, int]:
    r = residuals.astype(np.int64)
    return len(r), int(r.sum()), int((r * r).sum()), int((r > 0).sum())


def test_the_cut_is_where_two_parts_differ_most_beyond_the_bound() -> None:
    random = np.random.default_rng(3)
    raw = np.where(random.random(1280) < np.repeat([0.1, 0.4], 640), 9_000, -1_000)
    parts = raw.reshape(-1, BLOCK)
    window = Adwin(0.001)
    for k, part in enumerate(parts):
        cut = window.add(*sums_of(part), BLOCK * k)
        seen, excess = raw[: BLOCK * (k + 1)] / UNIT, {}
        for at in range(BLOCK, len(seen), BLOCK):  # the bound, from the residuals themselves
            old, new = seen[:at], seen[at:]
            log, m = math.log(2 * math.log(len(seen)) / 0.001), 1 / (1 / len(old) + 1 / len(new))
            limit = math.sqrt(2 * seen.var() * log / m) + 2 * log / (3 * m) + SMALLEST * seen.std()
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
        assert rows == len(seen) - best  # what came before is dropped
        return
    pytest.fail("the change was not found")


def test_memory_is_bounded_and_nothing_is_lost() -> None:
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


def test_alarms_are_the_same_by_every_way_and_change_no_decision(tmp_path: Path) -> None:
    drawn = changing(3000)
    policy, at_once = watched(drawn, explore=0.3)
    stops = policy.run(drawn.contexts, drawn.outputs)
    plain = sw.USSPD(drawn.cascade, sw.Polynomial(1), context_dim=4, explore=0.3)
    assert (plain.run(drawn.contexts, drawn.outputs) == stops).all()
    assert (0, 1) in {change.pair for change in at_once}
    assert all(1400 <= change.round <= change.noticed <= 2000 for change in at_once)
    one, found = watched(drawn, explore=0.3)
    for t, (x, outputs) in enumerate(zip(drawn.contexts, drawn.outputs.tolist(), strict=True)):
        decision = one.decide(x)
        one.observe(x, outputs[: decision.stop + 1], rule_stop=decision.rule_stop)
        if t in (100, 1000, 1530):  # in the middle of a block too
            one.save(tmp_path / "policy")
            one: Any = sw.load(tmp_path / "policy")
            one.watch(found.append)
    assert found == at_once
    assert (policy.state()["learner"] == one.state()["learner"]).all()


def test_features_that_scale_themselves_are_watched_once_they_are_fitted() -> None:
    drawn, found = changing(6000), list[Change]()
    policy = sw.USSLaplace(drawn.cascade, context_dim=4)
    policy.watch(found.append)
    policy.run(drawn.contexts, drawn.outputs)
    assert found
    assert all(2800 <= change.round <= 3200 for change in found)


def test_where_stages_reveal_only_steps_decided_before_count() -> None:
    policy = sw.USSPD(sw.Cascade(COSTS), sw.Polynomial(1), context_dim=1, reveals=0)
    policy.watch(print)
    for _ in range(256):  # then there is a model
        policy.observe([0.5], [0, 0, 0])
    ends = [(2, 2), (2, 1), (2, 0), (1, 0), (0, 0)]
    for t in range(BLOCK):
        stop, rule_stop = ends[t % 5]
        policy.observe([0.5], [0] * (stop + 1), rule_stop=rule_stop)
    named = archive.parts(policy)
    rows = [int(named[f"drift.{k}.bucket"][:, 0].sum()) for k in range(3)]
    assert rows == [52, 13, 39]  # of the pairs (0, 1), (0, 2), (1, 2): 4, 1 and 3 of five


def test_what_cannot_be_restored_is_refused() -> None:
    policy, _ = watched(changing(200))
    for name, value in (("drift.seen", 10**6), ("drift.era", 201), ("watches", 2)):
        named = archive.parts(policy)
        named[name][0] = value
        with pytest.raises(ValueError, match="impossible"):
            policy.restore({"learner": archive.joined(named)})


def test_residuals_older_than_half_of_the_rounds_are_dropped_with_a_new_model() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.3]), sw.Polynomial(1), 1, forced_rounds=10_000)
    policy.watch(lambda change: pytest.fail(str(change)))
    rng = np.random.default_rng(0)
    for rounds in (256, 512, 1024, 2048, 4096):
        n = rounds - policy.rounds
        policy.run(rng.uniform(-1, 1, (n, 1)), (rng.random((n, 2)) < 0.2).astype(np.int64))
        buckets = archive.parts(policy)["drift.0.bucket"]
        oldest = buckets[:, 4].min(initial=rounds)
        assert oldest >= rounds // 2
