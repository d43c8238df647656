"""What an audit would settle, before there is one."""

import math

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import Agreement, AuditPlan
from stopwise.logs.diagnosis.intervals import Z95
from stopwise.logs.diagnosis.plug_in import plug_in_stops

SIZES = (100, 300, 1000, 3000)


def plan_audit(
    cascade: Cascade,
    predicted: NDArray[np.float64],
    rates: NDArray[np.float64],
    agreement: Agreement | None,
) -> tuple[AuditPlan, ...]:
    """Return what labels on n random rows would tell, for several n.

    Two arms' errors differ on a row only where their outputs do, so the difference of their
    error rates over n rows has a variance of at most p_ij/n: half a 95 % interval is at most
    1.96·√(p_ij/n). Of all pairs the one that matters most is planned for: the arm that looks
    worse and the better one, or else the pair whose disagreement makes the rule spend most.

    Examples
    --------
    >>> plans = plan_audit(Cascade([0.1, 0.2]), np.full((9, 1), 0.25), np.array([0.25]), None)
    >>> [(p.rows, round(p.half_width, 3)) for p in plans]
    [(100, 0.098), (300, 0.057), (1000, 0.031), (3000, 0.018)]
    """
    i, j = pair_that_matters(cascade, predicted, agreement)
    rate = float(rates[cascade.pairs().index((i, j))])
    gap, first, second = float(cascade.gaps[i, j]), cascade.names[i], cascade.names[j]
    plans: list[AuditPlan] = []
    for n in SIZES:
        half = Z95 * math.sqrt(rate / n)
        finer = half < gap / 2
        plans.append(
            AuditPlan(
                rows=n,
                half_width=half,
                words=(
                    f"Labels on {n:,} random rows would tell the error rates of {first} and "
                    f"{second} apart to within ±{100 * half:.1f} points (95 %), "
                    + ("fine enough" if finer else "too coarse")
                    + f" to say whether {second} is worth the {gap:.3g} that it costs more."
                ),
            )
        )
    return tuple(plans)


def rows_to_settle(rate: float, difference: float) -> int:
    """Return how many labels tell two arms apart that disagree so often and differ by so much.

    Examples
    --------
    >>> rows_to_settle(0.3, 0.2), rows_to_settle(0.3, 0.03)
    (100, 3000)
    """
    enough = [n for n in SIZES if Z95 * math.sqrt(rate / n) < difference]
    return min(enough, default=SIZES[-1])


def pair_that_matters(
    cascade: Cascade, predicted: NDArray[np.float64], agreement: Agreement | None
) -> tuple[int, int]:
    """Return the pair of arms about which a label would tell most.

    Examples
    --------
    >>> pair_that_matters(Cascade([0.1, 0.1, 0.3]), np.array([[0.2, 0.1, 0.1]]), None)
    (0, 1)
    """
    if agreement is not None and agreement.worse:
        alarm = max(agreement.worse, key=lambda w: w.difference.value)
        return alarm.better, alarm.worse
    stops = plug_in_stops(cascade, predicted)
    spent = [
        float(((predicted[:, k] >= cascade.gaps[i, j]) & (stops > i)).mean() * cascade.gaps[i, j])
        for k, (i, j) in enumerate(cascade.pairs())
    ]
    if max(spent) == 0.0:  # nothing is sent on: what might be missed lies with the last arm
        return 0, cascade.n_arms - 1
    return cascade.pairs()[int(np.argmax(spent))]
