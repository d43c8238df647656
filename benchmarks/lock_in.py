"""Lock-in: a run that stops too early for good, where its rounds no longer show that."""

from __future__ import annotations

from typing import Any

import numpy as np

DEFINITION = (
    "Locked in: among the rounds of the last fifth whose best arm is k, for some k that is best in "
    "5 % of them or more, 95 % or more stop before k. Such a run does not see the arm that would "
    "correct it."
)
LAST, OFTEN, NEARLY_ALL = 0.2, 0.05, 0.95


def locked_in(stops: np.ndarray[Any, Any], optimal: np.ndarray[Any, Any]) -> bool:
    """Whether a run is locked in at the end, as `DEFINITION` says."""
    late = slice(len(stops) - round(LAST * len(stops)), None)
    stop, best = stops[late], optimal[late]
    for k in np.unique(best):
        if (best == k).mean() >= OFTEN and (stop[best == k] < k).mean() >= NEARLY_ALL:
            return True
    return False
