"""The usual cascade: stop at the first arm that is confident enough, tuned on labelled rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.data import Setting

DECILES = np.arange(0.1, 0.95, 0.1)


def play(setting: Setting, labels: int) -> NDArray[np.int64]:
    """Run the first rounds to the end, tune on their labels, then keep the thresholds."""
    first = slice(0, labels)
    stops = np.full(setting.n, setting.last)
    signs, thresholds = tuned(setting, first)
    rest = slice(labels, None)
    stops[rest] = _stops(_confidences(setting, rest), signs, thresholds)
    return stops


def tuned(setting: Setting, rows: slice) -> tuple[list[float], list[float]]:
    """Coordinate descent over deciles, from always last, until no arm's threshold changes.

    Each arm's candidates are: stop never, stop always, and its deciles among these rounds; where
    what it reveals is not a confidence, also the deciles of its negative.
    """
    confidences = _confidences(setting, rows)
    cost = setting.cascade.cumulative + setting.wrong[rows]
    everyone = np.arange(len(cost))
    signs, thresholds = [1.0] * setting.last, [np.inf] * setting.last

    def loss() -> float:
        return float(cost[everyone, _stops(confidences, signs, thresholds)].mean())

    best, changed = loss(), True
    while changed:
        changed = False
        for arm in reversed(range(setting.last)):
            for sign in (1.0,) if setting.confident else (1.0, -1.0):
                deciles = np.quantile(sign * confidences[:, arm], DECILES)
                for threshold in (np.inf, -np.inf, *deciles.tolist()):
                    kept = signs[arm], thresholds[arm]
                    signs[arm], thresholds[arm] = sign, threshold
                    tried = loss()
                    if tried < best - 1e-12:
                        best, changed = tried, True
                    else:
                        signs[arm], thresholds[arm] = kept
    return signs, thresholds


def _confidences(setting: Setting, rows: slice) -> NDArray[np.float64]:
    return np.column_stack([setting.revealed(arm)[rows] for arm in range(setting.last)])


def _stops(
    confidences: NDArray[np.float64], signs: Sequence[float], thresholds: Sequence[float]
) -> NDArray[np.int64]:
    enough = confidences * np.array(signs) >= np.array(thresholds)
    return np.where(enough.any(axis=1), enough.argmax(axis=1), len(thresholds))
