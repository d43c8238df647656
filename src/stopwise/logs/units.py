"""Units of costs and results: wrong answers, or the currency of the prices."""

import numpy as np

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.reporting.wording import number

DIGITS = 12  # of 1/λ, to recover the error cost from which λ was computed without rounding error


def error_cost(cascade: Cascade) -> float:
    """Return what one wrong answer costs; 1 if costs are measured in wrong answers.

    Examples
    --------
    >>> error_cost(Cascade([0.01, 0.2])), error_cost(Cascade.from_prices([1, 6], error_cost=49))
    (1.0, 49.0)
    """
    weights = np.unique(cascade.tradeoff)
    if len(weights) > 1:  # then wrong answers are the only common unit of the λᵢCᵢ
        return 1.0
    return float(f"{1 / float(weights[0]):.{DIGITS}g}")


def totals(cascade: Cascade) -> Floats:
    """Return the cost of stopping at each arm, in the unit of the costs.

    Examples
    --------
    >>> totals(Cascade.from_prices([1, 6], error_cost=49)).tolist()
    [1.0, 7.0]
    """
    if error_cost(cascade) == 1.0:
        return cascade.cumulative
    return np.cumsum(cascade.costs)


def describe_unit(cost_per_error: float) -> str:
    """Return the unit of amounts as text, for a given cost of one wrong answer.

    Examples
    --------
    >>> describe_unit(1.0)
    'in units of one wrong answer'
    """
    if cost_per_error == 1.0:
        return "in units of one wrong answer"
    return f"in the currency of your prices (one wrong answer costs {number(cost_per_error)})"
