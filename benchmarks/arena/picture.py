"""Picture of the scores: a row per competitor, a dot per setting, and the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.arena.scores import Score
from stopwise.reporting.drawing import MARKS, SERIES, FigureFiles, draw, legend_below, panels
from stopwise.reporting.elements import Picture

ALT = "Loss relative to the best fixed depth: one row for each competitor, a dot for each setting"
TICKS = (0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)


def draw_scores(scores: Sequence[Score], places: Sequence[tuple[str, float]]) -> FigureFiles:
    """Return the picture as SVG and PNG."""
    return draw(Picture("arena", "The arena", ALT, lambda: _figure(scores, places)))


def _figure(scores: Sequence[Score], places: Sequence[tuple[str, float]]) -> Any:
    figure = panels(1, 1, width=6.6, height=0.3 * len(scores) + 0.6)
    axes = figure.axes[0]
    levels = sorted({level for _, level in places})
    at = np.array([levels.index(level) for _, level in places])
    lanes = np.linspace(-0.27, 0.27, len(levels)) if len(levels) > 1 else np.zeros(1)
    for row, score in enumerate(scores):
        means = score.by_setting.mean(axis=1)
        for k, level in enumerate(levels):
            values = means[at == k]
            axes.plot(
                values,
                np.full(len(values), row + lanes[k]),
                color=SERIES[k % len(SERIES)],
                marker=MARKS[k % len(MARKS)],
                ls="",
                ms=3.5,
                mew=0,
                alpha=0.7,
                label=f"level {level:g}",
            )
        mean = score.of_best.value
        axes.plot([mean, mean], [row - 0.38, row + 0.38], color="black", lw=2, label="mean")
    axes.axvline(1, color="grey", lw=1, zorder=0)
    axes.set_xscale("log")
    low, high = axes.dataLim.x0, axes.dataLim.x1
    axes.set_xlim(low / 1.05, high * 1.05)
    axes.set_xticks([tick for tick in TICKS if low / 1.05 <= tick <= high * 1.05])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.set_yticks(range(len(scores)), [score.player for score in scores])
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("loss per round, relative to the best fixed depth in hindsight")
    legend_below(figure)
    return figure


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
