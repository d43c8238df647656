"""The factors of V, tested through the learner: accurate, and finite where V is singular."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine.native import Ellipsoid, FeatureMaps, Learner, UssPdRidge

Array = NDArray[np.float64]
DIMENSIONS = [1, 2, 3, 4, 5, 8, 9, 45]
UNSEEN = 1e-18  # the initial diagonal of V without λ


class Gram:
    """A learner of two arms whose V starts as scale·I and whose bonus reveals the norms."""

    def __init__(self, d: int, scale: float, forced: int | None = 0, sigma: float = 1e6) -> None:
        self.d = d
        self.learner = Learner(
            UssPdRidge(Ellipsoid(sigma, 0.25, 0.05, 2), scale, 0.0),
            FeatureMaps(2, d, [d], [0], None),  # the caller passes rows
            gaps=[0.0, 0.5, -0.5, 0.0],
            ridge=1e6,
            forced_rounds=forced,
            transitive=False,
            explore=0.0,
            labels=0.0,
            seed=0,
            half_life=None,
            most_rows=None,
        )

    def add(self, rows: Array) -> None:
        n = len(rows)
        answered = np.full(n, 2)
        self.learner.learn(rows, np.zeros((n, 1), dtype=np.uint8), answered, answered - 1)

    def norm(self, x: Array) -> float:
        """‖x‖_{V⁻¹}. The ridge keeps the estimate at 0, so the upper value is the bonus."""
        trace = self.learner.decide(x)
        assert trace is not None
        (comparison,) = trace.__getstate__()[-1]
        assert comparison is not None
        estimate, upper, *_ = comparison
        assert estimate == 0.0
        return upper / self.learner.radius(0)

    def forced(self) -> bool:
        trace = self.learner.decide(np.zeros(self.d))
        assert trace is not None
        return trace.forced


def rows(n: int, d: int, seed: int = 0) -> Array:
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("scale", [1e-18, 1e-3, 10.0])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_gram_equals_the_sum_and_the_inverse_of_numpy(d: int, scale: float) -> None:
    gram, xs = Gram(d, scale), rows(100 + 2 * d, d)
    assert gram.norm(xs[0]) == pytest.approx(1 / math.sqrt(scale), rel=1e-12)
    gram.add(xs)
    expected = scale * np.eye(d) + xs.T @ xs
    matrix, inverse = gram.learner.gram(0)
    np.testing.assert_allclose(matrix, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse, np.linalg.inv(expected), rtol=1e-6, atol=1e-9)
    assert np.abs(matrix @ inverse - np.eye(d)).max() < 1e-12
    for symmetric in (matrix, inverse):
        np.testing.assert_array_equal(symmetric, symmetric.T)
    for x in rows(10, d, seed=1):
        exact = math.sqrt(x @ np.linalg.solve(expected, x))
        assert gram.norm(x) == pytest.approx(exact, rel=1e-9)
    gram.add(np.zeros((1, d)))
    np.testing.assert_array_equal(gram.learner.gram(0)[0], matrix)


def exact_norms(integers: NDArray[np.int64], unit: int, queries: Array) -> list[float]:
    """‖φ‖ in the metric of (UNSEEN·I + Gram matrix of integers/unit)⁻¹, in rational numbers."""
    d = integers.shape[1]
    sums = (integers.T.astype(object) @ integers.astype(object)).tolist()
    a = [
        [Fraction(sums[i][j], unit**2) + (i == j) * Fraction(UNSEEN) for j in range(d)]
        for i in range(d)
    ]
    sides = [[Fraction(v) for v in x] for x in queries.tolist()]
    squares = [Fraction(0)] * len(sides)
    for k in range(d):  # A = LDLᵀ with p = L⁻¹φ beside it; then ‖φ‖² = Σ p²/D
        for s, side in enumerate(sides):
            squares[s] += side[k] ** 2 / a[k][k]
        for i in range(k + 1, d):
            share = a[i][k] / a[k][k]
            for j in range(k + 1, d):
                a[i][j] -= share * a[k][j]
            for side in sides:
                side[i] -= share * side[k]
    return [math.sqrt(float(square)) for square in squares]


def worst_error(n: int, d: int, noise: float) -> float:
    """The largest relative error of a norm after n rows near a line."""
    rng, unit = np.random.default_rng(7), 1 << 40  # rows are multiples of 1/unit
    xs = rng.uniform(-0.6, 0.6, (n, 1)) * np.linspace(1, 0.2, d) + noise * rng.normal(size=(n, d))
    integers = np.round(unit * xs).astype(np.int64)
    gram = Gram(d, UNSEEN)
    gram.add(integers / unit)
    queries = np.vstack([integers[:10] / unit, rng.normal(size=(10, d))])
    exact = exact_norms(integers, unit, queries)
    return max(abs(gram.norm(x) / norm - 1) for x, norm in zip(queries, exact, strict=True))


@pytest.mark.parametrize("noise", [1e-2, 1e-5, 1e-7])
@pytest.mark.parametrize("d", [2, 5, 10])
def test_norms_are_accurate_along_and_across_a_line(d: int, noise: float) -> None:
    assert worst_error(300, d, noise) < 1e-8


@pytest.mark.parametrize(
    "n", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
@pytest.mark.parametrize(("d", "noise"), [(3, 0.5), (6, 1e-4)])
def test_rounding_errors_do_not_accumulate(d: int, noise: float, n: int) -> None:
    # rounding errors add up like a random walk
    assert worst_error(n, d, noise) < 1e-11 * math.sqrt(n / 20_000)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_forced_rounds_end_when_the_smallest_eigenvalue_reaches_its_level(d: int) -> None:
    """forced_rounds="auto": until V ≽ 3λ·I."""
    lam, xs = 0.3, rows(60 * d, d, seed=d)
    gram, v = Gram(d, lam, forced=None), lam * np.eye(d)
    for x in xs:
        assert gram.forced() == (np.linalg.eigvalsh(v)[0] < 3 * lam * (1 - 1e-9))
        gram.add(x[None])
        v += np.outer(x, x)
    assert not gram.forced()
