"""Trained classifiers satisfy the optimality conditions."""

import numpy as np
import pytest

from stopwise.research.environments.training import fit_logistic


def data(kind: str, n: int = 300, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    if kind == "uneven":  # full Newton steps from zero diverge; see the line search
        return np.array([[-60, 0], [-50, -25], [0, 0.3], [-0.1, 0]]), np.array([0, 1, 0, 1])
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
@pytest.mark.parametrize("C", [1e-6, 1e-2, 1.0, 1e4, 1e7])
@pytest.mark.parametrize("kind", ["noisy", "separable", "collinear", "uneven"])
def test_weights_are_optimal(kind: str, C: float, intercept: bool) -> None:
    """The objective of scikit-learn's LogisticRegression is strictly convex in the weights."""
    X, y = data(kind)
    weights = fit_logistic(X, y, C, intercept)
    assert intercept or weights[-1] == 0.0
    # The gradient is zero to 1e-10, or where C multiplies rounding of n terms, to C·n·1e-15 …
    norm = gradient(weights, X, y, C, intercept)
    assert norm <= max(1e-10, 1e-15 * C * len(X))
    # … but not at neighbouring weights
    assert gradient(weights * (1 + 1e-6), X, y, C, intercept) > 10 * norm
