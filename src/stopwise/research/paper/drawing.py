"""Plots for the figures; each policy has the same colour and marker in all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopwise.arrays import Floats
from stopwise.intervals import Interval
from stopwise.reporting.drawing import (
    MARKS,
    SERIES,
    Axes,
    Figure,
    legend_below,
    panels,
    start_at_zero,
)
from stopwise.research.experiments.summary import Measure, curves
from stopwise.research.paper.evidence import ClaimEvidence
from stopwise.research.paper.settings import NAMES

LOOKS: dict[str, dict[str, Any]] = {
    "USS-PD": {"color": "#0072B2", "marker": "o", "linewidth": 2.2, "zorder": 5},
    "USS-PD-λI": {"color": "#56B4E9", "marker": "s"},
    "Thompson": {"color": "#009E73", "marker": "^"},
    "USS-UCB": {"color": "#E69F00", "marker": "v"},
    "USS-TS": {"color": "#882255", "marker": "<"},
    "supervised": {"color": "#CC79A7", "marker": "D"},
    "clairvoyant": {"color": "#000000", "linestyle": "--"},
    "I_t=3": {"color": "#D55E00", "linestyle": ":", "marker": "x"},
    "I_t=2": {"color": "#A0522D", "linestyle": ":", "marker": "+"},
    "I_t=1": {"color": "#8C8C8C", "linestyle": ":", "marker": "1"},
    "random": {"color": "#7A6FAC", "linestyle": "-.", "marker": "*"},
}
BARS = 10  # error bars per curve


def curve_grid(evidence: ClaimEvidence, measure: Measure, ylabel: str) -> Figure:
    """Draw every policy's curve in a grid of settings (rows) and instances (columns)."""
    rows, columns = len(NAMES), len(evidence.instances())
    if columns == 1:  # with a single instance, settings are drawn side by side
        rows, columns = columns, rows
    figure = panels(rows, columns, width=3.1 if columns > 2 else 4.2)
    cells = [(setting, instance) for setting in NAMES for instance in evidence.instances()]
    for axes, (setting, instance) in zip(figure.axes, cells, strict=True):
        axes.set_title(f"{instance} · {setting}")
        for policy in evidence.policies(setting, instance):
            _line(axes, evidence, (setting, instance, policy), measure, LOOKS[policy], policy)
        start_at_zero(axes)
    _finish(figure, ylabel)
    return figure


def instance_panels(evidence: ClaimEvidence, ylabel: str, measure: Measure = "regret") -> Figure:
    """Draw USS-PD's regret on all instances, with one panel per setting, as in the paper."""
    figure = panels(1, len(NAMES), width=4.2, height=3.0)
    for axes, setting in zip(figure.axes, NAMES, strict=True):
        for k, instance in enumerate(evidence.instances()):
            look = {"color": SERIES[k], "marker": MARKS[k]}
            _line(axes, evidence, (setting, instance, "USS-PD"), measure, look, instance)
        axes.set_title(f"USS-PD · {setting}")
        start_at_zero(axes)
    _finish(figure, ylabel)
    return figure


def points(
    axes: Axes, x: Sequence[float], values: Sequence[Interval], label: str, look: dict[str, Any]
) -> None:
    """Draw means with error bars against x."""
    means = np.array([v.value for v in values])
    margins = np.array([v.high - v.value if np.isfinite(v.high) else 0.0 for v in values])
    axes.errorbar(x, means, yerr=_error_bars(means, margins), label=label, capsize=2, **look)


def _line(
    axes: Axes,
    evidence: ClaimEvidence,
    cell: tuple[str, str, str],
    measure: Measure,
    look: dict[str, Any],
    label: str,
) -> None:
    rounds, mean, _, high = curves(evidence.traces(*cell), measure)
    step = max(len(rounds) // BARS, 1)
    shown = slice(step - 1, None, step)
    axes.plot(rounds, mean, label=label, markevery=shown, **look)
    if np.isfinite(high).all():
        bars = _error_bars(mean[shown], (high - mean)[shown])
        axes.errorbar(
            rounds[shown], mean[shown], yerr=bars, fmt="none", ecolor=look["color"], elinewidth=1
        )


def _error_bars(means: Floats, margins: Floats) -> list[Floats]:
    """Return the lengths of error bars below and above the means, clipped at zero."""
    return [np.clip(means, 0.0, margins), margins]


def _finish(figure: Figure, ylabel: str) -> None:
    for axes in figure.axes:
        position = axes.get_subplotspec()
        if position.is_first_col():
            axes.set_ylabel(ylabel)
        if position.is_last_row():
            axes.set_xlabel("rounds")
    legend_below(figure)
