"""A growing matrix and its inverse: exact away from the defaults, finite when singular."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine import gram

Array = NDArray[np.float64]


class Grown:
    """A matrix kept by the kernels, beside the same sum in plain numpy."""

    def __init__(self, d: int, lam: float, *, regular: bool = False) -> None:
        self.d, self.regular = d, regular
        self.both = np.zeros((2, d, d))
        self.both[gram.MATRIX] = lam * np.eye(d)
        self.state = np.zeros(gram.N_STATE)
        self.work = np.zeros((d + 2, d))
        self.expected = lam * np.eye(d)

    def add(self, x: Array, w: float = 1.0) -> float:
        self.expected += w * np.outer(x, x)
        line = self.work[self.d]
        return gram.add_row(self.both, self.state, x, w, self.d, self.regular, line, self.work)

    def norm(self, x: Array) -> float:
        return gram.norm(self.both, self.state, x, self.d, self.work)

    @property
    def matrix(self) -> Array:
        return self.both[gram.MATRIX]

    @property
    def inverse(self) -> Array:
        return self.both[gram.INVERSE]

    @property
    def off(self) -> float:
        floored = self.matrix + self.state[gram.FLOOR] * np.eye(self.d)
        return float(np.abs(floored @ self.inverse - np.eye(self.d)).max())


def rows(n: int, d: int, seed: int = 0) -> Array:
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 7, 8, 45])
def test_kernels_of_linear_algebra_are_numpys(d: int) -> None:
    rng = np.random.default_rng(d)
    a = rng.normal(size=(d, d + 3))
    a = a @ a.T
    x, y = rng.normal(size=(2, d))
    out, work, line = np.zeros((d, d)), np.zeros((d + 2, d)), np.zeros(d)
    assert gram.dot(x, y, d) == pytest.approx(x @ y)
    gram.multiply(a, x, d, line)
    np.testing.assert_allclose(line, a @ x)
    assert gram.cholesky(a, 0.5, d, work)
    np.testing.assert_allclose(np.tril(work[:d]), np.linalg.cholesky(a + 0.5 * np.eye(d)))
    assert gram.invert(a, 0.5, d, out, work)
    np.testing.assert_allclose(out, np.linalg.inv(a + 0.5 * np.eye(d)), rtol=1e-9, atol=1e-12)
    expected = np.abs((a + 0.5 * np.eye(d)) @ (out + 1e-3) - np.eye(d)).max()
    assert gram.residual(a, out + 1e-3, 0.5, d, line) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [-1.0, -0.99, -1.01])
def test_cholesky_tells_whether_the_least_eigenvalue_is_above_minus_the_shift(shift: float) -> None:
    q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))
    a = (q * [1.0, 1.5, 2, 3, 4, 5]) @ q.T
    if shift == -1.0:
        a += 1e-9 * np.eye(6)
    assert gram.cholesky(a, shift, 6, np.zeros((8, 6))) == (shift > -1.005)


@pytest.mark.parametrize("lam", [1e-6, 0.01, 0.37, 1.0, 250.0])
@pytest.mark.parametrize("d", [1, 3, 10, 45])
def test_rank_one_steps_give_the_inverse_for_any_lambda(lam: float, d: int) -> None:
    grown = Grown(d, lam)
    assert grown.norm(np.ones(d)) == pytest.approx(math.sqrt(d / lam))
    for t, x in enumerate(rows(300, d)):
        grown.add(x, 0.1 + (t % 7))
        np.testing.assert_allclose(grown.norm(x), math.sqrt(x @ np.linalg.solve(grown.expected, x)))
    np.testing.assert_allclose(grown.matrix, grown.expected, rtol=1e-12)
    np.testing.assert_allclose(grown.inverse, np.linalg.inv(grown.expected), rtol=1e-6, atol=1e-9)
    assert grown.state[gram.FLOOR] == 0.0
    assert grown.state[gram.COUNT] == 300


def test_a_step_returns_what_the_inverse_was_before_it() -> None:
    grown = Grown(4, 0.5)
    xs = rows(2, 4)
    grown.norm(xs[0])
    before = np.linalg.inv(grown.expected)
    assert grown.add(xs[0]) == pytest.approx(xs[0] @ before @ xs[0])
    np.testing.assert_allclose(grown.work[4], before @ xs[0])


def test_until_asked_only_the_matrix_grows() -> None:
    grown = Grown(3, 0.5)
    assert [grown.add(x) for x in rows(10, 3)] == [-1.0] * 10
    assert not grown.inverse.any()
    grown.norm(np.ones(3))
    np.testing.assert_allclose(grown.inverse, np.linalg.inv(grown.expected))


def test_nothing_seen_has_an_infinite_norm() -> None:
    assert Grown(3, 0.0).norm(np.ones(3)) == math.inf


@pytest.mark.parametrize("d", [2, 5, 20])
def test_an_unseen_direction_is_far_and_a_seen_one_is_not(d: int) -> None:
    grown = Grown(d, 0.0)
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    for t in range(40):
        grown.add(q[t % (d - 1)])
    counts = np.bincount(np.arange(40) % (d - 1), minlength=d)
    for c in range(d - 1):
        assert grown.norm(q[c]) == pytest.approx(1 / math.sqrt(counts[c]), rel=1e-5)
    assert 1e3 < grown.norm(q[d - 1]) < math.inf
    assert grown.state[gram.FLOOR] > 0
    assert grown.off < 1e-6


def test_the_floor_goes_when_the_last_direction_is_seen() -> None:
    grown = Grown(5, 0.0)
    eye = np.eye(5)
    for x in eye[:4]:
        grown.add(x)
        grown.norm(x)
    assert grown.state[gram.FLOOR] > 0
    grown.add(eye[4])
    assert grown.state[gram.FLOOR] == 0.0
    np.testing.assert_allclose(grown.inverse, eye, rtol=1e-12)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("d", [2, 5, 10])
def test_norms_of_usual_rows_are_right_when_rows_are_nearly_collinear(d: int, noise: float) -> None:
    rng = np.random.default_rng(d)
    xs = rng.uniform(0.3, 0.6, (1000, 1)) * rows(1, d)[0] + noise * rng.normal(size=(1000, d))
    grown = Grown(d, 0.0)
    for t, x in enumerate(xs):
        grown.add(x)
        if t >= 100:
            grown.norm(x)
    r = np.asarray(np.linalg.qr(xs, mode="r"))  # as V = RᵀR, without squaring the condition
    for x in xs[:50]:
        exact = float(np.linalg.norm(np.linalg.solve(r.T, x)))
        assert grown.norm(x) == pytest.approx(exact, rel=1e-3)


def test_a_step_of_huge_leverage_is_inverted_afresh() -> None:
    grown = Grown(4, 1e-3)
    xs = rows(3, 4)
    grown.norm(xs[0])
    assert grown.add(xs[0]) == -1.0  # leverage 1e3: not a rank-one step
    assert grown.state[gram.STEPS] == 0.0
    assert grown.off < 1e-6
    assert grown.add(1e-3 * xs[1]) >= 0.0  # leverage 1e-3: an ordinary one


def test_a_spoilt_inverse_is_found_and_mended() -> None:
    d = 6
    grown = Grown(d, 1.0)
    xs = rows(gram.GUARD_EVERY + d + 1, d)
    grown.norm(xs[0])
    grown.inverse[...] *= 1.01
    for x in xs:
        grown.add(x)
    assert grown.off < 1e-12


def test_a_guard_never_lets_drift_pass() -> None:
    rng = np.random.default_rng(3)
    d = 8
    grown = Grown(d, 1e-6)
    grown.norm(np.ones(d))
    worst = 0.0
    for _ in range(5000):
        x = rng.normal(size=d) * 10.0 ** rng.uniform(-4, 0, d)
        grown.add(x / max(1.0, float(np.linalg.norm(x))))
        worst = max(worst, grown.off)
    assert worst < 1e-6


@pytest.mark.parametrize("ridge", [1e-9, 1e-3])
def test_the_regular_inverse_takes_no_floor(ridge: float) -> None:
    grown = Grown(5, ridge, regular=True)
    gram.refresh_regular(grown.both, grown.state, 5, grown.work)
    x = rows(1, 5)[0]
    for _ in range(200):
        grown.add(x, 0.25)
    assert grown.state[gram.FLOOR] == 0.0
    q = np.linalg.qr(np.column_stack([x, rows(4, 5, seed=9).T]))[0]
    assert q[:, 1] @ grown.inverse @ q[:, 1] == pytest.approx(1 / ridge, rel=1e-4)
    assert x @ grown.inverse @ x == pytest.approx(1 / (50 + ridge), rel=1e-4)
