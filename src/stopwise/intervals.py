"""Confidence intervals for proportions and means."""

import math
from functools import lru_cache
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.errors import InvalidParameterError

NORMAL = NormalDist()
Z90, Z95 = NORMAL.inv_cdf(0.95), NORMAL.inv_cdf(0.975)

# Nodes of Gauss–Legendre quadrature; for the smooth density of t, its error is below rounding.
NODES = 80


class Interval(msgspec.Struct, frozen=True, omit_defaults=True):
    """An estimate with its confidence interval.

    Attributes
    ----------
    value, low, high : float
    n : int or None
        The sample size; None unless the interval is from `mean_interval`.

    Examples
    --------
    >>> print(100 * (Interval(0.2, 0.1, 0.3) - 0.1))
    10.000 (0.000 to 20.000)
    >>> print(-Interval(0.2, 0.1, 0.4))
    -0.200 (-0.400 to -0.100)
    """

    value: float
    low: float
    high: float
    n: int | None = None

    def __add__(self, shift: float) -> "Interval":
        return Interval(self.value + shift, self.low + shift, self.high + shift, self.n)

    def __sub__(self, shift: float) -> "Interval":
        return Interval(self.value - shift, self.low - shift, self.high - shift, self.n)

    def __mul__(self, factor: float) -> "Interval":
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, low, high, self.n)

    def __rmul__(self, factor: float) -> "Interval":
        return self * factor

    def __truediv__(self, divisor: float) -> "Interval":
        low, high = sorted((self.low / divisor, self.high / divisor))
        return Interval(self.value / divisor, low, high, self.n)

    def __neg__(self) -> "Interval":
        return Interval(-self.value, -self.high, -self.low, self.n)

    def stretched(self, factor: float) -> "Interval":
        """Return a copy with the distance from the value to each end multiplied by ``factor``.

        Examples
        --------
        >>> print(Interval(0.5, 0.4, 0.7).stretched(2))
        0.500 (0.300 to 0.900)
        """
        low = self.value - factor * (self.value - self.low)
        high = self.value + factor * (self.high - self.value)
        return Interval(self.value, low, high, self.n)

    def clipped(self, least: float, most: float) -> "Interval":
        """Return a copy whose ends are clipped to the range from ``least`` to ``most``.

        Examples
        --------
        >>> print(Interval(0.1, -0.1, 0.3).clipped(0, 1))
        0.100 (0.000 to 0.300)
        """
        return Interval(self.value, max(self.low, least), min(self.high, most), self.n)

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def wilson(hits: float, n: float, z: float = Z95) -> Interval:
    """Return the proportion ``hits`` / ``n`` with Wilson's interval.

    The interval is valid even for proportions of 0 and 1. If ``n`` is 0, the proportion is 0 and
    the interval (0, 1).

    Examples
    --------
    >>> print(wilson(0, 10))
    0.000 (0.000 to 0.278)
    """
    if n <= 0:
        return Interval(0.0, 0.0, 1.0)
    share, z2 = hits / n, z * z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # Without this, rounding could move the ends away from exactly 0 and 1.
    low = 0.0 if hits == 0 else max(middle - half, 0.0)
    high = 1.0 if hits == n else min(middle + half, 1.0)
    return Interval(share, low, high)


def widened_wilson(share: float, n: int, half_width: float, z: float = Z95) -> Interval:
    """Return a proportion with Wilson's interval, widened by an independent second error.

    ``half_width`` is the half-width of the confidence interval of the second error, at the same
    confidence. The new distance from the proportion to each end is √(w² + half_width²), where w is
    this distance in Wilson's interval (R. G. Newcombe's square-and-add method, Statistics in
    Medicine 17, 1998).

    Examples
    --------
    >>> print(wilson(20, 100))
    0.200 (0.133 to 0.289)
    >>> print(widened_wilson(0.2, 100, half_width=0.0))
    0.200 (0.133 to 0.289)
    >>> print(widened_wilson(0.2, 100, half_width=0.05))
    0.200 (0.117 to 0.302)
    """
    interval = wilson(share * n, n, z)
    down = math.hypot(share - interval.low, half_width)
    up = math.hypot(interval.high - share, half_width)
    return Interval(share, share - down, share + up).clipped(0.0, 1.0)


def normal_interval(value: float, error: float, z: float = Z95) -> Interval:
    """Return an estimate with an interval of ``z`` standard errors to either side.

    Examples
    --------
    >>> print(normal_interval(1.0, 0.1))
    1.000 (0.804 to 1.196)
    """
    return Interval(value, value - z * error, value + z * error)


def normal_mean(values: Floats, z: float = Z95) -> Interval:
    """Return the mean of many independent values with a normal interval.

    For small samples, use `mean_interval`.

    Examples
    --------
    >>> print(normal_mean(np.arange(100.0)))
    49.500 (43.814 to 55.186)
    """
    n = len(values)
    return normal_interval(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n), z)


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of independent values with Student's t interval, mean ± t_{n−1}·s/√n.

    For a single value, the interval is (−∞, ∞).

    Examples
    --------
    >>> mean_interval([1.0, 2.0, 3.0])
    Interval(value=2.0, low=-0.48..., high=4.48..., n=3)
    """
    table = np.reshape(np.asarray(values, dtype=np.float64), (-1, 1))
    half_width = float(student_half_width(table, confidence)[0])
    mean = float(table.mean(axis=0)[0])
    return Interval(mean, mean - half_width, mean + half_width, len(table))


def student_half_width(table: Floats, confidence: float = 0.95) -> Floats:
    """Return t_{n−1}·s/√n for each column of a table with n rows, or ∞ if n is 1.

    Examples
    --------
    >>> student_half_width(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])).round(2).tolist()
    [2.48, 0.0]
    """
    n = len(table)
    if n == 0 or not np.isfinite(table).all():
        raise InvalidParameterError("values must not be empty and must all be finite")
    t = t_quantile(confidence, max(n - 1, 1))
    half_width: Floats = np.full(table.shape[1:], np.inf)
    if n > 1:
        half_width = t * table.std(axis=0, ddof=1) / math.sqrt(n)
    return half_width


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, freedom: int) -> float:
    """Return the t for which P(|T| ≤ t) = confidence, where T has Student's t distribution.

    ``freedom`` is ν ≥ 1, the number of degrees of freedom. With t = √ν·tan θ, the density is
    cos^{ν−1}θ up to a constant, which is smooth on a finite interval. It is integrated by
    Gauss–Legendre quadrature, and the quantile is found by bisection in θ.

    Examples
    --------
    >>> round(t_quantile(0.95, 9), 3)
    2.262
    """
    if not 0.0 < confidence < 1.0:
        raise InvalidParameterError(f"confidence must be in (0, 1), got {confidence!r}")
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # ∫cosⁿ from 0 to π/2 by Wallis' product of (n−1)/n, which starts from π/2 (n even) or 1 (odd).
    factors = 1.0 - 1.0 / np.arange(3 - freedom % 2, freedom, 2)
    total = float(np.prod(factors)) * (math.pi / 2 if freedom % 2 else 1.0)

    def probability(theta: float) -> float:
        heights = np.cos(theta * (nodes + 1) / 2) ** (freedom - 1)
        return float(theta / 2 * (weights @ heights)) / total

    low, high = 0.0, min(1.0 / math.sqrt(freedom), math.pi / 2)
    while high < math.pi / 2 and probability(high) < confidence:
        low, high = high, min(2 * high, math.pi / 2)
    while low < (middle := (low + high) / 2) < high:
        if probability(middle) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(high)


def chi_square_critical_value(freedom: int, significance: float) -> float:
    """Return the critical value of χ² at a significance level (Wilson–Hilferty approximation).

    Examples
    --------
    >>> round(chi_square_critical_value(10, 0.05), 1)
    18.3
    """
    variance = 2 / (9 * freedom)
    return freedom * (1 - variance + NORMAL.inv_cdf(1 - significance) * math.sqrt(variance)) ** 3
