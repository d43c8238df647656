"""Statistical tests of the regret with a half-life, in changing and stationary worlds."""

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.research.theory.regret import pseudo_regret

CASCADE = sw.Cascade([0.05, 0.2, 0.1])
SLOPES = np.array([[-1.0, 1.6, 0.2], [-1.0, 1.6, 0.0], [-2.0, 1.4, 0.0]]) * np.sqrt(3)


def regret(half_life: float | None, seed: int, changes: bool, periods: int) -> float:
    """Return the regret over periods of 5,000 rounds.

    With ``changes``, the slope of disagreement is reversed after each period.
    """
    reversed_slopes = SLOPES * [1, -1, 1]
    slopes = (SLOPES, reversed_slopes)
    worlds = [research.Realizable(CASCADE, list(theta), degree=1) for theta in slopes]
    random = np.random.default_rng(seed)
    policy = sw.USSLaplace(CASCADE, context_dim=2, half_life=half_life)
    total = 0.0
    for period in range(periods):
        batch = worlds[period % 2 if changes else 0].sample(5000, random)
        assert batch.outputs is not None
        stops = policy.run(batch.contexts, batch.outputs)
        total += pseudo_regret(CASCADE, batch.disagreement, batch.optimal, stops).sum()
    return total


@pytest.mark.parametrize(("runs", "periods"), [(2, 4), pytest.param(20, 8, marks=pytest.mark.slow)])
def test_forgetting_halves_the_regret_in_a_changing_world(runs: int, periods: int) -> None:
    """The ratios in 20 runs are 0.51, and 1.44 in a stationary world."""

    def mean(half_life: float | None, changes: bool) -> float:
        return float(np.mean([regret(half_life, s, changes, periods) for s in range(runs)]))

    assert mean(500, changes=True) <= (0.6 if runs == 20 else 0.7) * mean(None, changes=True)
    if runs == 20:  # two runs are too few
        assert mean(5000, changes=False) <= 1.6 * mean(None, changes=False)
