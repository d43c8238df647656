"""Statistical tests of the coverage of intervals in shadow reports and diagnoses.

benchmarks/intervals.py has the worlds and the complete table.
"""

import pytest
from scipy.stats import binom

from benchmarks.intervals import diagnosed_day, shadow_day

DAYS = 60
CELLS = [
    (2, 100, "constant"),
    (2, 100, "informative"),
    (3, 300, "informative"),
    (5, 300, "constant"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("n_arms", "n", "kind"), CELLS)
def test_intervals_of_a_shadow_report_have_coverage(n_arms: int, n: int, kind: str) -> None:
    """At a coverage of 85 %, each of these 8 counts is below ``least`` with probability 0.001."""
    days = [shadow_day(seed, n_arms, n, kind) for seed in range(DAYS)]
    least = binom.ppf(1e-3, DAYS, 0.85)  # 42
    for name in ("changed", "saving"):
        assert sum(day[name].covered for day in days) >= least, name


@pytest.mark.slow
@pytest.mark.parametrize(("n_arms", "n", "kind"), CELLS)
def test_intervals_of_disagreement_have_coverage(n_arms: int, n: int, kind: str) -> None:
    """At a coverage of 90 %, each of these 4 counts is below ``least`` with probability 0.001."""
    days = [diagnosed_day(seed, n_arms, n, kind) for seed in range(DAYS)]
    least = binom.ppf(1e-3, DAYS, 0.90)  # 46
    assert sum(day["diagnose"].covered for day in days) >= least
