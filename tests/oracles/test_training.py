"""Trained classifiers beside scikit-learn's, and beside the conditions of optimality."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from stopwise.environments.training import fit_logistic

GRID = [1e-6, 1e-2, 1.0, 1e4, 1e7]


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
def test_weights_are_those_of_scikit_learn_and_optimal(
    kind: str, C: float, intercept: bool
) -> None:
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
    # The gradient is zero to 1e-10, or where C multiplies rounding of n terms, to C·n·1e-15 …
    off = gradient(ours, X, y, C, intercept)
    assert off <= max(1e-10, 1e-15 * C * len(X))
    assert gradient(ours * (1 + 1e-6), X, y, C, intercept) > 10 * off  # … which such weights miss
