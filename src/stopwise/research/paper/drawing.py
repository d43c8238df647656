"""How the figures look: the same policy has the same colour and marker on all of them."""

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
from stopwise.research.experiments.summary import What, curves
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
BARS = 10  # confidence intervals drawn on a curve


def curve_grid(evidence: ClaimEvidence, what: What, ylabel: str) -> Figure:
    """Draw every policy's curve: a row of panels for each setting, a column for each instance."""
    rows, columns = len(NAMES), len(evidence.instances())
    if columns == 1:  # side by side, rather than a tower
        rows, columns = columns, rows
    figure = panels(rows, columns, width=3.1 if columns > 2 else 4.2)
    cells = [(setting, instance) for setting in NAMES for instance in evidence.instances()]
    for axes, (setting, instance) in zip(figure.axes, cells, strict=True):
        axes.set_title(f"{instance} · {setting}")
        for policy in evidence.policies(setting, instance):
            _line(axes, evidence, (setting, instance, policy), what, LOOKS[policy], policy)
        start_at_zero(axes)
    _finish(figure, ylabel)
    return figure


def instance_panels(evidence: ClaimEvidence, ylabel: str, what: What = "regret") -> Figure:
    """Draw the regret of USS-PD on all instances, a panel for each setting, as the paper does."""
    figure = panels(1, len(NAMES), width=4.2, height=3.0)
    for axes, setting in zip(figure.axes, NAMES, strict=True):
        for k, instance in enumerate(evidence.instances()):
            look = {"color": SERIES[k], "marker": MARKS[k]}
            _line(axes, evidence, (setting, instance, "USS-PD"), what, look, instance)
        axes.set_title(f"USS-PD · {setting}")
        start_at_zero(axes)
    _finish(figure, ylabel)
    return figure


def points(
    axes: Axes, x: Sequence[float], values: Sequence[Interval], label: str, look: dict[str, Any]
) -> None:
    """Draw means against x, with their intervals."""
    means = np.array([v.value for v in values])
    reach = np.array([v.high - v.value if np.isfinite(v.high) else 0.0 for v in values])
    axes.errorbar(x, means, yerr=_above_zero(means, reach), label=label, capsize=2, **look)


def _line(
    axes: Axes,
    evidence: ClaimEvidence,
    cell: tuple[str, str, str],
    what: What,
    look: dict[str, Any],
    label: str,
) -> None:
    rounds, mean, _, high = curves(evidence.traces(*cell), what)
    step = max(len(rounds) // BARS, 1)
    shown = slice(step - 1, None, step)
    axes.plot(rounds, mean, label=label, markevery=shown, **look)
    if np.isfinite(high).all():
        reach = _above_zero(mean[shown], (high - mean)[shown])
        axes.errorbar(
            rounds[shown], mean[shown], yerr=reach, fmt="none", ecolor=look["color"], elinewidth=1
        )


def _above_zero(means: Floats, reach: Floats) -> list[Floats]:
    """Return the lengths of intervals below and above their means, cut off at zero."""
    return [np.clip(means, 0.0, reach), reach]


def _finish(figure: Figure, ylabel: str) -> None:
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if place.is_first_col():
            axes.set_ylabel(ylabel)
        if place.is_last_row():
            axes.set_xlabel("rounds")
    legend_below(figure)
