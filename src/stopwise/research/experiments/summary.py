"""Means over runs, with Student's t intervals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.errors import InvalidParameterError
from stopwise.intervals import Interval, mean_interval, student_half_width

if TYPE_CHECKING:
    from stopwise.research.experiments.runs import Trace

Measure: TypeAlias = Literal["regret", "signed", "total_cost", "undominated"]
Traces: TypeAlias = "Mapping[int, Trace] | Iterable[Trace]"
Values: TypeAlias = Sequence[float] | Floats | Mapping[int, float]


class Curve(NamedTuple):
    """The mean curve of several runs, with a confidence interval at each stored round."""

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

    Runs with the same seed play the same rounds, so the differences vary much less than the
    values. Pass two sequences in the same order, or two mappings by seed (see `finals`).

    Examples
    --------
    >>> paired_difference({0: 5.0, 1: 7.0, 2: 9.0}, {2: 8.0, 1: 6.0, 0: 4.0})
    Interval(value=1.0, low=1.0, high=1.0, n=3)
    """
    if isinstance(a, Mapping) != isinstance(b, Mapping):
        raise InvalidParameterError(
            "a and b must both be mappings by seed or both be sequences, got "
            f"{type(a).__name__} and {type(b).__name__}"
        )
    left = a if isinstance(a, Mapping) else dict(enumerate(a))
    right = b if isinstance(b, Mapping) else dict(enumerate(b))
    if unpaired := left.keys() ^ right.keys():
        if not isinstance(a, Mapping):
            raise InvalidParameterError(
                f"a and b must have the same length, got {len(left)} and {len(right)} values"
            )
        seed = min(unpaired)
        lacking = "b" if seed in left else "a"
        raise InvalidParameterError(
            f"a and b must have the same seeds, but {lacking} has no value for seed {seed}"
        )
    return mean_interval([left[seed] - right[seed] for seed in sorted(left)], confidence)


def finals(traces: Traces, measure: Measure = "regret") -> dict[int, float]:
    """Return the final value of each run's curve, by seed."""
    return {trace.seed: float(_curve(trace, measure)[-1]) for trace in _in_order(traces)}


def curves(traces: Traces, measure: Measure = "regret", confidence: float = 0.95) -> Curve:
    """Return the mean curve of an experiment's runs, with an interval at each stored round.

    The intervals are pointwise, not a simultaneous band for the entire curve.

    ``traces`` may be the dict by seed that ``RunStore.get`` returns.
    """
    runs = _in_order(traces)
    if not runs:
        raise InvalidParameterError("traces must contain at least one run, got none")
    if (n := len({trace.key for trace in runs})) > 1:
        raise InvalidParameterError(f"traces must be runs of one experiment, got runs of {n}")
    stacked = np.stack([_curve(trace, measure) for trace in runs])
    mean, half_width = stacked.mean(axis=0), student_half_width(stacked, confidence)
    return Curve(runs[0].rounds, mean, mean - half_width, mean + half_width)


def _in_order(traces: Traces) -> "list[Trace]":
    """Return traces sorted by seed, so that sums do not depend on the order of completion."""
    if isinstance(traces, Mapping):
        traces = cast("Mapping[int, Trace]", traces).values()
    return sorted(traces, key=lambda trace: trace.seed)


def _curve(trace: "Trace", measure: Measure) -> Floats:
    curve = cast(Floats | None, getattr(trace, measure))
    if curve is None:
        reason = "has error rates" if measure == "signed" else "has no error rates"
        raise InvalidParameterError(
            f"measure {measure!r} is unavailable because the environment {reason}"
        )
    return curve
