"""Exact training of logistic classifiers, for environments with trained arms."""

import numpy as np
from numpy.typing import ArrayLike

from stopwise import checks
from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError

# Bound on the gradient's norm (times C if C < 1), unless the rounding error is larger.
TOLERANCE = 1e-10
# Newton's method takes about 10 steps, or about 2·ln C if the classes are separable.
MAX_STEPS = 500
# Minimum share of the linearly predicted decrease in a line search (the usual value in Armijo's
# rule).
ARMIJO = 1e-4
EPSILON = float(np.finfo(np.float64).eps)


def predict_logistic(x: Floats, weights: Floats) -> Floats:
    """Return μ(xᵀw + b), the probability of label 1, for every row x and every row (w, b).

    Examples
    --------
    >>> predict_logistic(np.array([[0.0], [2.0]]), np.array([[1.0, 0.0]])).round(3).tolist()
    [[0.5], [0.881]]
    """
    # unlike exp, tanh does not overflow
    z = x @ weights[:, :-1].T + weights[:, -1]
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def fit_logistic(X: ArrayLike, y: ArrayLike, C: float = 1.0, intercept: bool = True) -> Floats:
    """Train a logistic classifier with the loss of scikit-learn's ``LogisticRegression``.

        (w, b) = argmin ½‖w‖² + C·Σ ln(1 + exp(−s(xᵀw + b))),    s = ±1 for labels 1 and 0

    Parameters
    ----------
    X : array_like of shape (n, d)
    y : array_like of shape (n,)
        The labels, 0 or 1.
    C : float
        The inverse regularisation strength, above 0.
    intercept : bool
        Whether to fit b, which is not penalised.

    Returns
    -------
    ndarray of shape (d + 1,)
        w and b; b is 0 without an intercept.

    Examples
    --------
    >>> fit_logistic([[-1.0], [0.0], [1.0]], [0, 1, 1], C=1.0).round(4).tolist()
    [0.7016, 0.7476]
    """
    table, labels = checked_table(X, y)
    weight = checks.real("C", C, above=0)
    if intercept and (labels == labels[0]).all():
        raise InvalidParameterError(
            f"y must contain both labels to fit an intercept, got only {labels[0]}; use both, or "
            "pass intercept=False"
        )
    rows = np.column_stack([table, np.ones(len(table))]) if intercept else table
    penalty = np.ones(rows.shape[1])
    penalty[table.shape[1] :] = 0.0
    w = _minimise(rows, np.where(labels == 1, 1.0, -1.0), weight, penalty)
    return w if intercept else np.append(w, 0.0)


def checked_table(X: ArrayLike, y: ArrayLike) -> tuple[Floats, Ints]:
    """Return copies of a finite table and its labels, 0 or 1; raise an error if invalid."""
    table = checks.table("X", X).copy()
    labels = checks.numbers("y", y)
    if labels.shape != (len(table),):
        raise InvalidParameterError(
            f"y must have {len(table)} labels, one per row of X, got shape {labels.shape}"
        )
    if not np.isin(labels, (0.0, 1.0)).all():
        row = int(np.argmin(np.isin(labels, (0.0, 1.0))))
        raise InvalidParameterError(
            f"y must contain only 0 and 1, got {labels[row]:g} in row {row}"
        )
    return table, labels.astype(np.int64)


def _minimise(rows: Floats, sign: Floats, C: float, penalty: Floats) -> Floats:
    """Minimise ½ wᵀ diag(penalty) w + C·Σ ln(1 + exp(−sign·(rows w)))."""

    def loss(w: Floats) -> float:
        losses = np.logaddexp(0.0, -sign * (rows @ w))
        return float(0.5 * (penalty * w) @ w + C * losses.sum())

    w = np.zeros(rows.shape[1])
    size = np.abs(rows)
    for _ in range(MAX_STEPS):
        margin = sign * (rows @ w)
        # 1 − μ(margin) and its slope, accurate even if tiny, because C multiplies them
        residual = np.exp(-np.logaddexp(0.0, margin))
        slope = residual * np.exp(-np.logaddexp(0.0, -margin))
        gradient = penalty * w - C * (rows.T @ (sign * residual))
        # bound on the rounding error of the gradient, which comes mostly from the margins
        noise = C * (size.T @ (residual + slope * (1.0 + size @ np.abs(w))))
        tolerance = max(TOLERANCE * min(1.0, C), 4 * EPSILON * float(np.linalg.norm(noise)))
        if np.linalg.norm(gradient) <= tolerance:
            return w
        hessian = (rows.T * (C * slope)) @ rows
        hessian[np.diag_indices_from(hessian)] += penalty
        try:
            step: Floats = np.linalg.solve(hessian, -gradient).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            break
        # Because |μ''| ≤ μ', a Newton step that moves no margin by more than ½ decreases the loss
        # by at least 0.4λ², where λ² = −gradient·step. A line search would then only compare
        # rounding errors.
        length = 1.0
        current = loss(w)
        required = ARMIJO * float(gradient @ step)
        search = np.abs(rows @ step).max() > 0.5
        while search and length > EPSILON and loss(w + length * step) > current + length * required:
            length /= 2
        w = w + length * step
    raise InvalidParameterError(
        f"training with C={C:g} did not converge; scale the columns to a similar size, or lower C"
    )
