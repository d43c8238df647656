"""The smallest inputs on which an earlier engine was wrong."""

from fractions import Fraction

import numpy as np
import pytest

import stopwise as sw
from stopwise.engine import native


def row(*values: float) -> np.ndarray:
    return np.array(values)


def test_a_row_of_tiny_weight_still_says_how_far_it_reaches() -> None:
    factor = native.Factor(1, 1.0)
    assert factor.add(row(1.0), 1e-17)[0] == 1.0


def test_a_first_large_row_after_many_tiny_ones_is_not_proved_too_soon() -> None:
    model = native.Regression(1, 1e-3)
    for _ in range(2000):
        model.learn(row(1e-4), True)
    assert model.solve()
    model.learn(row(1.0), False)
    claimed = abs(model.logit(row(1.0)) - (-2.1731894))
    assert claimed <= model.uncertainty(row(1.0))
    assert model.solve()
    assert model.logit(row(1.0)) == pytest.approx(-2.1731894, rel=1e-6)


def test_a_seen_direction_is_not_made_long_by_a_tiny_feature() -> None:
    rows = [(1e-9, 0.3, 0.225), (0.5, 0.25, 0.1875)]
    factor = native.Factor(3, 1e-18)
    for x in rows:
        factor.add(row(*x), 1.0)
    assert factor.norm(row(*rows[1])) == pytest.approx(_exact_norm(rows, rows[1]), rel=1e-9)


def _exact_norm(rows: list[tuple[float, ...]], x: tuple[float, ...]) -> float:
    """Return ‖x‖ in the metric of (10⁻¹⁸·I + Σ φφᵀ)⁻¹, in rational numbers."""
    d = len(x)
    a = [[Fraction(i == j, 10**18) for j in range(d)] + [Fraction(x[i])] for i in range(d)]
    for phi in rows:
        for i in range(d):
            for j in range(d):
                a[i][j] += Fraction(phi[i]) * Fraction(phi[j])
    for i in range(d):  # Gauss and Jordan; the diagonal of a positive matrix is never 0
        a[i] = [value / a[i][i] for value in a[i]]
        for k in range(d):
            if k != i:
                a[k] = [v - a[k][i] * w for v, w in zip(a[k], a[i], strict=True)]
    return float(sum(Fraction(x[i]) * a[i][d] for i in range(d))) ** 0.5


@pytest.mark.parametrize("ridge", [1e-9, 1e-8, 1e-7])
def test_a_small_ridge_does_not_keep_separable_rows_from_being_solved(ridge: float) -> None:
    model = native.Regression(2, ridge)
    model.learn(row(0.7071, 0.0), False)
    assert model.solve()
    model.learn(row(0.0, 0.7071), False)
    assert model.solve()
    first, second = model.estimate
    assert first == pytest.approx(second, rel=1e-9)


def test_labels_count_where_the_deeper_arm_is_free() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.0]), context_dim=1, forced_rounds=10)
    for t in range(300):
        said = ("a", "b" if t % 2 else "a")
        policy.observe([1.0], said)
        if t % 2:
            done = sw.Round(str(t), 0.0, (1.0,), said, said, stop=1, wanted=1)
            policy.audit(done, "a" if t % 20 != 1 else "b")
    decision = policy.decide([1.0])
    assert decision.stop == 0
    assert decision.evidence[0].gap_won
