"""What labels on some rows show, and how many more would be needed.

Labelled rows are a random choice of all rows, or of those in which arms disagree.
"""

import math

import numpy as np

from stopwise.arrays import Bools, Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH
from stopwise.intervals import Z95, Interval, normal_interval, normal_mean, wilson
from stopwise.logs.diagnosis.findings import Audit, LabelPlan
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.logs.diagnosis.sampling import Sample

# Nearer to the gain that is needed than this, either choice costs almost the same (heuristic).
LEAST = 0.02


def read_audit(cascade: Cascade, predicted: Floats, wrong: Bytes, added: int = 0) -> Audit:
    """Return what the labelled rows show: p̂ (n, pairs), and which arm erred (n, K).

    ``added`` counts those that have no label, from `with_agreed`.
    """
    n = len(wrong)
    stops = plug_in_stops(cascade, predicted)
    missed = wrong[np.arange(n), stops]
    rule, fixed = missed + cascade.cumulative[stops], wrong + cascade.cumulative
    best = int(np.argmin(fixed.mean(axis=0)))
    return Audit(
        rows=n - added,
        rule_error=wilson(int(missed.sum()), n),
        rule_loss=normal_mean(rule),
        rule_depth=float(stops.mean()),
        best_fixed=best,
        best_fixed_loss=normal_mean(fixed[:, best]),
        lost=normal_mean(rule - fixed[:, best]),
        over_fixed=tuple(normal_mean(rule - fixed[:, i]) for i in range(cascade.n_arms)),
        differing=added > 0,
    )


def gain_where_they_disagree(labelled: Sample, pair: int, i: int, j: int) -> Interval | None:
    """Return E[1{j right} − 1{i right} | i and j disagree]; None of fewer than 30 such rows.

    The spread is that with one more row of each sign, so that identical rows do not give a
    zero-width interval.
    """
    rows = labelled.take(labelled.differ[:, pair] == 1)
    if rows.n < ENOUGH:
        return None
    better = rows.wrong[:, i].astype(np.float64) - rows.wrong[:, j]
    spread = float(np.append(better, [1.0, -1.0]).std())
    return normal_interval(float(better.mean()), spread / math.sqrt(rows.n))


def plan_labels(cascade: Cascade, rows: Sample, labelled: Sample, stops: Ints) -> LabelPlan:
    """Return how many more labels answer the open question, and on which rows.

    Arm j is worth C_j − C_i more than arm i if p_ij·gain ≥ C_j − C_i, so the gain needed is
    (C_j − C_i)/p_ij. The question is about the deepest arm that can be worth its cost on all rows
    (`worthwhile`), beside the best cheaper one: by the labels, or else the deepest of those that
    can. If only the first arm can, the question is whether the rule, which stops the rows at
    ``stops``, is worth more than always that arm.

    A gain is between −1 and 1, so n rows in which the two answers differ give it to within 1.96/√n
    or better. While no gain is known, n is such that this tells the gain needed from none at all:
    n = (1.96/needed)², and 30 at least. Labels are drawn where any arms disagree, so that they
    serve every pair.
    """
    rates = rows.differ.mean(axis=0)
    deepest = worthwhile(cascade, rates)
    i, gain, have = 0, None, 0
    if len(deepest) > 1:
        j = deepest[-1]
        i = deepest[-2]
        if labelled.n >= ENOUGH:
            i = int(np.argmin((labelled.wrong.mean(axis=0) + cascade.cumulative)[:j]))
        k = cascade.pairs().index((i, j))
        gap, rate = float(cascade.gaps[i, j]), float(rates[k])
        gain, have = gain_where_they_disagree(labelled, k, i, j), int(labelled.differ[:, k].sum())
    else:
        j = None
        gap = float(cascade.cumulative[stops].mean() - cascade.cumulative[0])
        rate = float(_differs_from_first(cascade, rows, stops).mean())
    needed = gap / max(rate, 1e-9)
    n = max((Z95 / max(needed, LEAST)) ** 2, ENOUGH)
    width = Z95 / math.sqrt(n)
    if gain is not None:
        width = max(abs(gain.value - needed), LEAST)
        n = have * ((gain.high - gain.value) / width) ** 2
    some, more = rows.differ.any(axis=1), 0
    if needed <= 1 and rate > 0:
        more = math.ceil(max(n - have, 0) * some.mean() / rate)
    asked = rows.number[some & ~rows.labelled][:more]
    return LabelPlan(i, j, gap, rate, needed, gain, width, more, tuple(asked.tolist()))


def worthwhile(cascade: Cascade, rates: Floats) -> list[int]:
    """Return the arms that can be the best fixed depth, by how often each pair disagrees.

    Arm j cannot if it costs more than some arm i < j by more than the two disagree: it corrects an
    answer only by disagreeing with it.

    Examples
    --------
    >>> worthwhile(Cascade([0.1, 0.1, 0.2]), np.array([0.05, 0.4, 0.3]))
    [0, 2]
    """
    pairs = cascade.pairs()
    never = {j for k, (i, j) in enumerate(pairs) if rates[k] < cascade.gaps[i, j]}
    return [arm for arm in range(cascade.n_arms) if arm not in never]


def _differs_from_first(cascade: Cascade, rows: Sample, stops: Ints) -> Bools:
    """Return where the answer at the stop is not that of the first arm."""
    pairs = cascade.pairs()
    columns = [pairs.index((0, j)) for j in range(1, cascade.n_arms)]
    differs = np.column_stack([np.zeros(rows.n, dtype=np.uint8), rows.differ[:, columns]])
    return differs[np.arange(rows.n), stops] > 0
