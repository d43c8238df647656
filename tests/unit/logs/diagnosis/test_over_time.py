"""Changes in disagreement over time, and the choice of a half-life."""

import numpy as np
import pytest
from scipy.optimize import minimize

from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.over_time import likelihoods
from stopwise.logs.diagnosis.sections import sections
from stopwise.logs.log import Log
from tests.helpers.cascades import Simulated, simulated, write_log


def test_changes_and_the_half_life_are_reported(tmp_path):
    halves = [
        simulated(3000, k, (0.02, 0.2), errors)
        for k, errors in enumerate(((0.1, 0.02), (0.35, 0.02)))
    ]
    joined = (np.concatenate(both) for both in list(zip(*halves, strict=True))[1:])
    drawn = Simulated(halves[0].cascade, *joined)
    diagnosis = diagnose(Log(write_log(drawn, tmp_path / "log.parquet")), drawn.cascade)
    (change,) = diagnosis.over_time.changes
    assert change.pair == (0, 1)
    assert abs(change.round - 3000) < 100
    differ = drawn.outputs[:, 0] != drawn.outputs[:, 1]
    assert change.before == pytest.approx(differ[:3000].mean(), abs=0.08)
    assert change.after == pytest.approx(differ[3000:].mean(), abs=0.08)
    life = diagnosis.over_time.half_life
    assert life in (500, 1000, 2000)
    section = next(s for s in sections(diagnosis) if s.name == "over-time")
    assert f"half_life={life}" in section.text
    assert section.panels[0].table.rows[0][2] == change.round + 1
    still = diagnose(Log(write_log(halves[0], tmp_path / "still.parquet")), drawn.cascade)
    section = next(s for s in sections(still) if s.name == "over-time")
    assert "No change was found" in section.text
    assert "no `half_life`" in section.text


@pytest.mark.parametrize("life", [np.inf, 700.0])
def test_likelihoods_match_models_refitted_in_every_step(life):
    random = np.random.default_rng(8)
    x = np.column_stack([np.ones(2000), random.normal(size=(2000, 2))])
    chance = 1 / (1 + np.exp(-x @ [-1.0, 0.8, -0.4]))
    differ = (random.random(2000) < chance).astype(np.uint8)
    scores = likelihoods(x, differ[:, None], np.arange(2000), 100, [life])[0]
    for step in (5, 12, 19):
        old, new = slice(100 * step), slice(100 * step, 100 * step + 100)
        weight = 0.5 ** (np.arange(100 * step)[::-1] / life)

        def loss(theta, old=old, weight=weight):
            z = x[old] @ theta
            return weight @ (np.logaddexp(0, z) - differ[old] * z) + 0.5e-3 * theta @ theta

        z = x[new] @ minimize(loss, np.zeros(3)).x
        exact = (differ[new] * z - np.logaddexp(0, z)).sum()
        assert scores[step] == pytest.approx(exact, abs=0.5)  # of about −55
