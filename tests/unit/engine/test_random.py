"""The engine's random numbers: a pinned stream and correct distributions.

Each test of a distribution is a Kolmogorov–Smirnov test at 1e-6 on a fixed seed. With random
seeds, the tests together would raise a false alarm in about one of 60,000 runs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stopwise.engine.internals import Random

N = 20_000
FALSE_ALARM = 1e-6

# seed: the first two numbers and the 2,000th
UNIFORM = {
    0: (0.3245752680314067, 0.38223929651167343, 0.3043897128082639),
    7: (0.05536043647833311, 0.17211585444811772, 0.45462347271128),
    2**64 - 1: (0.33906512301887703, 0.9004750408188128, 0.4717524393763597),
}


@pytest.mark.parametrize("seed", UNIFORM)
def test_the_uniform_stream_of_a_seed_is_pinned(seed: int) -> None:
    """Saved policies and published runs depend on the stream."""
    uniform = Random(seed).uniform
    drawn = [uniform() for _ in range(2000)]
    assert (*drawn[:2], drawn[-1]) == UNIFORM[seed]


def test_normal_and_beta_draws_are_pinned() -> None:
    normal = Random(7).normal
    assert [normal(), normal()] == [1.674036445441065, 0.5378981681989655]
    beta = Random(7).beta
    expected = [0.32585785783611393, 0.08863560850410278, 0.9964569536000895]
    assert [beta(1.0, 1.0), beta(3.0, 40.0), beta(500.0, 2.0)] == expected


random = Random(11)
DRAWS: dict[str, tuple[Callable[[], float], Callable[[Any], Any]]] = {
    "uniform": (random.uniform, stats.uniform.cdf),
    "normal": (random.normal, stats.norm.cdf),
    **{
        f"beta({a}, {b})": (lambda a=a, b=b: random.beta(a, b), stats.beta(a, b).cdf)
        for a, b in ((1, 1), (1, 1001), (1001, 1), (3.5, 2.25), (1e4, 7), (1e6, 1e6))
    },
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_distribution_and_are_independent(name: str) -> None:
    """Independence of neighbours by Spearman's rank correlation, at the same false-alarm rate."""
    draw, distribution = DRAWS[name]
    values = np.array([draw() for _ in range(N)])
    assert stats.kstest(values, distribution).pvalue > FALSE_ALARM
    correlation: Any = stats.spearmanr(values[:-1], values[1:])
    assert correlation.pvalue > FALSE_ALARM
    assert name == "normal" or 0.0 <= values.min() < values.max() <= 1.0
