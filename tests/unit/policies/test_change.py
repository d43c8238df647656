"""The change alarm: the cut of ADWIN, the rounds that count, and the same alarms by every way."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.engine import native, parts
from stopwise.policies.change import BLOCK, BUCKETS, SMALLEST, UNIT, Adwin
from stopwise.records import Change
from tests.helpers.cascades import Simulated, simulated

COSTS = (0.02, 0.08, 0.1)


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


def sums_of(residuals: np.ndarray) -> list[int]:
    r = residuals.astype(np.int64)
    return [len(r), int(r.sum()), int((r * r).sum()), int((r > 0).sum())]


def test_the_cut_is_where_two_parts_differ_most_beyond_the_bound() -> None:
    random = np.random.default_rng(3)
    raw = np.where(random.random(1280) < np.repeat([0.1, 0.4], 640), 9_000, -1_000)
    parts = raw.reshape(-1, BLOCK)
    window = Adwin(0.001)
    for k, part in enumerate(parts):
        cut = window.add(sums_of(part), BLOCK * k)
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
        assert window.buckets[:, 0].sum() == len(seen) - best  # what came before is dropped
        return
    pytest.fail("the change was not found")


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    random = np.random.default_rng(4)
    raw = np.where(random.random(64_000) < 0.2, 8_000, -2_000)
    window = Adwin(1e-9)
    for k, part in enumerate(raw.reshape(-1, BLOCK)):
        assert window.add(sums_of(part), BLOCK * k) is None
    assert len(window.buckets) == BUCKETS
    assert window.buckets[:, :4].sum(axis=0).tolist() == sums_of(raw)
    assert (np.diff(window.buckets[:, 4]) > 0).all()
    window.move(150)
    assert window.buckets[:, :3].sum(axis=0).tolist() == sums_of(raw + 150)[:3]


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
    for name, array in policy.state().items():
        assert (array == one.state()[name]).all()


def test_features_that_scale_themselves_are_watched_once_they_are_fitted() -> None:
    drawn, found = changing(6000), list[Change]()
    policy = sw.USSLaplace(drawn.cascade, context_dim=4)
    policy.watch(found.append)
    policy.run(drawn.contexts, drawn.outputs)
    assert found
    assert all(2800 <= change.round <= 3200 for change in found)


def test_where_stages_reveal_only_steps_decided_before_count() -> None:
    policy = sw.USSPD(sw.Cascade(COSTS), sw.Answers(), context_dim=1)
    policy.watch(print)
    alarm = policy.alarm
    assert alarm is not None
    ends, ruled = np.array([2, 2, 2, 1, 0]), np.array([2, 1, 0, 0, 0])
    alarm.add(np.zeros((5, 1)), np.zeros((5, 3), np.uint8), ends, ruled)
    counts = alarm._read(alarm._rounds[:5])[2]  # of the pairs (0, 1), (0, 2), (1, 2)
    assert counts.tolist() == [[1, 0, 1], [1, 0, 1], [1, 1, 1], [1, 0, 0], [0, 0, 0]]


def test_what_cannot_be_watched_or_restored_is_refused(tmp_path: Path) -> None:
    policy, _ = watched(changing(200))
    state = policy.state() | {"alarm_rounds": np.zeros((3, 3))}
    with pytest.raises(ValueError, match="reshape"):
        policy.restore(state)


def test_chances_are_sums_in_a_fixed_order() -> None:
    """Equal to the last bit: a sum by BLAS or a tanh of another library would differ somewhere."""
    rng = np.random.default_rng(0)
    rows, thetas = rng.normal(size=(50, 7)), rng.normal(size=(7, 3))
    expected = np.zeros((50, 3))
    for c in range(7):
        expected += rows[:, c, None] * thetas[c]
    expected = np.vectorize(parts.sigmoid)(expected)
    np.testing.assert_array_equal(native.chances(rows, thetas), expected)
    with pytest.raises(ValueError, match="rows of another length"):
        native.chances(rows, thetas[:6])


def test_residuals_older_than_half_of_the_rounds_are_dropped_with_a_new_model() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.3]), sw.Polynomial(1), 1, forced_rounds=10_000)
    policy.watch(lambda change: pytest.fail(str(change)))
    rng = np.random.default_rng(0)
    for rounds in (256, 512, 1024, 2048, 4096):
        n = rounds - policy.rounds
        policy.run(rng.uniform(-1, 1, (n, 1)), (rng.random((n, 2)) < 0.2).astype(np.int64))
        oldest = policy.state()["alarm_buckets"].reshape(-1, 6)[:, 5].min(initial=rounds)
        assert oldest >= rounds // 2
