"""Intervals for shares and means, of 95 % unless another width is given."""

import math
from collections.abc import Iterator
from statistics import NormalDist

import msgspec

from stopwise.arrays import Floats

NORMAL = NormalDist()
Z90, Z95 = NORMAL.inv_cdf(0.95), NORMAL.inv_cdf(0.975)


class Estimate(msgspec.Struct, frozen=True):
    """A number and its interval, from low to high."""

    value: float
    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def wilson(hits: float, n: float, z: float = Z95) -> Estimate:
    """Return a share with Wilson's interval, valid at 0 and 1 too; (0, 1) without any row.

    Examples
    --------
    >>> print(wilson(0, 10))
    0.000 (0.000 to 0.278)
    """
    if n <= 0:
        return Estimate(0.0, 0.0, 1.0)
    share, z2 = hits / n, z * z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # exactly 0 and 1 at the ends, in spite of rounding
    low = 0.0 if hits == 0 else max(middle - half, 0.0)
    high = 1.0 if hits == n else min(middle + half, 1.0)
    return Estimate(share, low, high)


def widened(share: float, n: int, reach: float, z: float = Z95) -> Estimate:
    """Return a share with Wilson's interval, its ends moved out for a second source of error.

    ``reach`` is how far that alone reaches either way at the same level. Distances from the share
    to the ends are combined as roots of summed squares (R. G. Newcombe's square-and-add method,
    Statistics in Medicine 17, 1998).

    Examples
    --------
    >>> print(wilson(20, 100))
    0.200 (0.133 to 0.289)
    >>> print(widened(0.2, 100, reach=0.0), widened(0.2, 100, reach=0.05))
    0.200 (0.133 to 0.289) 0.200 (0.117 to 0.302)
    """
    interval = wilson(share * n, n, z)
    down = math.hypot(share - interval.low, reach)
    up = math.hypot(interval.high - share, reach)
    return Estimate(share, max(share - down, 0.0), min(share + up, 1.0))


def around(value: float, error: float, z: float = Z95) -> Estimate:
    """Return a number and the interval of z standard errors about it."""
    return Estimate(value, value - z * error, value + z * error)


def mean(values: Floats, z: float = Z95) -> Estimate:
    """Return the mean of two or more independent values with its normal interval."""
    n = len(values)
    return around(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n), z)


def chi_square_limit(freedom: int, chance: float) -> float:
    """Return what a χ² exceeds with this chance (Wilson and Hilferty's approximation).

    Examples
    --------
    >>> round(chi_square_limit(10, 0.05), 1)
    18.3
    """
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + NORMAL.inv_cdf(1 - chance) * math.sqrt(spread)) ** 3
