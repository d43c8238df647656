"""Where the rule stops, given fitted probabilities of disagreement, and what results.

    stop at the first arm i with C_j − C_i > p̂_ij(x) for all j > i, else at the last

USS-PD decides this way once it has learned; while it learns it sometimes goes deeper. Arrays:
``predicted`` (n, pairs) of p̂, ``differ`` (n, pairs) of disagreements, ``stops`` (n,), ``wrong``
(n, K) from the labels; pairs in the order of ``cascade.pairs()``.
"""

import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.intervals import Interval, normal_mean, widened_wilson, wilson
from stopwise.logs.diagnosis.findings import ArmSummary, FrontierPoint, Saving
from stopwise.logs.diagnosis.models import ModelDraws
from stopwise.policies.stopping import first_passing

# The trade-off weights of the frontier: from a tenth to ten times the costs.
WEIGHTS = tuple(float(w) for w in np.logspace(-1, 1, 25))


def plug_in_stops(cascade: Cascade, predicted: Floats, weight: float = 1.0) -> Ints:
    """Return where the rule stops in each row, with all costs multiplied by ``weight``.

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
    """Return how often the rule stops at each arm, and what always stopping at the arm gives."""
    summaries: list[ArmSummary] = []
    steps = np.diff(cascade.cumulative, prepend=0.0)  # including the trade-off, like the totals
    for i, total in enumerate(cascade.cumulative.tolist()):
        error = None if wrong is None else wilson(int(wrong[:, i].sum()), len(wrong))
        summaries.append(
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
    return tuple(summaries)


def saving(
    cascade: Cascade, stops: Ints, differ: Bytes, draws: ModelDraws, flattest: Floats
) -> Saving:
    """Return the saving of the rule compared with always running the last arm.

    ``draws`` are predictions of models drawn around the estimates; their spread widens the
    intervals of the saving and of the disagreement. The interval of the saving is made symmetric,
    because a model drawn around an estimate is noisier than the estimate and mostly saves less. It
    is then extended to include the saving with ``flattest``, the predictions (n, pairs) of
    `Disagreement.flattest_predictions`.
    """
    last = float(cascade.cumulative[-1])
    mean = normal_mean(last - cascade.cumulative[stops])
    differs = differs_from_deepest(cascade, differ)
    differs_drawn = differs[draws.rows]
    rows = np.arange(len(draws.rows))
    changed = float(differs_drawn[rows, stops[draws.rows]].mean())

    def saved(stops: Ints) -> float:
        return last - float(cascade.cumulative[stops].mean())

    saved_shifts: list[float] = []
    changed_shifts: list[float] = []
    for p in draws.predictions:
        drawn_stops = plug_in_stops(cascade, p)
        saved_shifts.append(abs(saved(drawn_stops) - mean.value))
        drawn_changed = float(differs_drawn[rows, drawn_stops].mean())
        changed_shifts.append(abs(drawn_changed - changed))
    model_error = float(np.quantile(saved_shifts, 0.95))
    half_width = float(np.hypot(model_error, mean.high - mean.value))
    flat = saved(plug_in_stops(cascade, flattest))
    low, high = min(mean.value - half_width, flat), max(mean.value + half_width, flat)
    most = last - float(cascade.cumulative[0])
    per_round = Interval(mean.value, low, high).clipped(0.0, most)
    share = per_round / last if last else Interval(0.0, 0.0, 0.0)
    changed_error = float(np.quantile(changed_shifts, 0.95))
    changes = float(differs[np.arange(len(stops)), stops].mean())
    return Saving(per_round, share, widened_wilson(changes, len(stops), changed_error))


def frontier(
    cascade: Cascade, predicted: Floats, differ: Bytes, labels: tuple[Floats, Bytes] | None
) -> tuple[FrontierPoint, ...]:
    """Return the cost, disagreement and error of the rule for every weight in `WEIGHTS`.

    The cost is not multiplied by the weight. ``labels`` are p̂ (n, pairs) and ``wrong`` (n, K) of
    the labelled rows; without them, the error is None.
    """
    points: list[FrontierPoint] = []
    for weight in WEIGHTS:
        stops = plug_in_stops(cascade, predicted, weight)
        error = None
        if labels is not None:
            p, wrong = labels
            errors = wrong[np.arange(len(p)), plug_in_stops(cascade, p, weight)]
            error = wilson(int(errors.sum()), len(p))
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
