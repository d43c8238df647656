"""Means over runs, and how far to trust them: Student's t intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError

if TYPE_CHECKING:  # it loads the native engine, which formatting intervals does not need
    from stopwise.research.experiments.runs import Trace

What: TypeAlias = Literal["regret", "signed", "total_cost", "undominated"]
Traces: TypeAlias = "Mapping[int, Trace] | Iterable[Trace]"
Values: TypeAlias = Sequence[float] | Floats | Mapping[int, float]

# Points of Gauss's rule: exact to rounding for the smooth density of t over a few deviations.
NODES = 80


class Interval(NamedTuple):
    """A mean of n values, with a confidence interval around it."""

    mean: float
    low: float
    high: float
    n: int


class Curve(NamedTuple):
    """Means at some rounds, with a confidence interval around each."""

    rounds: Ints
    mean: Floats
    low: Floats
    high: Floats


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of independent values and its Student t interval.

        mean ± t_{n−1} · s/√n

    The interval of one value is (−∞, ∞).

    Examples
    --------
    >>> mean_interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.48..., high=4.48..., n=3)
    """
    (mean,), (low,), (high,), n = _intervals(np.reshape(np.asarray(values), (-1, 1)), confidence)
    return Interval(float(mean), float(low), float(high), n)


def paired_difference(
    a: Values,
    b: Values,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean of a − b over pairs, with its Student t interval.

    Runs with the same seed play the same rounds, so their difference varies far less than either.
    Both sides are values in the same order, or both are mappings by seed (see `finals`).

    Examples
    --------
    >>> paired_difference({0: 5.0, 1: 7.0, 2: 9.0}, {2: 8.0, 1: 6.0, 0: 4.0})
    Interval(mean=1.0, low=1.0, high=1.0, n=3)
    """
    if isinstance(a, Mapping) != isinstance(b, Mapping):
        raise InvalidParameterError("give both sides by seed, or both in the same order")
    left, right = (v if isinstance(v, Mapping) else dict(enumerate(v)) for v in (a, b))
    if odd := left.keys() ^ right.keys():
        raise InvalidParameterError(f"only one side has a value of {min(odd)}: nothing to pair")
    return mean_interval([left[seed] - right[seed] for seed in sorted(left)], confidence)


def finals(traces: Traces, what: What = "regret") -> dict[int, float]:
    """Return the last value of every run's curve, by seed."""
    return {trace.seed: float(_curve(trace, what)[-1]) for trace in _in_order(traces)}


def curves(traces: Traces, what: What = "regret", confidence: float = 0.95) -> Curve:
    """Return the mean curve of runs of one experiment, with an interval at each stored round.

    Each round has its own interval of this confidence: they form no band for the entire curve.

    ``traces`` may be the dict by seed that ``RunStore.get`` returns.
    """
    runs = _in_order(traces)
    if not runs:
        raise InvalidParameterError("there are no runs to take the mean of")
    if len({trace.key for trace in runs}) > 1:
        raise InvalidParameterError("these runs are of different experiments: they have no mean")
    stacked = np.stack([_curve(trace, what) for trace in runs])
    mean, low, high, _ = _intervals(stacked, confidence)
    return Curve(runs[0].rounds, mean, low, high)


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, freedom: int) -> float:
    """Return the t with P(|T| ≤ t) = confidence for Student's T.

    With t = √ν·tan θ the density is cos^{ν−1}θ up to a constant, smooth on a finite interval:
    integrated by Gauss's rule, and solved for θ by bisection. ν ≥ 1 is the degrees of freedom.
    """
    if not 0.0 < confidence < 1.0:
        raise InvalidParameterError(f"confidence must be above 0 and below 1, not {confidence!r}")
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # ∫cosⁿ over a quarter turn, by Wallis: times (n−1)/n from π/2 (n even) or 1 (n odd) upward.
    factors = 1.0 - 1.0 / np.arange(3 - freedom % 2, freedom, 2)
    total = float(np.prod(factors)) * (math.pi / 2 if freedom % 2 else 1.0)

    def inside(theta: float) -> float:
        heights = np.cos(theta * (nodes + 1) / 2) ** (freedom - 1)
        return float(theta / 2 * (weights @ heights)) / total

    low, high = 0.0, min(1.0 / math.sqrt(freedom), math.pi / 2)
    while high < math.pi / 2 and inside(high) < confidence:
        low, high = high, min(2 * high, math.pi / 2)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if inside(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(high)


def _intervals(values: Floats, confidence: float) -> tuple[Floats, Floats, Floats, int]:
    """Return mean, low and high of every column, and the number of rows."""
    table = np.asarray(values, dtype=np.float64)
    n = len(table)
    if n == 0 or not np.isfinite(table).all():
        raise InvalidParameterError("a mean needs one value or more, all of them finite")
    t = t_quantile(confidence, max(n - 1, 1))
    mean = table.mean(axis=0)
    if n == 1:
        return mean, np.full_like(mean, -np.inf), np.full_like(mean, np.inf), n
    reach = t * table.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - reach, mean + reach, n


def _in_order(traces: Traces) -> "list[Trace]":
    """Sort by seed, so that sums are the same to the last bit whoever finished first."""
    if isinstance(traces, Mapping):
        traces = cast("Mapping[int, Trace]", traces).values()
    return sorted(traces, key=lambda trace: trace.seed)


def _curve(trace: "Trace", what: What) -> Floats:
    curve = cast(Floats | None, getattr(trace, what))
    if curve is None:
        lacks = "error rates" if what == "signed" else "no error rates"
        raise InvalidParameterError(f"this environment has {lacks}, so no {what}")
    return curve
