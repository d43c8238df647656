"""Weak dominance, compared with exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.research.theory.dominance import (
    arm_margins,
    dominance_margin,
    dominance_margins,
    first_candidates,
)

CASCADE = Cascade.from_cumulative([0.1, 0.3, 0.6])


def upper(p01: float, p02: float, p12: float) -> list[list[float]]:
    return [[0, p01, p02], [0, 0, p12], [0, 0, 0]]


@pytest.mark.parametrize("k", [2, 3, 6])
def test_margins_and_candidates_match_exact_arithmetic(k: int) -> None:
    # multiples of 1/20, so that about a third of the comparisons are ties that floats may miss
    rng = np.random.default_rng(k)
    n, unit = 2000, Fraction(1, 20)
    own = rng.integers(0, 5, k)
    totals = [unit * int(c) for c in np.cumsum(own)]
    cascade = Cascade([float(unit * int(c)) for c in own])
    steps = rng.integers(0, 8, (n, k, k))
    p, optimal = steps / 20, rng.integers(0, k, n)
    margins, first = dominance_margins(cascade, p, optimal), first_candidates(cascade, p)
    of_arm: dict[int, Fraction] = {}  # ξ_h
    for t, best in enumerate(optimal.tolist()):
        spare = [
            {j: totals[j] - totals[i] - unit * int(steps[t, i, j]) for j in range(i + 1, k)}
            for i in range(k)
        ]
        exact = float(min(spare[best].values(), default=np.inf))
        assert margins[t] == pytest.approx(exact, abs=1e-15)
        assert np.sign(margins[t]) == np.sign(exact)
        assert first[t] == [all(s > 0 for s in row.values()) for row in spare].index(True)
        for j, margin in spare[best].items():
            of_arm[j] = min(of_arm.setdefault(j, margin), margin)
    assert (margins == 0).sum() > n / 50  # ties
    split = [float(of_arm[h]) for h in range(1, k)]
    assert arm_margins(cascade, p, optimal).tolist() == pytest.approx(split, abs=1e-15)
    assert dominance_margin(cascade, p, optimal) == margins.min()


def test_only_the_upper_triangle_is_used_and_arguments_are_unchanged() -> None:
    p = np.full((2, 3, 3), 99.0)
    p[:, 0, 1], p[:, 0, 2], p[:, 1, 2] = 0.05, 0.4, 0.1
    before = p.copy()
    assert dominance_margins(CASCADE, p, [0, 1]).round(9).tolist() == [0.1, 0.2]
    assert first_candidates(CASCADE, p).tolist() == [0, 0]
    assert arm_margins(CASCADE, p, [1, 1]).tolist() == [np.inf, pytest.approx(0.2)]
    assert dominance_margin(CASCADE, p, [2, 2]) == np.inf
    assert (p == before).all()


def test_empty_input_gives_empty_rows_and_no_summary() -> None:
    none = np.empty((0, 3, 3))
    assert (
        dominance_margins(CASCADE, none, []).shape == first_candidates(CASCADE, none).shape == (0,)
    )
    with pytest.raises(InvalidParameterError, match="at least one context"):
        dominance_margin(CASCADE, none, [])


@pytest.mark.parametrize(
    ("p", "optimal", "message"),
    [
        (upper(0.1, 0.1, 0.1), [0], r"shape \(n, 3, 3\)"),
        ([upper(0.1, np.nan, 0.1)], [0], "probabilities"),
        ([upper(0.1, 1.1, 0.1)], [0], "probabilities"),
        ([upper(0.1, 0.1, 0.1)], [3], "0 to 2"),
        ([upper(0.1, 0.1, 0.1)], [0.0], "0 to 2"),
        ([upper(0.1, 0.1, 0.1)], [0, 1], "each of the 1 contexts"),
    ],
)
def test_invalid_arguments_are_rejected(p: object, optimal: list[int], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        dominance_margins(CASCADE, np.array(p), optimal)
