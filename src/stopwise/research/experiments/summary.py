"""Means over runs, with Student's t intervals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError
from stopwise.intervals import Interval, mean_interval, student_half_width

if TYPE_CHECKING:
    from stopwise.research.experiments.runs import Trace

What: TypeAlias = Literal["regret", "signed", "total_cost", "undominated"]
Traces: TypeAlias = "Mapping[int, Trace] | Iterable[Trace]"
Values: TypeAlias = Sequence[float] | Floats | Mapping[int, float]


class Curve(NamedTuple):
    """Means at some rounds, with a confidence interval around each."""

    rounds: Ints
    mean: Floats
    low: Floats
    high: Floats


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
    Interval(value=1.0, low=1.0, high=1.0, n=3)
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
    mean, reach = stacked.mean(axis=0), student_half_width(stacked, confidence)
    return Curve(runs[0].rounds, mean, mean - reach, mean + reach)


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
