"""Diagnosis without labels tells a bad cascade from a good one, and why.

The cascades are those of tests/cascades.py: arms err independently given the context, which makes
some cases hard for all. An arm is called worse at one-sided 99 %; on the good cascades every arm
is better than the one before by 0.1, so that a false alarm is far rarer than that.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.log import Log
from tests.cascades import Simulated, bad_cascade, good_cascade, simulated, write_log

ROWS = 8000
Draw = Callable[[int, int], Simulated]
BAD: dict[str, tuple[Draw, int]] = {
    "four arms": (bad_cascade, 3),
    "five classes": (partial(bad_cascade, classes=5), 3),
    "three arms": (partial(simulated, costs=(0.01, 0.05, 0.1), errors=(0.2, 0.1, 0.3)), 2),
}
GOOD: dict[str, Draw] = {
    "four arms": good_cascade,
    "five classes": partial(good_cascade, classes=5),
    "three arms": partial(simulated, costs=(0.01, 0.05, 0.1), errors=(0.3, 0.2, 0.1)),
}
FEW, MANY = 10, 100
FULL = pytest.mark.full


def diagnosed(drawn: Simulated, folder: Path, labelled: float = 0.0) -> Diagnosis:
    log = Log(write_log(drawn, folder / "log.parquet", labelled=labelled))
    return diagnose(log, drawn.cascade)


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=FULL)])
@pytest.mark.parametrize("kind", BAD)
def test_the_worst_and_dearest_arm_is_named(kind, seeds, tmp_path):
    draw, worst = BAD[kind]
    missed = 0
    for seed in range(seeds):
        drawn = draw(ROWS, seed)
        found = diagnosed(drawn, tmp_path)
        assert found.agreement is not None
        named = [w.worse for w in found.agreement.worse] == [worst]
        if not named:
            missed += 1
            continue
        (alarm,) = found.agreement.worse
        # the saving is named too: without the arm the rule costs and loses less
        assert alarm.cost_without < alarm.cost_now
        assert alarm.loss_without < alarm.loss_now
        assert drawn.cascade.names[worst] in found.verdict.reason
        assert f"{alarm.cost_without:.3g} per round" in found.verdict.reason
        assert found.verdict.answer == "not from disagreement alone"
    assert missed <= seeds // 20


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=FULL)])
@pytest.mark.parametrize("kind", GOOD)
def test_arms_that_improve_raise_no_alarm(kind, seeds, tmp_path):
    alarms = 0
    for seed in range(seeds):
        found = diagnosed(GOOD[kind](ROWS, seed), tmp_path)
        assert found.agreement is not None
        alarms += bool(found.agreement.worse) or found.verdict.answer != "probably"
    assert alarms <= seeds // 20


def test_the_saving_it_names_is_real(tmp_path):
    drawn = bad_cascade(20_000, 0)
    found = diagnosed(drawn, tmp_path)
    assert found.agreement is not None
    (alarm,) = found.agreement.worse
    rest = sw.Cascade(drawn.cascade.costs[:3])
    policy = sw.USSPD(rest, sw.Polynomial(degree=1), context_dim=4)
    stops = policy.run(drawn.contexts, drawn.outputs[:, :3])[10_000:]  # when it has learned
    said = drawn.outputs[10_000:][np.arange(10_000), stops]
    cost = rest.cumulative[stops].mean()
    assert alarm.cost_without == pytest.approx(cost, abs=0.01)
    assert alarm.loss_without == pytest.approx(
        cost + (said != drawn.labels[10_000:]).mean(), abs=0.03
    )


def test_the_bad_cascade_misleads_the_label_free_rule(tmp_path):
    drawn = bad_cascade(50_000, 0)
    losses = (drawn.outputs != drawn.labels[:, None]) + drawn.cascade.cumulative
    policy = sw.USSPD(drawn.cascade, sw.Polynomial(degree=1), context_dim=4)
    stops = policy.run(drawn.contexts, drawn.outputs)
    rule, best = losses[np.arange(50_000), stops].mean(), losses.mean(axis=0).min()
    assert rule > 2 * best  # 0.56 against 0.19
    audited = diagnosed(drawn, tmp_path, labelled=0.02)
    assert audited.verdict.answer == "not from disagreement alone"
    assert audited.audit is not None
    assert audited.audit.lost.low > best
    assert audited.audit.weakly_dominant.high < 0.1


def test_the_good_cascade_is_learnable_by_its_labels(tmp_path):
    found = diagnosed(good_cascade(50_000, 0), tmp_path, labelled=0.1)
    assert found.verdict.answer == "learnable"


@pytest.mark.parametrize("columns", [1, 4])
def test_the_interval_of_the_saving_counts_the_fitted_model(columns, tmp_path):
    """Arms disagree on 0.17 of the rows, whatever the context, and the step costs 0.2.

    So a rule that has learned saves 0.2, but slopes that chance gave it hide some of that. Of 30
    intervals at 95 %, fewer than 26 hold the truth one time in sixty.
    """
    inside = 0
    for seed in range(30):
        random = np.random.default_rng([seed, 17])
        outputs = np.column_stack([np.zeros(1000), random.random(1000) < 0.17]).astype(np.int64)
        contexts = random.uniform(size=(1000, columns))
        cascade = sw.Cascade([0.1, 0.2], names=["small", "large"])
        found = diagnosed(Simulated(cascade, contexts, outputs, outputs[:, 0]), tmp_path)
        saved = found.saving.per_round
        inside += saved.low - 1e-9 <= 0.2 <= saved.high + 1e-9
    assert inside >= 26


@pytest.mark.full
def test_intervals_of_the_accuracies_hold(tmp_path):
    """95 % intervals: at least 85 % of 40, below which 95 % falls one time in fifty.

    The best arm has the hardest task: among hard cases hardly any arm is better than chance.
    """
    inside = np.zeros(4)
    for seed in range(40):
        drawn = good_cascade(ROWS, seed)
        found = diagnosed(drawn, tmp_path)
        assert found.agreement is not None
        truth = (drawn.outputs == drawn.labels[:, None]).mean(axis=0)
        inside += [
            a.accuracy.low <= t <= a.accuracy.high
            for a, t in zip(found.agreement.accuracies, truth, strict=True)
        ]
    assert (inside >= 34).all()
