"""Lock-in: a run that stops too early permanently."""

from __future__ import annotations

from typing import Any

import numpy as np

DEFINITION = (
    "Locked in: for some arm k that is best in at least 5 % of the last fifth of the rounds, at "
    "least 95 % of these rounds stop before k. Such a run never runs the arm that would correct it."
)
LAST, OFTEN, NEARLY_ALL = 0.2, 0.05, 0.95


def locked_in(stops: np.ndarray[Any, Any], optimal: np.ndarray[Any, Any]) -> bool:
    """Return whether a run is locked in at the end, by `DEFINITION`."""
    late = slice(len(stops) - round(LAST * len(stops)), None)
    stop, best = stops[late], optimal[late]
    for k in np.unique(best):
        if (best == k).mean() >= OFTEN and (stop[best == k] < k).mean() >= NEARLY_ALL:
            return True
    return False
