"""The unit of costs and results: one wrong answer, or the currency of the prices."""

import numpy as np

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.reporting.wording import number

DIGITS = 12  # of 1/λ: what was divided to make λ comes back without rounding error


def error_cost(cascade: Cascade) -> float:
    """Return what one wrong answer costs in the unit of the costs; 1 if that is the unit.

    Examples
    --------
    >>> error_cost(Cascade([0.01, 0.2])), error_cost(Cascade.from_prices([1, 6], error_cost=49))
    (1.0, 49.0)
    """
    weights = np.unique(cascade.tradeoff)
    if len(weights) > 1:  # then λᵢCᵢ have no unit in common but that of errors
        return 1.0
    return float(f"{1 / float(weights[0]):.{DIGITS}g}")


def totals(cascade: Cascade) -> Floats:
    """Return what stopping at each arm costs, in the unit of the costs.

    Examples
    --------
    >>> totals(Cascade.from_prices([1, 6], error_cost=49)).tolist()
    [1.0, 7.0]
    """
    if error_cost(cascade) == 1.0:
        return cascade.cumulative
    return np.cumsum(cascade.costs)


def unit_in_words(one_error: float) -> str:
    """Return what amounts are in: ``one_error`` is what `error_cost` returns."""
    if one_error == 1.0:
        return "in units of one wrong answer"
    return f"in the currency of your prices (one wrong answer costs {number(one_error)})"
