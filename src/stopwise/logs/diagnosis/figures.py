"""The figures of the report of a diagnosis."""

import math
from collections.abc import Sequence

from stopwise.intervals import Interval
from stopwise.logs.diagnosis.findings import Diagnosis, PairSummary
from stopwise.reporting.drawing import SERIES, Axes, Figure, legend_below, panels
from stopwise.reporting.wording import short

WIDTH = 4.2  # inches: text stays legible on a phone
POLICY = "Stopwise"  # the rule's name in the report, because an arm may be called "rule"
BLUE, ORANGE, GREY, DARK = SERIES[0], SERIES[1], "#9aa5ad", "#08304d"
SHALLOW, DEEP = (0xA9, 0xD0, 0xEA), (0x0A, 0x45, 0x6E)
OFFSET = {"textcoords": "offset points"}


def colours(count: int) -> list[str]:
    """Return a colour for each arm, darker with depth."""
    shares = [k / max(1, count - 1) for k in range(count)]
    return [
        "#" + "".join(f"{round(a + s * (b - a)):02x}" for a, b in zip(SHALLOW, DEEP, strict=True))
        for s in shares
    ]


def draw_frontier(diagnosis: Diagnosis) -> Figure:
    """Draw cost against disagreement, and against error if there are labels."""
    rates = [("disagreement", f"differs from {_label(diagnosis.arms[-1].name)}")]
    if diagnosis.audit is not None:
        rates.append(("error", "wrong (labelled rows)"))
    figure = panels(len(rates), 1, WIDTH, 2.6)
    for axes, (rate, ylabel) in zip(figure.axes, rates, strict=True):
        _draw_curve(axes, diagnosis, rate)
        axes.set_ylabel(ylabel)
    unit = "in units of one wrong answer" if diagnosis.error_cost == 1 else "at your prices"
    figure.axes[-1].set_xlabel(f"cost of a round, {unit}")
    legend_below(figure)
    return figure


def _draw_curve(axes: Axes, diagnosis: Diagnosis, rate: str) -> None:
    points = sorted(diagnosis.frontier, key=lambda p: p.cost)
    costs = [p.cost for p in points]
    totals = [arm.total for arm in diagnosis.arms]
    heights: list[Interval] = [getattr(p, rate) for p in points]
    fixed: list[Interval] = [getattr(arm, rate) for arm in diagnosis.arms]
    axes.fill_between(
        costs,
        [h.low for h in heights],
        [h.high for h in heights],
        color=BLUE,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(costs, [h.value for h in heights], ".-", color=BLUE, label=POLICY)
    squares = {"fmt": "s", "color": ORANGE, "markersize": 5, "capsize": 2, "label": "a fixed depth"}
    axes.errorbar(totals, [e.value for e in fixed], yerr=_error_bars(fixed), **squares)
    current = min(points, key=lambda p: abs(math.log(p.weight)))
    star = {"color": DARK, "markersize": 12, "zorder": 6, "label": "your costs"}
    axes.plot([current.cost], [getattr(current, rate).value], "*", **star)
    widest = max(totals) or 1.0
    for arm, value in zip(diagnosis.arms, fixed, strict=True):
        side, shift = ("right", -7) if arm.total > 0.6 * widest else ("left", 7)
        at = arm.total, value.value
        axes.annotate(_label(arm.name, 14), at, (shift, 5), ha=side, **OFFSET)
    highest = max(e.high for e in (*heights, *fixed)) or 1.0
    axes.set(xlim=(-0.03 * widest, 1.06 * widest), ylim=(-0.04 * highest, 1.12 * highest))
    axes.yaxis.set_major_formatter(_percent)


def draw_reliability(diagnosis: Diagnosis, shown: Sequence[PairSummary]) -> Figure:
    """Draw predicted against observed disagreement, one panel per pair."""
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3
    figure = panels(-(-len(shown) // columns), columns, WIDTH / min(columns, 2), 2.1)
    names = [_label(arm.name, 11) for arm in diagnosis.arms]
    for axes, pair in zip(figure.axes, shown, strict=False):
        predicted = [b.predicted for b in pair.reliability.bins]
        observed = [b.observed for b in pair.reliability.bins]
        top = max([*predicted, *(o.high for o in observed)]) * 1.08 or 1.0
        axes.plot([0, top], [0, top], color=GREY, linestyle="--")
        heights, bars = [o.value for o in observed], _error_bars(observed)
        axes.errorbar(predicted, heights, yerr=bars, fmt="o-", color=BLUE, capsize=2)
        axes.set(xlim=(0, top), ylim=(0, top))
        axes.locator_params(nbins=4)
        axes.xaxis.set_major_formatter(_percent)
        axes.yaxis.set_major_formatter(_percent)
        axes.set_title(f"{names[pair.first]} – {names[pair.second]}", size=9)
    for axes in figure.axes[len(shown) :]:
        axes.remove()
    figure.supxlabel("predicted disagreement", size=9)
    figure.supylabel("observed disagreement", size=9)
    return figure


def _label(name: str, longest: int = 18) -> str:
    """Return a name for a figure: truncated, and escaped so that it is not read as a formula."""
    return short(name, longest).replace("\\", "/").replace("$", r"\$") or "?"


def _error_bars(values: Sequence[Interval]) -> list[list[float]]:
    """Return the error bars of intervals."""
    # rounding may put a limit on the wrong side of its estimate; a bar cannot be negative
    return [
        [max(0.0, v.value - v.low) for v in values],
        [max(0.0, v.high - v.value) for v in values],
    ]


def _percent(share: float, _: int) -> str:
    return f"{100 * share:.4g} %"
