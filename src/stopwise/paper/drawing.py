"""How the figures look: the same policy has the same colour and mark on every one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopwise.experiments.summary import Floats, Interval, What
from stopwise.paper.evidence import ClaimEvidence
from stopwise.reporting.drawing import (
    MARKS,
    SERIES,
    Axes,
    Figure,
    from_zero,
    legend_below,
    panels,
    styled,
)

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


@styled
def curve_grid(
    evidence: ClaimEvidence,
    settings: Sequence[str],
    what: What,
    ylabel: str,
    *,
    scale: str = "linear",
) -> Figure:
    """Draw every policy's curve: a row of panels for each setting, a column for each instance.

    ``scale`` "symlog" shows curves of very different size, zeros included.
    """
    instances = evidence.instances()
    rows, columns = len(settings), len(instances)
    if columns == 1:  # side by side, rather than a tower
        rows, columns = columns, rows
    figure = panels(rows, columns, width=3.1 if columns > 2 else 4.2)
    for axes, (setting, instance) in zip(
        figure.axes, [(s, i) for s in settings for i in instances], strict=True
    ):
        for policy in evidence.policies(setting, instance):
            _line(axes, evidence, (setting, instance, policy), what, LOOKS[policy], policy)
        axes.set_title(f"{instance} · {setting}")
        if scale == "symlog":
            axes.set_yscale("symlog", linthresh=100)
        from_zero(axes)
    _finish(figure, rows, columns, "rounds", ylabel)
    return figure


@styled
def instance_panels(
    evidence: ClaimEvidence,
    settings: Sequence[str],
    what: What,
    ylabel: str,
    policy: str = "USS-PD",
) -> Figure:
    """Draw one policy's curves on all instances, a panel for each setting: the paper's own view."""
    figure = panels(1, len(settings), width=4.2, height=3.0)
    for axes, setting in zip(figure.axes, settings, strict=True):
        for k, instance in enumerate(evidence.instances()):
            look = {"color": SERIES[k], "marker": MARKS[k]}
            _line(axes, evidence, (setting, instance, policy), what, look, instance)
        axes.set_title(f"{policy} · {setting}")
        from_zero(axes)
    _finish(figure, 1, len(settings), "rounds", ylabel)
    return figure


@styled
def bar_grid(
    evidence: ClaimEvidence, settings: Sequence[str], what: What, xlabel: str, order: Sequence[str]
) -> Figure:
    """Draw every policy's value for a round at the end as bars, with its interval."""
    instances = evidence.instances()
    figure = panels(len(settings), len(instances), height=2.4)
    longest = 0.0  # end of a bar or of its interval
    for axes, (setting, instance) in zip(
        figure.axes, [(s, i) for s in settings for i in instances], strict=True
    ):
        values = [evidence.per_round(setting, instance, policy, what) for policy in order]
        means = [v.mean for v in values]
        reach = [v.high - v.mean if np.isfinite(v.high) else 0.0 for v in values]
        axes.barh(
            range(len(order)),
            means,
            xerr=reach,
            color=[LOOKS[policy]["color"] for policy in order],
            error_kw={"elinewidth": 1},
        )
        for place, (mean, beyond) in enumerate(zip(means, reach, strict=True)):
            axes.annotate(
                f"{mean:.3f}",
                (mean + beyond, place),
                (3, 0),
                textcoords="offset points",
                va="center",
                size=7,
            )
        axes.set_yticks(range(len(order)), order)
        axes.invert_yaxis()
        longest = max(longest, *(m + r for m, r in zip(means, reach, strict=True)))
        axes.grid(visible=False, axis="y")
        axes.set_title(f"{instance} · {setting}")
        axes.tick_params(labelleft=axes.get_subplotspec().is_first_col())
    for axes in figure.axes:  # one scale, so that bars can be compared across panels
        axes.set_xlim(0, longest * 1.25)
    figure.supxlabel(xlabel)
    return figure


def points(
    axes: Axes, x: Sequence[float], values: Sequence[Interval], label: str, look: dict[str, Any]
) -> None:
    """Draw means against x, with their intervals."""
    means = np.array([v.mean for v in values])
    reach = np.array([v.high - v.mean if np.isfinite(v.high) else 0.0 for v in values])
    axes.errorbar(x, means, yerr=_above_zero(means, reach), label=label, capsize=2, **look)


def _line(
    axes: Axes,
    evidence: ClaimEvidence,
    where: tuple[str, str, str],
    what: What,
    look: dict[str, Any],
    label: str,
) -> None:
    rounds, mean, _, high = evidence.curve(*where, what)
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


def _finish(figure: Figure, rows: int, columns: int, xlabel: str, ylabel: str) -> None:
    for place, axes in enumerate(figure.axes):
        if place % columns == 0:
            axes.set_ylabel(ylabel)
        if place // columns == rows - 1:
            axes.set_xlabel(xlabel)
    legend_below(figure)
