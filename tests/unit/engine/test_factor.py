"""A growing matrix kept as its factors: exact away from the defaults, finite when singular."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine.native import Factor

Array = NDArray[np.float64]

DIMENSIONS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 45]
UNSEEN = 1e-18  # what V starts from without λ


class Grown:
    """The engine's factors, beside the same sum in plain numpy."""

    def __init__(self, d: int, scale: float) -> None:
        self.d = d
        self.factor = Factor(d, scale)
        self.expected = scale * np.eye(d)

    def add(self, x: Array, w: float = 1.0) -> tuple[float, Array]:
        self.expected += w * np.outer(x, x)
        return self.factor.add(x, w)

    @property
    def off(self) -> float:
        """How far A·A⁻¹ is from I."""
        product = self.factor.matrix() @ self.factor.inverse()
        return float(np.abs(product - np.eye(self.d)).max())


def rows(n: int, d: int, seed: int = 0) -> Array:
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# ------------------------------------------------------------------------- beside plain sums


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1e-3, 0.37, 1.0, 10.0])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_it_starts_as_a_multiple_of_the_identity(d: int, scale: float) -> None:
    factor = Factor(d, scale)
    np.testing.assert_allclose(factor.matrix(), scale * np.eye(d), rtol=1e-15)
    np.testing.assert_allclose(factor.inverse(), np.eye(d) / scale, rtol=1e-15)
    x = rows(1, d)[0]
    assert factor.norm(x) == pytest.approx(1 / math.sqrt(scale), rel=1e-14)
    assert factor.norm(np.zeros(d)) == 0.0


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1e-3, 0.37, 10.0])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_it_is_numpys_sum_and_numpys_inverse(d: int, scale: float) -> None:
    grown = Grown(d, scale)
    for t, x in enumerate(rows(300, d)):
        grown.add(x, 0.1 + (t % 7))
        if t >= 2 * d:
            exact = math.sqrt(x @ np.linalg.solve(grown.expected, x))
            np.testing.assert_allclose(grown.factor.norm(x), exact, rtol=1e-9)
    np.testing.assert_allclose(grown.factor.matrix(), grown.expected, rtol=1e-12, atol=1e-12)
    inverse = np.linalg.inv(grown.expected)
    np.testing.assert_allclose(grown.factor.inverse(), inverse, rtol=1e-6, atol=1e-9)
    assert grown.off < 1e-12


@pytest.mark.parametrize("scale", [1e-6, 0.01, 1.0, 250.0])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_step_returns_the_norm_before_it_and_the_solution_after_it(d: int, scale: float) -> None:
    grown = Grown(d, scale)
    for t, x in enumerate(rows(30, d, seed=1)):
        size, w = 0.5 + 0.1 * t, 0.1 + t % 3
        before = np.linalg.solve(grown.expected, size * x)
        square, after = grown.add(size * x, w)
        assert square == pytest.approx(size * x @ before, rel=1e-8)
        exact = np.linalg.solve(grown.expected, size * x)
        np.testing.assert_allclose(after, exact, rtol=1e-8, atol=1e-8 * np.abs(exact).max())


@pytest.mark.parametrize("d", DIMENSIONS)
def test_both_matrices_are_symmetric_to_the_last_bit(d: int) -> None:
    factor = Factor(d, 1e-3)
    for x in rows(50, d):
        factor.add(x, 0.7)
    for matrix in (factor.matrix(), factor.inverse()):
        np.testing.assert_array_equal(matrix, matrix.T)


def test_a_row_of_zeros_changes_nothing() -> None:
    factor = Factor(3, 0.5)
    for x in rows(10, 3):
        factor.add(x, 1.0)
    matrix, inverse = factor.matrix(), factor.inverse()
    square, after = factor.add(np.zeros(3), 1.0)
    assert (square, after.tolist()) == (0.0, [0.0] * 3)
    np.testing.assert_array_equal(factor.matrix(), matrix)
    np.testing.assert_array_equal(factor.inverse(), inverse)


# ------------------------------------------------------------------------ directions never seen


@pytest.mark.parametrize("d", [2, 5, 20])
def test_an_unseen_direction_is_far_and_a_seen_one_is_not(d: int) -> None:
    factor = Factor(d, UNSEEN)
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    for t in range(40):
        factor.add(q[t % (d - 1)], 1.0)
    counts = np.bincount(np.arange(40) % (d - 1), minlength=d)
    for c in range(d - 1):
        assert factor.norm(q[c]) == pytest.approx(1 / math.sqrt(counts[c]), rel=1e-5)
    # q's rows are orthogonal up to rounding alone, which is far above 1e-18
    assert 1e7 < factor.norm(q[d - 1]) <= 1e9 * (1 + 1e-9)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 9])
def test_the_norm_of_an_unseen_direction_is_one_over_the_root_of_the_scale(d: int) -> None:
    for scale in (1e-18, 1e-9, 1e-3):
        factor = Factor(d, scale)
        eye = np.eye(d)
        for t in range(30):
            factor.add(eye[t % (d - 1)], 1.0)
        assert factor.norm(eye[d - 1]) == pytest.approx(1 / math.sqrt(scale), rel=1e-12)


def test_a_direction_is_near_from_when_it_is_seen() -> None:
    factor = Factor(5, UNSEEN)
    eye = np.eye(5)
    for x in eye[:4]:
        factor.add(x, 1.0)
    assert factor.norm(eye[4]) == pytest.approx(1e9)
    factor.add(eye[4], 1.0)
    np.testing.assert_allclose(factor.inverse(), eye, rtol=1e-12)


def test_a_step_of_huge_leverage_leaves_an_exact_inverse() -> None:
    grown = Grown(4, 1e-3)
    xs = rows(3, 4)
    square, _ = grown.add(xs[0])
    assert square == pytest.approx(1e3)  # times what it will be
    assert grown.off < 1e-12
    square, _ = grown.add(1e-3 * xs[1])
    assert square < 1.1e-3
    assert grown.off < 1e-12


@pytest.mark.parametrize("ridge", [1e-9, 1e-3])
def test_one_direction_seen_again_and_again_leaves_the_others_as_they_were(ridge: float) -> None:
    factor = Factor(5, ridge)
    x = rows(1, 5)[0]
    for _ in range(200):
        factor.add(x, 0.25)
    q = np.linalg.qr(np.column_stack([x, rows(4, 5, seed=9).T]))[0]
    inverse = factor.inverse()
    assert q[:, 1] @ inverse @ q[:, 1] == pytest.approx(1 / ridge, rel=1e-4)
    assert x @ inverse @ x == pytest.approx(1 / (50 + ridge), rel=1e-4)
    assert factor.norm(q[:, 1]) == pytest.approx(1 / math.sqrt(ridge), rel=1e-4)
    assert factor.norm(x) == pytest.approx(1 / math.sqrt(50 + ridge), rel=1e-12)


# ------------------------------------------------------------------------------ nearly collinear


def exact_gram(xs: Array) -> list[list[Fraction]]:
    """Return Σ xxᵀ without rounding."""
    unit = 1 << 1074  # every double is a whole number of 1/unit
    whole = [[int(Fraction(v) * unit) for v in x] for x in xs.tolist()]
    d = xs.shape[1]
    return [
        [Fraction(sum(x[i] * x[j] for x in whole), unit**2) for j in range(d)] for i in range(d)
    ]


def exact_norms(gram: list[list[Fraction]], scale: float, asked: Array) -> list[float]:
    """Return ‖φ‖_{A⁻¹} for A = scale·I + gram, in rational numbers to the end."""
    d = len(gram)
    a = [[gram[i][j] + (i == j) * Fraction(scale) for j in range(d)] for i in range(d)]
    sides = [[Fraction(v) for v in x] for x in asked.tolist()]
    # A = LDLᵀ and p = L⁻¹φ beside it; then ‖φ‖² = Σ p²/D
    squares = [Fraction(0)] * len(sides)
    for k in range(d):
        for s, side in enumerate(sides):
            squares[s] += side[k] ** 2 / a[k][k]
        for i in range(k + 1, d):
            share = a[i][k] / a[k][k]
            for j in range(k + 1, d):
                a[i][j] -= share * a[k][j]
            for side in sides:
                side[i] -= share * side[k]
    return [math.sqrt(float(square)) for square in squares]


def collinear(n: int, d: int, noise: float) -> Array:
    rng = np.random.default_rng(d)
    return rng.uniform(0.3, 0.6, (n, 1)) * rows(1, d)[0] + noise * rng.normal(size=(n, d))


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize("d", [2, 5, 10])
def test_norms_of_usual_rows_are_right_when_rows_are_nearly_collinear(d: int, noise: float) -> None:
    xs = collinear(300, d, noise)
    factor = Factor(d, UNSEEN)
    for x in xs:
        factor.add(x, 1.0)
    for x, exact in zip(xs, exact_norms(exact_gram(xs), UNSEEN, xs[:20]), strict=False):
        assert factor.norm(x) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("noise", [1e-4, 1e-5, 1e-6, 1e-7])
def test_norms_across_the_line_are_right_too(noise: float) -> None:
    """Where V is a hundred million million times smaller than along the line."""
    d = 5
    xs = collinear(300, d, noise)
    factor = Factor(d, UNSEEN)
    for x in xs:
        factor.add(x, 1.0)
    across = rows(20, d, seed=4)
    for x, exact in zip(across, exact_norms(exact_gram(xs), UNSEEN, across), strict=True):
        assert factor.norm(x) == pytest.approx(exact, rel=1e-8)


def test_wildly_scaled_rows_never_spoil_the_inverse() -> None:
    rng = np.random.default_rng(3)
    d = 8
    grown = Grown(d, 1e-6)
    worst = 0.0
    for _ in range(5000):
        x = rng.normal(size=d) * 10.0 ** rng.uniform(-4, 0, d)
        grown.add(x / max(1.0, float(np.linalg.norm(x))))
        worst = max(worst, grown.off)
    assert worst < 1e-6


# --------------------------------------------------------------------------------- long histories


def drift(n: int, d: int, noise: float) -> float:
    """Return by how much, relatively, norms are off after n rows, beside sums without rounding."""
    rng = np.random.default_rng(7)
    factor = Factor(d, UNSEEN)
    unit = 1 << 20  # rows are whole numbers of 1/unit, so that their sums are exact in 64 bits
    sums = np.zeros((d, d), dtype=np.int64)
    for start in range(0, n, 10_000):
        xs = rng.uniform(-0.6, 0.6, (min(10_000, n - start), 1)) * np.linspace(1, 0.2, d)
        whole = np.round(unit * (xs + noise * rng.normal(size=xs.shape))).astype(np.int64)
        sums += whole.T @ whole
        for x in whole / unit:
            factor.add(x, 1.0)
    gram = [[Fraction(s, unit**2) for s in line] for line in sums.tolist()]
    asked = rng.normal(size=(50, d))
    exact = exact_norms(gram, UNSEEN, asked)
    return max(abs(factor.norm(x) / norm - 1) for x, norm in zip(asked, exact, strict=True))


@pytest.mark.parametrize(("d", "noise"), [(3, 0.5), (6, 1e-2), (6, 1e-4)])
def test_many_rows_do_not_make_it_drift(d: int, noise: float) -> None:
    assert drift(50_000, d, noise) < 1e-11


@pytest.mark.full
@pytest.mark.parametrize(("d", "noise"), [(3, 0.5), (6, 1e-2), (6, 1e-4)])
def test_a_million_rows_do_not_make_it_drift(d: int, noise: float) -> None:
    assert drift(1_000_000, d, noise) < 1e-11


# ------------------------------------------------------------------------------ least eigenvalues


@pytest.mark.parametrize("d", DIMENSIONS)
def test_exceeds_says_whether_the_least_eigenvalue_is_above_a_level(d: int) -> None:
    for seed in range(5):
        factor = Factor(d, 10.0 ** (seed - 4))
        for x in rows(d + 20 * seed, d, seed=seed):
            factor.add(x, 1.0 + seed)
        least = np.linalg.eigvalsh(factor.matrix())[0]
        for share in (-1.0, 0.0, 0.5, 0.99, 1 - 1e-9):
            assert factor.exceeds(share * least)
        for share in (1 + 1e-9, 1.01, 2.0, 1e6):
            assert not factor.exceeds(share * least)


@pytest.mark.parametrize("level", [0.99, 1.0, 1.01])
def test_exceeds_compares_with_the_eigenvalues_that_rows_gave(level: float) -> None:
    q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))
    factor = Factor(6, 1e-9)
    for x, value in zip(q.T, [1.0, 1.5, 2, 3, 4, 5], strict=True):
        factor.add(x, value)
    assert factor.exceeds(level) == (level < 1.005)


# ---------------------------------------------------------------------------------------- refused


def test_a_row_of_another_length_is_refused() -> None:
    factor = Factor(3, 1.0)
    for x in (np.ones(2), np.ones(4), np.ones(0)):
        with pytest.raises(ValueError, match="another length"):
            factor.add(x, 1.0)
        with pytest.raises(ValueError, match="another length"):
            factor.norm(x)
    np.testing.assert_array_equal(factor.matrix(), np.eye(3))
