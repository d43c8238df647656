"""Trained classifiers beside scikit-learn's, and beside the conditions of optimality."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from stopwise.environments.training import fit_logistic

GRID = [1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e7]


def data(kind: str, n: int = 300, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    X = random.uniform(-1, 1, (n, d))
    score = X @ np.arange(1, d + 1) + 0.3
    if kind == "noisy":
        score = score + random.normal(size=n)
    if kind == "collinear":
        X = np.column_stack([X, X[:, 0], np.full(n, 0.5)])
        score = score + random.normal(size=n)
    return X, (score > 0).astype(int)


def gradient(w: np.ndarray, X: np.ndarray, y: np.ndarray, C: float, intercept: bool) -> float:
    """‖∇‖ of the objective in extended precision; independent of the code under test."""
    rows = np.column_stack([X, np.ones(len(X))]).astype(np.longdouble)
    point = w.astype(np.longdouble)
    residual = 1 / (1 + np.exp(-(rows @ point))) - y
    slope = C * (rows.T @ residual)
    slope[:-1] += point[:-1]
    return float(np.linalg.norm(slope if intercept else slope[:-1]))


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("C", GRID)
@pytest.mark.parametrize("kind", ["noisy", "separable", "collinear"])
def test_weights_are_those_of_scikit_learn(kind: str, C: float, intercept: bool) -> None:
    X, y = data(kind)
    ours = fit_logistic(X, y, C, intercept)
    model = LogisticRegression(
        C=C, fit_intercept=intercept, solver="newton-cholesky", tol=1e-14, max_iter=10_000
    )
    with warnings.catch_warnings():
        # it is asked for more than double precision can give, and says so
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    theirs = np.append(model.coef_[0], np.ravel(model.intercept_)[0] if intercept else 0.0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("C", [*GRID, 1e9])
@pytest.mark.parametrize("kind", ["noisy", "separable", "collinear"])
def test_the_gradient_vanishes(kind: str, C: float, intercept: bool) -> None:
    """To 1e-10, or where C multiplies rounding errors of n terms, to C·n·1e-16 or so."""
    X, y = data(kind)
    w = fit_logistic(X, y, C, intercept)
    assert gradient(w, X, y, C, intercept) <= max(1e-10, 1e-15 * C * len(X))
    # … which a weight off by a millionth would miss
    assert gradient(w * (1 + 1e-6), X, y, C, intercept) > 10 * gradient(w, X, y, C, intercept)


def test_separable_data_and_hardly_a_penalty_make_huge_weights() -> None:
    X, y = data("separable")
    w = fit_logistic(X, y, 1e7, False)
    assert np.abs(w).max() > 50
    assert ((X @ w[:-1] > 0) == y).mean() > 0.95
