"""Evaluation of the rule on labelled rows, and the number of labels still needed.

Labelled rows are a random sample of all rows, or of those in which arms disagree.
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

# Closer to the required gain than this, both choices cost almost the same (heuristic).
MIN_WIDTH = 0.02


def read_audit(cascade: Cascade, predicted: Floats, wrong: Bytes, added: int = 0) -> Audit:
    """Compare the rule with fixed depths, given p̂ (n, pairs) and errors (n, K) of labelled rows.

    ``added`` is the number of unlabelled rows that `complete_agreement` added.
    """
    n = len(wrong)
    stops = plug_in_stops(cascade, predicted)
    errors = wrong[np.arange(n), stops]
    rule = errors + cascade.cumulative[stops]
    fixed = wrong + cascade.cumulative
    best = int(np.argmin(fixed.mean(axis=0)))
    return Audit(
        rows=n - added,
        rule_error=wilson(int(errors.sum()), n),
        rule_loss=normal_mean(rule),
        rule_depth=float(stops.mean()),
        best_fixed=best,
        best_fixed_loss=normal_mean(fixed[:, best]),
        lost=normal_mean(rule - fixed[:, best]),
        over_fixed=tuple(normal_mean(rule - fixed[:, i]) for i in range(cascade.n_arms)),
        differing=added > 0,
    )


def gain_on_disagreement(labelled: Sample, pair: int, i: int, j: int) -> Interval | None:
    """Return E[1{j right} − 1{i right} | i and j disagree]; None with fewer than 30 such rows.

    The spread is computed with two extra rows, a gain of +1 and one of −1, so that identical rows
    do not give a zero-width interval.
    """
    rows = labelled.take(labelled.differ[:, pair] == 1)
    if rows.n < ENOUGH:
        return None
    better = rows.wrong[:, i].astype(np.float64) - rows.wrong[:, j]
    spread = float(np.append(better, [1.0, -1.0]).std())
    return normal_interval(float(better.mean()), spread / math.sqrt(rows.n))


def plan_labels(cascade: Cascade, rows: Sample, labelled: Sample, stops: Ints) -> LabelPlan:
    """Return how many more labels are needed to compare two arms, and the rows to label.

    Arm j is worth its extra cost over arm i if p_ij·gain ≥ C_j − C_i, where p_ij is the share of
    rows in which the two arms disagree and gain is `gain_on_disagreement`. The required gain r is
    therefore (C_j − C_i)/p_ij. Arm j is the deepest arm that can be worth its cost on all rows
    (`worthwhile`). Arm i is the best cheaper arm according to the labels; with fewer than 30
    labelled rows, it is the deepest `worthwhile` arm before j. If only the first arm can be
    worth its cost, that arm is compared with the rule, which stops the rows at ``stops``.

    The gain is between −1 and 1, so its 95 % interval from n rows in which the two answers differ
    has a half-width of at most 1.96/√n. Before the gain can be estimated, n is chosen so that this
    is at most r: n = (1.96/max(r, 0.02))², and at least 30. Afterwards, n is chosen so that the
    half-width is at most the distance between the estimate and r, or 0.02 if they are closer than
    that. Labels are drawn from all rows in which any arms disagree, so that they serve every pair.
    No labels are needed if r exceeds 1.
    """
    rates = rows.differ.mean(axis=0)
    arms = worthwhile(cascade, rates)
    i, gain, have = 0, None, 0
    if len(arms) > 1:
        j = arms[-1]
        i = arms[-2]
        if labelled.n >= ENOUGH:
            i = int(np.argmin((labelled.wrong.mean(axis=0) + cascade.cumulative)[:j]))
        k = cascade.pairs().index((i, j))
        gap, rate = float(cascade.gaps[i, j]), float(rates[k])
        gain = gain_on_disagreement(labelled, k, i, j)
        have = int(labelled.differ[:, k].sum())
    else:
        j = None
        gap = float(cascade.cumulative[stops].mean() - cascade.cumulative[0])
        rate = float(_differs_from_first(cascade, rows, stops).mean())
    needed = gap / max(rate, 1e-9)
    n = max((Z95 / max(needed, MIN_WIDTH)) ** 2, ENOUGH)
    width = Z95 / math.sqrt(n)
    if gain is not None:
        width = max(abs(gain.value - needed), MIN_WIDTH)
        n = have * ((gain.high - gain.value) / width) ** 2
    disagree = rows.differ.any(axis=1)
    labels = 0
    if needed <= 1 and rate > 0:
        labels = math.ceil(max(n - have, 0) * disagree.mean() / rate)
    to_label = rows.number[disagree & ~rows.labelled][:labels]
    return LabelPlan(i, j, gap, rate, needed, gain, width, labels, tuple(to_label.tolist()))


def worthwhile(cascade: Cascade, rates: Floats) -> list[int]:
    """Return the arms that can be the best fixed depth, by the disagreement rate of each pair.

    Arm j cannot be the best if C_j − C_i exceeds the rate at which it disagrees with some arm
    i < j, because arm j corrects an answer of arm i only by disagreeing with it.

    Examples
    --------
    >>> worthwhile(Cascade([0.1, 0.1, 0.2]), np.array([0.05, 0.4, 0.3]))
    [0, 2]
    """
    pairs = cascade.pairs()
    too_expensive = {j for k, (i, j) in enumerate(pairs) if rates[k] < cascade.gaps[i, j]}
    return [arm for arm in range(cascade.n_arms) if arm not in too_expensive]


def _differs_from_first(cascade: Cascade, rows: Sample, stops: Ints) -> Bools:
    """Return in which rows the answer at the stop differs from that of the first arm."""
    pairs = cascade.pairs()
    columns = [pairs.index((0, j)) for j in range(1, cascade.n_arms)]
    differs = np.column_stack([np.zeros(rows.n, dtype=np.uint8), rows.differ[:, columns]])
    return differs[np.arange(rows.n), stops] > 0
