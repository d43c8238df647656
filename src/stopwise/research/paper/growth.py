"""Growth of regret: a fit that distinguishes logarithmic from linear curves."""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from stopwise.arrays import Floats
from stopwise.intervals import Interval

Shape: TypeAlias = Literal["logarithmic", "linear", "undecided"]

# Share of rounds excluded from the fit: these are mostly exploration, which neither term describes
# (heuristic).
BURN_IN = 0.2
RESAMPLES, SEED = 2000, 0
# With fewer runs the intervals are too short, as measured on known curves
# (docs/reproduction-method.md).
MIN_RUNS = 50
# Bounds on the linear share of a logarithmic and of a linear curve (heuristic).
SMALL, LARGE = 0.25, 0.75


class Growth(NamedTuple):
    """The fit A·ln t + c·t to a mean curve, and the linear share of the fit.

    ``share`` is the share of c·t in the fitted increase over the last fifth of the rounds,
    c·0.2T / (A·ln(1/0.8) + c·0.2T), with its 95 % interval.
    """

    logarithmic: float  # A
    linear: float  # c
    share: Interval

    @property
    def shape(self) -> Shape:
        """The shape of the curve, judged by the interval of the share.

        It is logarithmic if the interval contains 0 and lies below `SMALL`, linear if the interval
        contains 1 and lies above `LARGE`, and otherwise undecided.
        """
        if self.share.low == 0 and self.share.high < SMALL:
            return "logarithmic"
        return "linear" if self.share.high == 1 and self.share.low > LARGE else "undecided"


def fit_growth(rounds: Floats, curves: Floats) -> Growth | None:
    """Fit A·ln t + c·t with A, c ≥ 0 to the mean curve of several runs after the first fifth.

    Uses least squares on the mean curve's increments, so the level at the end of the first fifth
    does not matter. The interval is a percentile bootstrap over runs with a fixed seed.

    Parameters
    ----------
    rounds : ndarray of shape (m,)
        The rounds at which the curves are sampled; the last is T.
    curves : ndarray of shape (runs, m)
        Cumulative regret.

    Returns
    -------
    Growth or None
        None if there are fewer than 50 runs.

    Examples
    --------
    >>> t = np.arange(100.0, 5001, 100)
    >>> fit_growth(t, np.tile(30 * np.log(t), (50, 1))).shape
    'logarithmic'
    >>> fit_growth(t, np.tile(200 + 0.1 * t, (50, 1))).shape
    'linear'
    """
    n = len(curves)
    if n < MIN_RUNS:
        return None
    late = rounds >= BURN_IN * rounds[-1]
    t = rounds[late]
    increments = np.diff(curves[:, late], axis=1)
    terms = np.stack([np.diff(np.log(t)), np.diff(t)])
    weights = np.random.default_rng(SEED).multinomial(n, np.full(n, 1.0 / n), RESAMPLES) / n
    means = np.concatenate([increments.mean(axis=0)[None], weights @ increments])
    a, c = _non_negative_least_squares(terms, means)
    linear, logarithmic = c * 0.2 * t[-1], a * np.log(1 / 0.8)
    total = linear + logarithmic
    shares = np.divide(linear, total, out=np.zeros_like(total), where=total > 0)  # 0 if flat
    low, high = np.quantile(shares[1:], (0.025, 0.975))
    share = Interval(float(shares[0]), float(low), float(high))
    return Growth(float(a[0]), float(c[0]), share)


def _non_negative_least_squares(terms: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Fit two coefficients ≥ 0 to each row of values.

    If a coefficient is negative in the unconstrained solution, it is zero in the constrained one.
    """
    scale = np.linalg.norm(terms, axis=1)
    unit = terms / scale[:, None]
    projection_0, projection_1 = unit @ values.T
    cosine = float(unit[0] @ unit[1])
    first = (projection_0 - cosine * projection_1) / (1.0 - cosine**2)
    second = (projection_1 - cosine * projection_0) / (1.0 - cosine**2)
    only_first, only_second = np.maximum(projection_0, 0.0), np.maximum(projection_1, 0.0)
    left: Floats = np.where(second < 0, only_first, np.where(first < 0, 0.0, first))
    right: Floats = np.where(first < 0, only_second, np.where(second < 0, 0.0, second))
    return left / scale[0], right / scale[1]
