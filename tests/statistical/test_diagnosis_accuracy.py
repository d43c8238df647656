"""Statistical tests of verdicts and intervals of a diagnosis.

In the cascades of tests/helpers/cascades.py, arms err independently given the context, and the
context makes some cases hard for all arms.
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
from tests.helpers.cascades import Simulated, bad_cascade, good_cascade, simulated, write_log

Draw = Callable[[int, int], Simulated]
THREE = partial(simulated, costs=(0.01, 0.05, 0.1))
CASCADES: dict[str, Draw] = {
    "bad, four arms": bad_cascade,
    "bad, five classes": partial(bad_cascade, classes=5),
    "bad, three arms": partial(THREE, errors=(0.2, 0.1, 0.3)),
    "good, four arms": good_cascade,
    "good, five classes": partial(good_cascade, classes=5),
    "good, three arms": partial(THREE, errors=(0.3, 0.2, 0.1)),
}


def run_diagnosis(drawn: Simulated, folder: Path, labelled: float = 0.0) -> Diagnosis:
    log = Log(write_log(drawn, folder / "log.parquet", labelled=labelled))
    return diagnose(log, drawn.cascade)


@pytest.mark.parametrize("seeds", [1, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", CASCADES)
def test_a_model_that_fits_is_accepted_without_labels(kind, seeds, tmp_path):
    for seed in range(seeds):
        diagnosis = run_diagnosis(CASCADES[kind](8000, seed), tmp_path)
        assert diagnosis.verdict.answer != "not from disagreement alone"


def test_labels_distinguish_a_good_cascade_from_one_that_misleads_the_rule(tmp_path):
    diagnosis = run_diagnosis(good_cascade(20_000, 0), tmp_path, labelled=0.25)
    assert diagnosis.verdict.answer == "learnable"
    drawn = bad_cascade(10_000, 0)
    losses = (drawn.outputs != drawn.labels[:, None]) + drawn.cascade.cumulative
    policy = sw.USSPD(drawn.cascade, sw.Polynomial(degree=1), context_dim=4)
    stops = policy.run(drawn.contexts, drawn.outputs)
    rule, best = losses[np.arange(10_000), stops].mean(), losses.mean(axis=0).min()
    assert rule > 2 * best  # 0.56 against 0.19
    audited = run_diagnosis(drawn, tmp_path, labelled=0.1)
    assert audited.verdict.answer == "not from disagreement alone"
    assert audited.audit is not None
    assert audited.audit.lost.low > best


@pytest.mark.parametrize(
    ("columns", "runs", "least"),
    [(1, 8, 5), *(pytest.param(c, 30, 26, marks=pytest.mark.slow) for c in (1, 4))],
)
def test_the_interval_of_the_saving_includes_the_error_of_the_fitted_model(
    columns, runs, least, tmp_path
):
    """Arms disagree on 17 % of the rows, independently of the context, and the step costs 0.2.

    So a rule that has learned saves 0.2, but random slopes hide some of that. Fewer than 5 of 8
    intervals at 95 % cover the saving with probability 0.0004; fewer than 26 of 30 with 1/60.
    """
    inside = 0
    for seed in range(runs):
        random = np.random.default_rng([seed, 17])
        outputs = np.column_stack([np.zeros(1000), random.random(1000) < 0.17]).astype(np.int64)
        contexts = random.uniform(size=(1000, columns))
        cascade = sw.Cascade([0.1, 0.2], names=["small", "large"])
        diagnosis = run_diagnosis(Simulated(cascade, contexts, outputs, outputs[:, 0]), tmp_path)
        saved = diagnosis.saving.per_round
        inside += saved.low - 1e-9 <= 0.2 <= saved.high + 1e-9
    assert inside >= least
