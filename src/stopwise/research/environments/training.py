"""Training of logistic classifiers, exact to rounding, for environments whose arms are trained."""

import numpy as np
from numpy.typing import ArrayLike

from stopwise import checks
from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError

# The gradient is driven below this (times C if that is small), or to what rounding leaves of zero.
TOLERANCE = 1e-10
# Newton's method takes about 10 steps, or about 2·ln C where the classes can be separated.
MAX_STEPS = 500
# The least share of the promised decrease a step must bring (Armijo's rule; the usual value).
ARMIJO = 1e-4
EPSILON = float(np.finfo(np.float64).eps)


def predict_logistic(x: Floats, weights: Floats) -> Floats:
    """Return μ(xᵀw + b) for every row x and every row (w, b) of weights, without overflow."""
    z = x @ weights[:, :-1].T + weights[:, -1]
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def fit_logistic(X: ArrayLike, y: ArrayLike, C: float = 1.0, intercept: bool = True) -> Floats:
    """Train a logistic classifier, as scikit-learn's ``LogisticRegression`` defines it.

        (w, b) = argmin ½‖w‖² + C·Σ ln(1 + exp(−s(xᵀw + b))),    s = ±1 for labels 1 and 0

    by Newton's method with a line search. The intercept b is not penalised; without one the last
    number of the result is 0. ``X`` is of shape (n, d), and ``y`` has n labels, 0 or 1. C > 0 is
    how much the data count beside the penalty.

    Examples
    --------
    >>> fit_logistic([[-1.0], [0.0], [1.0]], [0, 1, 1], C=1.0).round(4).tolist()
    [0.7016, 0.7476]
    """
    table, labels = checked_table(X, y)
    weight = checks.real("C", C, above=0)
    if intercept and (labels == labels[0]).all():
        raise InvalidParameterError(
            f"every label is {labels[0]}: an intercept would grow for ever; give both labels, or "
            "train without an intercept"
        )
    rows = np.column_stack([table, np.ones(len(table))]) if intercept else table
    penalty = np.ones(rows.shape[1])
    penalty[table.shape[1] :] = 0.0
    w = _minimise(rows, np.where(labels == 1, 1.0, -1.0), weight, penalty)
    return w if intercept else np.append(w, 0.0)


def checked_table(X: ArrayLike, y: ArrayLike) -> tuple[Floats, Ints]:
    """Return a table of finite numbers and its labels 0 and 1, in fresh arrays."""
    table = checks.table("the data", X).copy()
    labels = checks.numbers("the labels", y)
    if labels.shape != (len(table),):
        raise InvalidParameterError(
            f"{len(table)} rows need as many labels; these have shape {labels.shape}"
        )
    if not np.isin(labels, (0.0, 1.0)).all():
        row = int(np.argmin(np.isin(labels, (0.0, 1.0))))
        raise InvalidParameterError(f"the label of row {row} is {labels[row]:g}, not 0 or 1")
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
        # 1 − μ(margin) and its slope, precise even where they are tiny, since C multiplies them
        missing = np.exp(-np.logaddexp(0.0, margin))
        slope = missing * np.exp(-np.logaddexp(0.0, -margin))
        gradient = penalty * w - C * (rows.T @ (sign * missing))
        # What rounding, of the margins above all, can leave of a gradient that should be zero.
        noise = C * (size.T @ (missing + slope * (1.0 + size @ np.abs(w))))
        enough = max(TOLERANCE * min(1.0, C), 4 * EPSILON * float(np.linalg.norm(noise)))
        if np.linalg.norm(gradient) <= enough:
            return w
        hessian = (rows.T * (C * slope)) @ rows
        hessian[np.diag_indices_from(hessian)] += penalty
        try:
            step: Floats = np.linalg.solve(hessian, -gradient).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            break
        # As |μ''| ≤ μ', a Newton step that moves no margin by more than ½ decreases the loss by at
        # least 0.4λ², λ² = −gradient·step, and near the end a search would drown in rounding.
        length, here, promised = 1.0, loss(w), ARMIJO * float(gradient @ step)
        far = np.abs(rows @ step).max() > 0.5
        while far and length > EPSILON and loss(w + length * step) > here + length * promised:
            length /= 2
        w = w + length * step
    raise InvalidParameterError(
        f"training with C = {C:g} did not converge; scale the columns to a like size, or lower C"
    )
