"""The engine's random numbers: a stream that never changes, and the distributions they promise.

Each test of a distribution is a Kolmogorov–Smirnov test at 1e-6 on a fixed seed: were the seeds
drawn anew, all of them together would raise a false alarm once in some 60,000 runs.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stopwise.engine.native import Random

N = 20_000
FALSE_ALARM = 1e-6
WORD = (1 << 64) - 1

# the first numbers of seed 7
UNIFORM = [0.05536043647833311, 0.17211585444811772, 0.7175761283586594, 0.42720981929150526]
NORMAL = [1.674036445441065, 0.5378981681989655, 1.2079282540944534]
BETA = [0.32585785783611393, 0.08863560850410278, 0.9964569536000895]


def xoshiro(seed: int) -> Iterator[int]:
    """Blackman and Vigna's xoshiro256++, seeded by splitmix64, in whole numbers."""
    state: list[int] = []
    for _ in range(4):
        seed = seed + 0x9E3779B97F4A7C15 & WORD
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        state.append(z ^ z >> 31)

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 64 - by) & WORD

    a, b, c, d = state
    while True:
        yield rotated(a + d & WORD, 23) + a & WORD
        t = b << 17 & WORD
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        c ^= t
        d = rotated(d, 45)


# --------------------------------------------------------------------------- one stream for ever


@pytest.mark.parametrize("seed", [0, 1, 8, 2**63 - 1, 2**64 - 1])
def test_uniform_numbers_are_the_top_bits_of_xoshiro(seed: int) -> None:
    random = Random(seed)
    for word in itertools.islice(xoshiro(seed), 1000):
        assert random.uniform() == (word >> 11) / 2**53


def test_the_stream_of_a_seed_is_pinned() -> None:
    """Saved policies and published runs depend on it: it must not change."""
    random = Random(7)
    assert [random.uniform() for _ in range(4)] == UNIFORM
    random = Random(7)
    assert [random.normal() for _ in range(3)] == NORMAL
    random = Random(7)
    assert [random.beta(1.0, 1.0), random.beta(3.0, 40.0), random.beta(500.0, 2.0)] == BETA


# ------------------------------------------------------------------------------- distributions


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
    """Neighbours by Spearman's rank correlation, at the same rate of false alarms."""
    draw, distribution = DRAWS[name]
    values = np.array([draw() for _ in range(N)])
    assert stats.kstest(values, distribution).pvalue > FALSE_ALARM
    found: Any = stats.spearmanr(values[:-1], values[1:])
    assert found.pvalue > FALSE_ALARM
    assert name == "normal" or 0.0 <= values.min() < values.max() <= 1.0
