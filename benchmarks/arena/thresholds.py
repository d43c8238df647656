"""The standard cascade: stop at the first confident arm, with thresholds tuned on labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.data import Setting

DECILES = np.arange(0.1, 0.95, 0.1)


def play(setting: Setting, labels: int) -> NDArray[np.int64]:
    """Run every arm in the first rounds, tune on their labels, then keep the thresholds."""
    first = slice(0, labels)
    stops = np.full(setting.n, setting.last)
    signs, thresholds = tune(setting, first)
    later = slice(labels, None)
    stops[later] = _stops(_confidences(setting, later), signs, thresholds)
    return stops


def tune(setting: Setting, rows: slice) -> tuple[list[float], list[float]]:
    """Tune the thresholds by coordinate descent over deciles, starting from always last.

    The candidates of each arm are never, always, and the deciles of its values in these rounds; if
    the values are not confidences, also the deciles of their negatives.
    """
    confidences = _confidences(setting, rows)
    cost = setting.cascade.cumulative + setting.wrong[rows]
    all_rows = np.arange(len(cost))
    signs, thresholds = [1.0] * setting.last, [np.inf] * setting.last

    def loss() -> float:
        return float(cost[all_rows, _stops(confidences, signs, thresholds)].mean())

    best, changed = loss(), True
    while changed:
        changed = False
        for arm in reversed(range(setting.last)):
            for sign in (1.0,) if setting.confident else (1.0, -1.0):
                deciles = np.quantile(sign * confidences[:, arm], DECILES)
                for threshold in (np.inf, -np.inf, *deciles.tolist()):
                    previous = signs[arm], thresholds[arm]
                    signs[arm], thresholds[arm] = sign, threshold
                    candidate = loss()
                    if candidate < best - 1e-12:
                        best, changed = candidate, True
                    else:
                        signs[arm], thresholds[arm] = previous
    return signs, thresholds


def _confidences(setting: Setting, rows: slice) -> NDArray[np.float64]:
    return np.column_stack([setting.revealed(arm)[rows] for arm in range(setting.last)])


def _stops(
    confidences: NDArray[np.float64], signs: Sequence[float], thresholds: Sequence[float]
) -> NDArray[np.int64]:
    confident = confidences * np.array(signs) >= np.array(thresholds)
    return np.where(confident.any(axis=1), confident.argmax(axis=1), len(thresholds))
