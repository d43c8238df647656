"""What the rule would do with the fitted disagreements, row by row.

    stop at the first arm i with C_j − C_i > p̂_ij(x) for all j > i, else at the last

USS-PD decides so once it has learned; while it learns it goes deeper now and then. Arrays:
``predicted`` (n, pairs) of p̂, ``differ`` (n, pairs) of disagreements, ``stops`` (n,), ``wrong``
(n, K) from the labels; pairs in the order of ``cascade.pairs()``.
"""

import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.intervals import Interval, normal_mean, widened_wilson, wilson
from stopwise.logs.diagnosis.findings import ArmSummary, FrontierPoint, Saving
from stopwise.logs.diagnosis.models import Redrawn
from stopwise.policies.stopping import first_passing

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
    wins = np.zeros((len(predicted), cascade.n_arms, cascade.n_arms), dtype=np.bool_)
    for k, (i, j) in enumerate(cascade.pairs()):
        wins[:, i, j] = weight * cascade.gaps[i, j] > predicted[:, k]
    return first_passing(wins)


def summarise_arms(
    cascade: Cascade, answered: Ints, stops: Ints, differ: Bytes, wrong: Bytes | None
) -> tuple[ArmSummary, ...]:
    """Return each arm: how often the rule stops there, and what always stopping there would do."""
    found: list[ArmSummary] = []
    steps = np.diff(cascade.cumulative, prepend=0.0)  # with their trade-off, as the totals
    for i, total in enumerate(cascade.cumulative.tolist()):
        error = None if wrong is None else wilson(int(wrong[:, i].sum()), len(wrong))
        found.append(
            ArmSummary(
                name=cascade.names[i],
                cost=float(steps[i]),
                total=total,
                answered=int(answered[i]),
                stops=wilson(int((stops == i).sum()), len(stops)),
                disagreement=_from_deepest(cascade, np.full(len(differ), i), differ),
                error=error,
                loss=None if error is None else error + total,
            )
        )
    return tuple(found)


def saving(
    cascade: Cascade, stops: Ints, differ: Bytes, redrawn: Redrawn, flattened: Floats
) -> Saving:
    """Return what the rule saves against always going to the last arm.

    ``redrawn`` are predictions that other rows might have given: they widen both intervals. That of
    the saving reaches as far up as down, because a model drawn about an estimate is noisier than
    the estimate and mostly saves less. ``flattened`` is the least varied prediction (n, pairs)
    that the data allow: the interval reaches to what that would save.
    """
    last = float(cascade.cumulative[-1])
    mean = normal_mean(last - cascade.cumulative[stops])
    differs = differs_from_deepest(cascade, differ)
    some, rows = differs[redrawn.rows], np.arange(len(redrawn.rows))
    changed = float(some[rows, stops[redrawn.rows]].mean())

    def saved(ends: Ints) -> float:
        return last - float(cascade.cumulative[ends].mean())

    saved_moves, changed_moves = list[float](), list[float]()
    for p in redrawn.predictions:
        ends = plug_in_stops(cascade, p)
        saved_moves.append(abs(saved(ends) - mean.value))
        changed_moves.append(abs(float(some[rows, ends].mean()) - changed))
    moved = float(np.quantile(saved_moves, 0.95))
    reach = float(np.hypot(moved, mean.high - mean.value))
    flat = saved(plug_in_stops(cascade, flattened))
    low, high = min(mean.value - reach, flat), max(mean.value + reach, flat)
    most = last - float(cascade.cumulative[0])
    per_round = Interval(mean.value, low, high).clipped(0.0, most)
    share = per_round / last if last else Interval(0.0, 0.0, 0.0)
    changed_reach = float(np.quantile(changed_moves, 0.95))
    changes = float(differs[np.arange(len(stops)), stops].mean())
    return Saving(per_round, share, widened_wilson(changes, len(stops), changed_reach))


def frontier(
    cascade: Cascade, predicted: Floats, differ: Bytes, labels: tuple[Floats, Bytes] | None
) -> tuple[FrontierPoint, ...]:
    """Return the rule at every trade-off weight: cost in the original units against disagreement.

    ``labels`` are p̂ and errors of the labelled rows, where there are any.
    """
    points: list[FrontierPoint] = []
    for weight in WEIGHTS:
        stops = plug_in_stops(cascade, predicted, weight)
        error = None
        if labels is not None:
            p, wrong = labels
            missed = wrong[np.arange(len(p)), plug_in_stops(cascade, p, weight)]
            error = wilson(int(missed.sum()), len(p))
        cost = float(cascade.cumulative[stops].mean())
        points.append(FrontierPoint(weight, cost, _from_deepest(cascade, stops, differ), error))
    return tuple(points)


def _from_deepest(cascade: Cascade, stops: Ints, differ: Bytes) -> Interval:
    """Return how often the chosen arm's output differs from the last arm's."""
    differs = differs_from_deepest(cascade, differ)
    return wilson(int(differs[np.arange(len(stops)), stops].sum()), len(stops))


def differs_from_deepest(cascade: Cascade, differ: Bytes) -> Bytes:
    """Return whether each arm's output differs from the last arm's, (n, K)."""
    last = cascade.n_arms - 1
    columns = [cascade.pairs().index((i, last)) for i in range(last)]
    return np.column_stack([differ[:, columns], np.zeros(len(differ), dtype=np.uint8)])
