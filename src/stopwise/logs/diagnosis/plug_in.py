"""What the rule would do with the fitted disagreements, row by row.

    stop at the first arm i with C_j − C_i > p̂_ij(x) for all j > i, else at the last

This is where USS-PD ends up when it has learned; while it learns it goes deeper now and then.
Arrays: ``predicted`` (n, pairs) of p̂, ``differ`` (n, pairs) of disagreements, ``stops`` (n,);
pairs in the order of ``cascade.pairs()``.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import (
    Estimate,
    FixedDepthPoint,
    FrontierPoint,
    Margins,
    Saving,
    StopShare,
)
from stopwise.logs.diagnosis.intervals import mean, wilson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
THIN = 0.02
# The trade-off weights of the frontier: from a tenth of the costs given to ten times.
WEIGHTS = tuple(float(w) for w in np.logspace(-1, 1, 25))


def plug_in_stops(cascade: Cascade, predicted: Floats, weight: float = 1.0) -> Ints:
    """Return where the rule stops at each row, all costs multiplied by a weight.

    Examples
    --------
    >>> cascade = Cascade([0.1, 0.2, 0.6])
    >>> plug_in_stops(cascade, np.array([[0.1, 0.5, 0.5], [0.4, 0.5, 0.2], [0.4, 1, 0.9]])).tolist()
    [0, 1, 2]
    """
    stops = np.full(len(predicted), cascade.n_arms - 1)
    spare = _spare(cascade, predicted, weight)
    for i in reversed(range(cascade.n_arms - 1)):
        stops[(spare[i] > 0)] = i
    return stops


def _spare(cascade: Cascade, predicted: Floats, weight: float = 1.0) -> list[Floats]:
    """Return for each arm but the last min_j (w·(C_j − C_i) − p̂_ij(x)) of every row."""
    spare = [np.full(len(predicted), np.inf) for _ in range(cascade.n_arms - 1)]
    for k, (i, j) in enumerate(cascade.pairs()):
        np.minimum(spare[i], weight * cascade.gaps[i, j] - predicted[:, k], out=spare[i])
    return spare


def stop_shares(cascade: Cascade, stops: Ints) -> tuple[StopShare, ...]:
    """Return the share of rows that stop at each arm.

    Examples
    --------
    >>> [s.share.value for s in stop_shares(Cascade([1, 1]), np.array([0, 0, 0, 1]))]
    [0.75, 0.25]
    """
    counts = np.bincount(stops, minlength=cascade.n_arms)
    return tuple(StopShare(i, wilson(int(c), len(stops))) for i, c in enumerate(counts))


def saving(
    cascade: Cascade,
    stops: Ints,
    differ: Bytes,
    redrawn: Iterable[Floats] = (),
    calmed: Floats | None = None,
) -> Saving:
    """Return what the rule saves against always going to the last arm.

    ``redrawn`` are predictions (m, pairs) as other rows might have taught them: the interval is
    widened by what they change. It reaches as far up as down, for a model that is drawn about an
    estimate is noisier than the estimate and as a rule saves less. ``calmed`` is the least varied
    prediction (n, pairs) that the data allow: the interval reaches to what that would save.

    Examples
    --------
    >>> found = saving(Cascade([1, 1]), np.array([0, 1]), np.array([[1], [1]], dtype=np.uint8))
    >>> found.per_round.value, found.share.value, found.disagreement.value
    (0.5, 0.25, 0.5)
    """
    per_round = mean(cascade.cumulative[-1] - cascade.cumulative[stops])
    whole = float(cascade.cumulative[-1])
    others = [whole - float(cascade.cumulative[plug_in_stops(cascade, p)].mean()) for p in redrawn]
    if others:
        value = per_round.value
        moved = float(np.quantile(np.abs(np.array(others) - value), 0.95))
        reach = float(np.hypot(moved, per_round.high - value))
        low, high = value - reach, value + reach
        if calmed is not None:
            calm = whole - float(cascade.cumulative[plug_in_stops(cascade, calmed)].mean())
            low, high = min(low, calm), max(high, calm)
        most = whole - float(cascade.cumulative[0])
        per_round = Estimate(value, max(low, 0.0), min(high, most))
    share = Estimate(*(v / whole if whole else 0.0 for v in _numbers(per_round)))
    return Saving(per_round, share, _from_deepest(cascade, stops, differ))


def margins(cascade: Cascade, predicted: Floats, stops: Ints) -> tuple[Margins, ...]:
    """Return what the rule had to spare where it stopped, for every arm it stopped at early.

    Examples
    --------
    >>> found = margins(Cascade([0.1, 0.5]), np.array([[0.1], [0.49]]), np.array([0, 0]))
    >>> found[0].rows, round(found[0].quantiles[2], 3), found[0].share_thin
    (2, 0.205, 0.5)
    """
    spare = _spare(cascade, predicted)
    found: list[Margins] = []
    for i in range(cascade.n_arms - 1):
        mine = spare[i][stops == i]
        if len(mine):
            quantiles = tuple(float(q) for q in np.quantile(mine, QUANTILES))
            found.append(Margins(i, len(mine), quantiles, float((np.abs(mine) < THIN).mean())))
    return tuple(found)


def frontier(
    cascade: Cascade, predicted: Floats, differ: Bytes, audited: tuple[Floats, Bytes] | None
) -> tuple[FrontierPoint, ...]:
    """Return the rule at every trade-off weight: cost in the original units against disagreement.

    ``audited`` is p̂ and errors (n, K) of labelled rows, where there are any.

    Examples
    --------
    >>> p, d = np.array([[0.3]]), np.array([[1]], dtype=np.uint8)
    >>> points = frontier(Cascade([0.1, 0.5]), p, d, None)
    >>> points[0].cost, points[-1].cost
    (0.6, 0.1)
    """
    points: list[FrontierPoint] = []
    for weight in WEIGHTS:
        stops = plug_in_stops(cascade, predicted, weight)
        shares = np.bincount(stops, minlength=cascade.n_arms) / len(stops)
        error = None
        if audited is not None:
            p, wrong = audited
            missed = wrong[np.arange(len(p)), plug_in_stops(cascade, p, weight)]
            error = wilson(int(missed.sum()), len(p))
        points.append(
            FrontierPoint(
                weight=weight,
                cost=float(shares @ cascade.cumulative),
                disagreement=_from_deepest(cascade, stops, differ),
                error=error,
                shares=tuple(shares.tolist()),
            )
        )
    return tuple(points)


def fixed_depths(
    cascade: Cascade, differ: Bytes, wrong: Bytes | None
) -> tuple[FixedDepthPoint, ...]:
    """Return what stopping always at one arm costs and misses; ``wrong`` (n, K) by the labels.

    Examples
    --------
    >>> found = fixed_depths(Cascade([0.1, 0.5]), np.array([[1], [0]], dtype=np.uint8), None)
    >>> [(f.cost, f.disagreement.value) for f in found]
    [(0.1, 0.5), (0.6, 0.0)]
    """
    points: list[FixedDepthPoint] = []
    for i, cost in enumerate(cascade.cumulative.tolist()):
        error = None if wrong is None else wilson(int(wrong[:, i].sum()), len(wrong))
        points.append(
            FixedDepthPoint(
                arm=i,
                cost=cost,
                disagreement=_from_deepest(cascade, np.full(len(differ), i), differ),
                error=error,
                loss=None if error is None else Estimate(*(cost + e for e in _numbers(error))),
            )
        )
    return tuple(points)


def _from_deepest(cascade: Cascade, stops: Ints, differ: Bytes) -> Estimate:
    """Return how often the chosen arm's output differs from the last arm's."""
    last = cascade.n_arms - 1
    columns = [cascade.pairs().index((i, last)) for i in range(last)]
    differs = np.column_stack([differ[:, columns], np.zeros(len(differ), dtype=np.uint8)])
    return wilson(int(differs[np.arange(len(stops)), stops].sum()), len(stops))


def _numbers(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high
