"""A higher degree is suggested only if it predicts held-out rows better."""

import numpy as np

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.degree import better_degree
from stopwise.logs.diagnosis.sampling import Sample

CASCADE = Cascade([0.1, 0.2])


def sample(chance: np.ndarray, x: np.ndarray, seed: int) -> Sample:
    n, random = len(x), np.random.default_rng(seed)
    differ = (random.random(n) < chance).astype(np.uint8)[:, None]
    wrong, labelled = np.zeros((n, 2), dtype=np.uint8), np.zeros(n, dtype=np.bool_)
    return Sample(np.arange(n) / n, np.arange(n), x, differ, wrong, labelled)


def test_a_quadratic_is_detected_without_false_alarms() -> None:
    """False alarms: the interval lies above 0 by chance in 2.5 % of logs, so more than 3 of 20
    alarms have a probability of 0.2 %, or less because a useless square lowers the likelihood.
    """
    alarms = 0
    for seed in range(20):
        x = np.random.default_rng([seed, 1]).uniform(-1, 1, (1500, 2))
        linear = 1 / (1 + np.exp(-2 * x[:, 0]))
        alarms += better_degree(CASCADE, sample(linear, x, seed), 1, sees=None) is not None
        quadratic = sample(0.9 * x[:, 0] ** 2, x, seed)
        assert better_degree(CASCADE, quadratic, 1, sees=None) == 2
    assert alarms <= 3


def test_no_degree_is_suggested_beyond_the_maximum_or_without_contexts() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    rows = sample(0.9 * x[:, 0] ** 2, x, 0)
    assert better_degree(CASCADE, rows, 4, sees=None) is None
    assert better_degree(CASCADE, rows._replace(contexts=x[:, :0]), 1, sees=None) is None
    many = np.random.default_rng(0).uniform(-1, 1, (600, 40))
    assert better_degree(CASCADE, rows._replace(contexts=many), 1, sees=None) is None
