"""What labels on some rows show, and how many would be needed. Labelled rows must be random."""

import math

import numpy as np

from stopwise.cascade import Cascade
from stopwise.logs.chunk import Bytes, Floats
from stopwise.logs.diagnosis.findings import Audit, Hint, LabelPlan
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.reporting.intervals import Z95, mean, wilson

SIZES = (100, 300, 1000, 3000, 10_000)


def read_audit(cascade: Cascade, predicted: Floats, wrong: Bytes) -> Audit:
    """Return what the labelled rows show: p̂ (n, pairs), and which arm erred (n, K)."""
    n = len(wrong)
    stops = plug_in_stops(cascade, predicted)
    missed = wrong[np.arange(n), stops]
    rule, fixed = missed + cascade.cumulative[stops], wrong + cascade.cumulative
    best = int(np.argmin(fixed.mean(axis=0)))
    return Audit(
        rows=n,
        rule_error=wilson(int(missed.sum()), n),
        rule_loss=mean(rule),
        rule_depth=float(stops.mean()),
        best_fixed=best,
        best_fixed_loss=mean(fixed[:, best]),
        lost=mean(rule - fixed[:, best]),
    )


def plan_labels(cascade: Cascade, predicted: Floats, rates: Floats, hint: Hint | None) -> LabelPlan:
    """Return how many labels answer the open question, given how often each pair disagrees.

    The errors of two arms differ on a row only where their outputs do, so over n rows the
    difference of their error rates has a variance of at most p_ij/n: half a 95 % interval is at
    most 1.96·√(p_ij/n), and it must be less than half the gap. The question is about the arm
    that seems worse, or else the pair whose disagreement makes the rule spend most.

    Examples
    --------
    >>> plan = plan_labels(Cascade([0.1, 0.2]), np.full((9, 1), 0.25), np.array([0.25]), None)
    >>> [round(h, 3) for h in plan.half_width], plan.enough
    ([0.098, 0.057, 0.031, 0.018, 0.01], 100)
    """
    pairs = cascade.pairs()
    if hint is not None and hint.worse is not None and hint.better is not None:
        i, j = hint.better, hint.worse
    else:
        stops = plug_in_stops(cascade, predicted)
        gaps = np.array([cascade.gaps[pair] for pair in pairs])
        continues = stops[:, None] > np.array([i for i, _ in pairs])
        spent = ((predicted >= gaps) & continues).mean(axis=0) * gaps
        # if it never continues, what it might miss is in the last arm
        i, j = pairs[int(np.argmax(spent))] if spent.any() else (0, cascade.n_arms - 1)
    rate, gap = float(rates[pairs.index((i, j))]), float(cascade.gaps[i, j])
    half = tuple(Z95 * math.sqrt(rate / n) for n in SIZES)
    enough = next((n for n, h in zip(SIZES, half, strict=True) if h < gap / 2), None)
    return LabelPlan(i, j, gap, SIZES, half, enough)
