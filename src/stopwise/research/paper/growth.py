"""How fast regret grows: a logarithm, a line, or undecided at this horizon."""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from stopwise.arrays import Floats
from stopwise.intervals import Interval

Shape: TypeAlias = Literal["logarithmic", "linear", "undecided"]

# The first rounds are mostly exploration, which neither term describes (heuristic).
FROM = 0.2
RESAMPLES, SEED = 2000, 0
# Measured on known curves (docs/reproduction.md): fewer runs make the intervals too short.
FEWEST_RUNS = 50
# Shares of a linear part that count as none and as all (heuristic).
SMALL, LARGE = 0.25, 0.75


class Growth(NamedTuple):
    """The fit A·ln t + c·t to a mean curve, and its linear part of what the last fifth adds.

    ``share`` is c·0.2T / (A·ln(1/0.8) + c·0.2T), with its 95 % interval.
    """

    logarithmic: float  # A
    linear: float  # c
    share: Interval

    @property
    def shape(self) -> Shape:
        """What the interval of the share leaves: no linear part, nothing else, or both."""
        if self.share.low == 0 and self.share.high < SMALL:
            return "logarithmic"
        return "linear" if self.share.high == 1 and self.share.low > LARGE else "undecided"


def fit_growth(rounds: Floats, curves: Floats) -> Growth | None:
    """Fit A·ln t + c·t with A, c ≥ 0 to what the mean of runs adds after the first fifth.

    The fit is by least squares on the differences of the mean curve between rounds, so the level
    that it starts from does not matter. The interval is a percentile bootstrap over runs, whose
    draws are fixed. None for fewer than 50 runs.

    Parameters
    ----------
    rounds : ndarray of shape (m,)
        At which the curves are given; the last is T.
    curves : ndarray of shape (runs, m)
        Cumulative regret.

    Examples
    --------
    >>> t = np.arange(100.0, 5001, 100)
    >>> fit_growth(t, np.tile(30 * np.log(t), (50, 1))).shape
    'logarithmic'
    >>> fit_growth(t, np.tile(200 + 0.1 * t, (50, 1))).shape
    'linear'
    """
    n = len(curves)
    if n < FEWEST_RUNS:
        return None
    later = rounds >= FROM * rounds[-1]
    t, added = rounds[later], np.diff(curves[:, later], axis=1)
    terms = np.stack([np.diff(np.log(t)), np.diff(t)])
    drawn = np.random.default_rng(SEED).multinomial(n, np.full(n, 1.0 / n), RESAMPLES) / n
    a, c = _non_negative(terms, np.concatenate([added.mean(axis=0)[None], drawn @ added]))
    line, bend = c * 0.2 * t[-1], a * np.log(1 / 0.8)
    total = line + bend
    shares = np.divide(line, total, out=np.zeros_like(total), where=total > 0)  # flat: no line
    low, high = np.quantile(shares[1:], (0.025, 0.975))
    share = Interval(float(shares[0]), float(low), float(high))
    return Growth(float(a[0]), float(c[0]), share)


def _non_negative(terms: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the two coefficients ≥ 0 of each row of values by least squares.

    If the unconstrained solution has a negative coefficient, the constrained one has it at zero.
    """
    scale = np.linalg.norm(terms, axis=1)
    unit = terms / scale[:, None]
    one, other = unit @ values.T
    cosine = float(unit[0] @ unit[1])
    first = (one - cosine * other) / (1.0 - cosine**2)
    second = (other - cosine * one) / (1.0 - cosine**2)
    alone, other_alone = np.maximum(one, 0.0), np.maximum(other, 0.0)
    left: Floats = np.where(second < 0, alone, np.where(first < 0, 0.0, first))
    right: Floats = np.where(first < 0, other_alone, np.where(second < 0, 0.0, second))
    return left / scale[0], right / scale[1]
