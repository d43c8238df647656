"""Losses relative to fixed depths, with 95 % intervals over the orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.arena.contest import Run
from benchmarks.arena.data import ArenaError
from stopwise.arrays import Floats
from stopwise.intervals import mean_interval


class Mean(NamedTuple):
    """A mean over orders and the half-width of its interval; 0 if the orders do not differ."""

    value: float
    half: float

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (f" ± {self.half:.3f}" if self.half else "")

    @property
    def signed(self) -> str:
        return f"{self.value:+.3f}" + (f" ± {self.half:.3f}" if self.half else "")


@dataclass(frozen=True)
class Score:
    """The scores of a competitor. ``by_setting`` has shape (settings, orders)."""

    player: str
    by_setting: Floats  # relative to the best fixed depth in hindsight
    of_best: Mean
    worst: Mean
    worst_at: tuple[str, float]
    of_last: Mean
    better: int  # number of settings with less loss than the best fixed depth
    against: Mean | None  # mean difference to the reference, in the same settings and orders

    @property
    def varies(self) -> bool:
        """Whether the settings differ, so that one is the worst."""
        return bool(np.ptp(self.by_setting) > 1e-9)


def settings(runs: Sequence[Run]) -> list[tuple[str, float]]:
    """Return the settings in the order of the runs."""
    return list(dict.fromkeys((run.cascade, run.level) for run in runs))


def score(runs: Sequence[Run], reference: str | None = None) -> list[Score]:
    """Return the scores in the order of the runs; all competitors need the same settings."""
    rows = {place: k for k, place in enumerate(settings(runs))}
    orders = {order: k for k, order in enumerate(sorted({run.order for run in runs}))}
    best: dict[str, Floats] = {}
    last: dict[str, Floats] = {}
    for run in runs:
        at = rows[run.cascade, run.level], orders[run.order]
        for table, other in ((best, run.best), (last, run.last)):
            empty = np.full((len(rows), len(orders)), np.nan)
            table.setdefault(run.player, empty)[at] = run.loss / other
    unfinished = [player for player, table in best.items() if np.isnan(table).any()]
    if unfinished:
        raise ArenaError(f"runs are missing for {', '.join(unfinished)}")
    return [_score(player, best, last, list(rows), reference) for player in best]


def _score(
    player: str,
    best: dict[str, Floats],
    last: dict[str, Floats],
    places: list[tuple[str, float]],
    reference: str | None,
) -> Score:
    table = best[player]
    worst = int(table.mean(axis=1).argmax())
    other = best.get(reference or "")
    return Score(
        player,
        table,
        over_orders(table.mean(axis=0)),
        over_orders(table[worst]),
        places[worst],
        over_orders(last[player].mean(axis=0)),
        int((table.mean(axis=1) < 1 - 1e-9).sum()),
        None if other is None else over_orders((table - other).mean(axis=0)),
    )


def over_orders(values: Floats) -> Mean:
    """Return the mean of one value for each order, with Student's interval."""
    interval = mean_interval(values)
    half = (interval.high - interval.low) / 2
    return Mean(interval.value, half if half > 1e-9 and math.isfinite(half) else 0.0)
