"""Dominance, against exact arithmetic and by hand."""

from fractions import Fraction

import numpy as np
import pytest

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.theory.dominance import (
    arm_margins,
    candidate_arms,
    dominance_margin,
    dominance_margins,
    first_candidates,
    satisfies_cwd,
    strongly_dominant,
    weakly_dominant,
)

CASCADE = Cascade.from_cumulative([0.1, 0.3, 0.6])


def upper(p01: float, p02: float, p12: float) -> list[list[float]]:
    return [[0, p01, p02], [0, 0, p12], [0, 0, 0]]


@pytest.mark.parametrize("k", [2, 3, 6])
def test_margins_and_candidates_are_those_of_exact_arithmetic(k: int) -> None:
    # multiples of 1/20, so that about every third comparison is a tie that floats may miss
    rng = np.random.default_rng(k)
    n, unit, ties = 2000, Fraction(1, 20), 0
    own = rng.integers(0, 5, k)
    totals = [unit * int(c) for c in np.cumsum(own)]
    cascade = Cascade([float(unit * int(c)) for c in own])
    steps = rng.integers(0, 8, (n, k, k))
    p = steps / 20
    optimal = rng.integers(0, k, n)
    margins = dominance_margins(cascade, p, optimal)
    candidates = candidate_arms(cascade, p)
    first = first_candidates(cascade, p)
    dominant = weakly_dominant(cascade, p, optimal)
    for t in range(n):
        spare = [
            [totals[j] - totals[i] - unit * int(steps[t, i, j]) for j in range(i + 1, k)]
            for i in range(k)
        ]
        ties += sum(s == 0 for row in spare for s in row)
        exact = min(spare[optimal[t]], default=None)
        if exact is None:
            assert margins[t] == np.inf
        else:
            assert margins[t] == pytest.approx(float(exact), abs=1e-15)
            assert (margins[t] == 0) == (exact == 0)
        assert dominant[t] == (exact is None or exact > 0)
        expected = [all(s > 0 for s in row) for row in spare]
        assert candidates[t].tolist() == expected
        assert first[t] == expected.index(True)
    assert ties > n / 20


def test_the_summary_is_the_worst_context() -> None:
    p = [upper(0.05, 0.4, 0.0), upper(0.1, 0.1, 0.28), upper(0.9, 0.9, 0.9)]
    optimal = [0, 1, 2]
    np.testing.assert_allclose(dominance_margins(CASCADE, p, optimal), [0.1, 0.02, np.inf])
    assert dominance_margin(CASCADE, p, optimal) == pytest.approx(0.02)
    assert satisfies_cwd(CASCADE, p, optimal)
    assert not satisfies_cwd(CASCADE, [*p, upper(0.25, 0.0, 0.0)], [*optimal, 0])


def test_arm_margins_split_the_margin_by_the_deeper_arm() -> None:
    rng = np.random.default_rng(0)
    k, n = 5, 300
    cascade = Cascade(rng.uniform(0.1, 0.5, k))
    p = rng.random((n, k, k))
    optimal = rng.integers(0, k - 1, n)
    split = arm_margins(cascade, p, optimal)
    for h in range(1, k):
        worst = min(
            cascade.cumulative[h] - cascade.cumulative[i] - p[t, i, h]
            for t, i in enumerate(optimal)
            if i < h
        )
        assert split[h - 1] == pytest.approx(worst)
    assert split.min() == dominance_margin(cascade, p, optimal)


def test_an_arm_never_deeper_than_the_best_has_an_infinite_margin() -> None:
    p = [upper(0.5, 0.5, 0.1)]
    assert arm_margins(CASCADE, p, [1]).tolist() == [np.inf, pytest.approx(0.2)]
    assert dominance_margin(CASCADE, p, [2]) == np.inf


def test_only_what_lies_above_the_diagonal_is_read_and_nothing_is_written() -> None:
    p = np.full((2, 3, 3), 99.0)
    p[:, 0, 1], p[:, 0, 2], p[:, 1, 2] = 0.05, 0.4, 0.1
    before = p.copy()
    assert dominance_margins(CASCADE, p, [0, 1]).round(9).tolist() == [0.1, 0.2]
    assert candidate_arms(CASCADE, p).all()
    assert (p == before).all()


def test_no_contexts_give_no_rows_but_no_summary_either() -> None:
    none = np.empty((0, 3, 3))
    assert dominance_margins(CASCADE, none, []).shape == (0,)
    assert first_candidates(CASCADE, none).shape == (0,)
    for summary in (dominance_margin, satisfies_cwd, arm_margins):
        with pytest.raises(InvalidParameterError, match="at least one context"):
            summary(CASCADE, none, [])


@pytest.mark.parametrize(
    ("p", "optimal", "message"),
    [
        (upper(0.1, 0.1, 0.1), [0], r"shape \(n, 3, 3\)"),
        ([[[0, 0.1], [0, 0]]], [0], r"shape \(n, 3, 3\)"),
        ([upper(0.1, np.nan, 0.1)], [0], "probabilities"),
        ([upper(0.1, 1.1, 0.1)], [0], "probabilities"),
        ([upper(0.1, 0.1, 0.1)], [3], "0 to 2"),
        ([upper(0.1, 0.1, 0.1)], [0.0], "0 to 2"),
        ([upper(0.1, 0.1, 0.1)], [0, 1], "each of the 1 contexts"),
    ],
)
def test_what_cannot_be_is_refused(p: object, optimal: list[int], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        dominance_margins(CASCADE, np.array(p), optimal)


@pytest.mark.parametrize(
    ("outputs", "labels", "strong"),
    [
        ([[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]], [1, 1, 1, 1], True),
        ([[1, 0, 1]], [1], False),  # right at both ends is not enough
        ([["b", "a"], ["b", "b"]], ["a", "a"], True),
        ([[1, "1"]], [1], False),  # "1" is not 1
        ([[1, "1"]], ["1"], True),
    ],
)
def test_strong_dominance_by_hand(outputs: list, labels: list, strong: bool) -> None:
    assert strongly_dominant(np.array(outputs, dtype=object), labels) is strong
    assert strongly_dominant(outputs, labels) is strong


@pytest.mark.parametrize(
    ("outputs", "labels"), [([1, 1], [1, 1]), ([[1, 1]], [1, 1]), (np.empty((0, 2)), [])]
)
def test_strong_dominance_needs_rows_and_a_label_each(outputs: list, labels: list[int]) -> None:
    with pytest.raises(InvalidParameterError, match="at least one"):
        strongly_dominant(outputs, labels)
