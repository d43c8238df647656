"""A higher degree is suggested only if it predicts rows better that it was not fitted on."""

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


def test_a_bend_is_found_and_a_straight_line_is_not_bent() -> None:
    """False alarms: the interval excludes 0 above by chance in 2.5 % of 20 logs; more than 3 of
    them in 0.2 % of cases, and fewer still as a useless square only costs likelihood.
    """
    alarms = 0
    for seed in range(20):
        x = np.random.default_rng([seed, 1]).uniform(-1, 1, (1500, 2))
        straight = 1 / (1 + np.exp(-2 * x[:, 0]))
        alarms += better_degree(CASCADE, sample(straight, x, seed), 1, sees=None) is not None
        bent = sample(0.9 * x[:, 0] ** 2, x, seed)
        assert better_degree(CASCADE, bent, 1, sees=None) == 2
    assert alarms <= 3


def test_there_is_no_higher_degree_beyond_the_highest_or_without_contexts() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    rows = sample(0.9 * x[:, 0] ** 2, x, 0)
    assert better_degree(CASCADE, rows, 4, sees=None) is None
    assert better_degree(CASCADE, rows._replace(contexts=x[:, :0]), 1, sees=None) is None
    many = np.random.default_rng(0).uniform(-1, 1, (600, 40))
    assert better_degree(CASCADE, rows._replace(contexts=many), 1, sees=None) is None
