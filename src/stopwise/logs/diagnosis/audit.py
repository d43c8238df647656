"""What labels on some rows show, and how many more would be needed.

Labelled rows are a random choice of all rows, or of those in which arms disagree.
"""

import math

import numpy as np

from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH
from stopwise.logs.chunk import Bytes, Floats
from stopwise.logs.diagnosis.findings import Audit, LabelPlan
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.logs.diagnosis.sampling import UNKNOWN, Sample
from stopwise.reporting.intervals import Z95, Estimate, around, mean, wilson

# Half a 95 % interval of the gain: planned for while nothing is known of it (heuristic), and the
# least: nearer to the gain needed than that, either choice costs almost the same.
PLANNED, LEAST = 0.1, 0.02


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
        rule_loss=mean(rule),
        rule_depth=float(stops.mean()),
        best_fixed=best,
        best_fixed_loss=mean(fixed[:, best]),
        lost=mean(rule - fixed[:, best]),
        differing=added > 0,
    )


def gain_where_they_disagree(labelled: Sample, pair: int, i: int, j: int) -> Estimate | None:
    """Return E[1{j right} − 1{i right} | i and j disagree]; None of fewer than 30 such rows.

    The spread is that with one more row of each sign, lest rows that all agree seem certain.
    """
    rows = labelled.take(labelled.differ[:, pair] == 1)
    if rows.n < ENOUGH:
        return None
    better = rows.wrong[:, i].astype(np.float64) - rows.wrong[:, j]
    spread = float(np.append(better, [1.0, -1.0]).std())
    return around(float(better.mean()), spread / math.sqrt(rows.n))


def plan_labels(cascade: Cascade, rows: Sample, labelled: Sample) -> LabelPlan:
    """Return how many more labels answer the open question, and on which rows.

    Arm j is worth C_j − C_i more than arm i if p_ij·gain ≥ C_j − C_i. The question is about the
    last arm, beside the best cheaper one by the labels, if any. A gain is between −1 and 1, so n
    rows in which i and j disagree give it to within 1.96/√n or better. Labels are drawn where any
    arms disagree, so that they serve every pair.
    """
    i, j = cascade.n_arms - 2, cascade.n_arms - 1
    if labelled.n >= ENOUGH:
        i = int(np.argmin((labelled.wrong.mean(axis=0) + cascade.cumulative)[:j]))
    k, some = cascade.pairs().index((i, j)), rows.differ.any(axis=1)
    gap, rate = float(cascade.gaps[i, j]), float(rows.differ[:, k].mean())
    gain, have = gain_where_they_disagree(labelled, k, i, j), int(labelled.differ[:, k].sum())
    needed, width, n = gap / max(rate, 1e-9), PLANNED, (Z95 / PLANNED) ** 2
    if gain is not None:
        width = max(abs(gain.value - needed), LEAST)
        n = have * ((gain.high - gain.value) / width) ** 2
    more = math.ceil(max(n - have, 0) * some.mean() / rate) if needed <= 1 else 0
    asked = rows.number[some & (rows.wrong[:, 0] == UNKNOWN)][:more]
    return LabelPlan(i, j, gap, rate, needed, gain, width, more, tuple(asked.tolist()))
