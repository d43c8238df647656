"""The figures of a diagnosis. Names are made safe here: they come from somebody's table."""

from collections.abc import Callable, Sequence
from typing import Any

from stopwise.logs.diagnosis.findings import Diagnosis, Estimate, FrontierPoint, GroupDisagreement
from stopwise.logs.diagnosis.words import THIN, amount, by_coordinate, percent, present, short
from stopwise.reporting.drawing import SERIES, Axes, Figure, legend_below, panels, styled

WIDTH = 4.2  # inches: letters stay legible where a phone is as wide as the figure
NARROW_PAIRS = 4  # so many pairs fit that width
COORDINATES = 8  # of the context, in the picture of groups: those that matter most
PAIRS = 12  # panels in the picture of reliability: the worst

RULE, FIXED, HARM, QUIET = SERIES[0], SERIES[1], SERIES[1], "#9aa5ad"
SHALLOW, DEEP = (0xA9, 0xD0, 0xEA), (0x0A, 0x45, 0x6E)
PALE, STRONG = (0.95, 0.97, 0.99), (0.42, 0.68, 0.88)  # of the tiles


def depth_colours(count: int) -> list[str]:
    """Return a colour for each arm, darker with depth.

    Examples
    --------
    >>> depth_colours(2)
    ['#a9d0ea', '#0a456e']
    """
    shares = [k / max(1, count - 1) for k in range(count)]
    return [
        "#" + "".join(f"{round(a + s * (b - a)):02x}" for a, b in zip(SHALLOW, DEEP, strict=True))
        for s in shares
    ]


def label(name: str, longest: int = 18) -> str:
    r"""Return a name as a figure can show it: cut, and no formula.

    Examples
    --------
    >>> label("costs $x^$")
    'costs \\$x^\\$'
    """
    return short(name, longest).replace("\\", "/").replace("$", r"\$") or "?"


def busiest(diagnosis: Diagnosis) -> list[GroupDisagreement]:
    """Return the groups of the coordinates along which disagreement varies most."""

    def spread(members: list[GroupDisagreement]) -> float:
        columns = zip(*([rate.value for rate in m.rates] for m in members), strict=True)
        return max((max(column) - min(column) for column in columns), default=0.0)

    found = by_coordinate(diagnosis.groups)
    chosen = sorted(found, key=lambda name: -spread(found[name]))[:COORDINATES]
    return [group for name in found if name in chosen for group in found[name]]


@styled
def stops(diagnosis: Diagnosis) -> Figure:
    """Draw the share of rounds that would stop at each arm."""
    names = [label(arm.name) for arm in diagnosis.arms]
    figure, axes = _one(0.34 * len(names) + 0.3)
    shares = [stop.share for stop in diagnosis.stops]
    _bars(axes, names, shares, depth_colours(len(names)), percent)
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("share of rounds that stop here")
    _percent_axis(axes.xaxis)
    return figure


@styled
def costs(diagnosis: Diagnosis) -> Figure:
    """Draw the cost of a round: of the rule, and of every fixed depth."""
    saved = diagnosis.saving.per_round
    last = diagnosis.arms[-1].total
    rule = Estimate(last - saved.value, last - saved.high, last - saved.low)
    values = [rule, *(Estimate(arm.total, arm.total, arm.total) for arm in diagnosis.arms)]
    names = ["the rule", *(f"always {label(arm.name)}" for arm in diagnosis.arms)]
    figure, axes = _one(0.34 * len(names) + 0.3)
    _bars(axes, names, values, [RULE] + [QUIET] * len(diagnosis.arms), amount)
    axes.set_xlim(0, (max(v.high for v in values) or 1.0) * 1.18)
    axes.set_xlabel("cost of a round, in wrong answers")
    return figure


@styled
def frontier(diagnosis: Diagnosis) -> Figure:
    """Draw cost against disagreement, and error where labels tell it, as the weight moves."""
    errors = all(p.error is not None for p in (*diagnosis.frontier, *diagnosis.fixed))
    figure = panels(2 if errors else 1, 1, WIDTH, 2.6)
    _frontier_panel(
        figure.axes[0],
        diagnosis,
        [p.disagreement for p in diagnosis.frontier],
        [p.disagreement for p in diagnosis.fixed],
        f"differs from {label(diagnosis.arms[-1].name)}",
    )
    if errors:
        _frontier_panel(
            figure.axes[1],
            diagnosis,
            [p.error for p in diagnosis.frontier if p.error is not None],
            [p.error for p in diagnosis.fixed if p.error is not None],
            "is wrong, by the labels",
        )
    figure.axes[-1].set_xlabel("cost of a round, in wrong answers")
    legend_below(figure)
    return figure


@styled
def pairs(diagnosis: Diagnosis) -> Figure:
    """Draw how often each pair of arms disagrees, beside what the step between them costs."""
    arms = diagnosis.arms
    side = len(arms) - 1
    figure = panels(1, 1, max(WIDTH, 0.85 * side + 1.2), 0.52 * side + 0.7)
    axes = figure.axes[0]
    top = max((pair.rate.value for pair in diagnosis.pairs), default=0.0) or 1.0
    for pair in diagnosis.pairs:
        words = f"{percent(pair.rate.value)}\nstep {amount(pair.gap)}"
        _tile(axes, pair.second - 1, pair.first, pair.rate.value / top, words)
        if pair.gap > pair.rate.value:
            _outline(axes, pair.second - 1, pair.first)
    _grid(axes, [label(a.name, 12) for a in arms[1:]], [label(a.name) for a in arms[:-1]])
    return figure


@styled
def groups(diagnosis: Diagnosis) -> Figure:
    """Draw how often each pair disagrees in each context group."""
    shown = busiest(diagnosis)
    columns = len(diagnosis.pairs)
    figure = panels(1, 1, max(WIDTH, 0.8 * columns + 2.6), 0.27 * len(shown) + 0.6)
    axes = figure.axes[0]
    top = max((rate.value for group in shown for rate in group.rates), default=0.0) or 1.0
    for row, group in enumerate(shown):
        for column, rate in enumerate(group.rates):
            _tile(axes, column, row, rate.value / top, percent(rate.value))
        if row and group.coordinate != shown[row - 1].coordinate:
            axes.axhline(row - 0.5, color="#333333", linewidth=1.0)
    names = [label(arm.name, 11) for arm in diagnosis.arms]
    _grid(
        axes,
        [f"{names[pair.first]}\n{names[pair.second]}" for pair in diagnosis.pairs],
        [f"{label(g.coordinate, 14)}: {label(g.group, 22)}" for g in shown],
    )
    return figure


@styled
def reliability(diagnosis: Diagnosis) -> Figure:
    """Draw predicted against observed disagreement, a panel for each pair."""
    shown = sorted(diagnosis.reliability, key=lambda r: -r.calibration_error)[:PAIRS]
    shown.sort(key=lambda r: (r.first, r.second))
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= NARROW_PAIRS else 3
    rows = -(-len(shown) // columns)
    figure = panels(rows, columns, WIDTH / 2 if columns > 1 else WIDTH, 2.1)
    names = [label(arm.name, 11) for arm in diagnosis.arms]
    for axes, pair in zip(figure.axes, shown, strict=False):
        predicted = [b.predicted for b in pair.bins]
        observed = [b.observed for b in pair.bins]
        top = max([*predicted, *(o.high for o in observed)], default=1.0) * 1.08 or 1.0
        axes.plot([0, top], [0, top], color=QUIET, linestyle="--")
        axes.errorbar(
            predicted,
            [o.value for o in observed],
            yerr=_reach(observed),
            fmt="o-",
            color=RULE,
            capsize=2,
        )
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.locator_params(nbins=4)
        _percent_axis(axes.xaxis)
        _percent_axis(axes.yaxis)
        axes.set_title(f"{names[pair.first]} – {names[pair.second]}", size=9)
    for axes in figure.axes[len(shown) :]:
        axes.remove()
    figure.supxlabel("predicted disagreement", size=9)
    figure.supylabel("observed disagreement", size=9)
    return figure


@styled
def margins(diagnosis: Diagnosis) -> Figure:
    """Draw what the rule had to spare where it stopped."""
    shown = diagnosis.margins
    names = [label(diagnosis.arms[m.arm].name) for m in shown]
    figure, axes = _one(0.42 * len(shown) + 0.4)
    axes.axvspan(-THIN, THIN, color="#f3d9a4", alpha=0.8, linewidth=0, label="a thin margin")
    axes.axvline(0, color="#333333", linewidth=1)
    for place, m in enumerate(shown):
        far_low, low, middle, high, far_high = m.quantiles
        first = place == 0
        axes.plot(
            [far_low, far_high],
            [place, place],
            color=RULE,
            linewidth=1.2,
            label="9 stops in 10" if first else None,
        )
        axes.plot(
            [low, high],
            [place, place],
            color=RULE,
            linewidth=6,
            alpha=0.55,
            solid_capstyle="butt",
            label="the middle half" if first else None,
        )
        axes.plot([middle], [place], "o", color="#08304d", label="median" if first else None)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("cost of the next steps, less what they could mend")
    legend_below(figure)
    return figure


@styled
def accuracy(diagnosis: Diagnosis) -> Figure:
    """Draw how often each arm seems right, from agreement and, where there are any, labels."""
    names = [label(arm.name) for arm in diagnosis.arms]
    figure, axes = _one(0.36 * len(names) + 0.4)
    found = diagnosis.agreement.accuracies if diagnosis.agreement is not None else ()
    beside = 0.14 if diagnosis.audit is not None else 0.0
    _dots(
        axes,
        [one.arm - beside for one in found],
        [one.accuracy for one in found],
        {"fmt": "o", "color": RULE, "label": "from agreement alone"},
    )
    if diagnosis.audit is not None:
        right = [Estimate(1 - e.value, 1 - e.high, 1 - e.low) for e in diagnosis.audit.errors]
        _dots(
            axes,
            [k + beside for k in range(len(right))],
            right,
            {"fmt": "s", "color": FIXED, "label": "from the labels"},
        )
        legend_below(figure)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("share of rounds in which it is right")
    axes.locator_params(axis="x", nbins=6)
    _percent_axis(axes.xaxis)
    return figure


@styled
def losses(diagnosis: Diagnosis) -> Figure:
    """Draw cost and error together, for the rule and every fixed depth."""
    audit = diagnosis.audit
    if audit is None:
        raise ValueError("losses need labels")  # the page never asks without
    paid = diagnosis.arms[-1].total - diagnosis.saving.per_round.value
    names = ["the rule", *(f"always {label(arm.name)}" for arm in diagnosis.arms)]
    spent = [paid, *(arm.total for arm in diagnosis.arms)]
    fixed = [p.loss for p in diagnosis.fixed]
    totals = [
        audit.rule_loss,
        *(
            loss or Estimate(arm.total, arm.total, arm.total)
            for loss, arm in zip(fixed, diagnosis.arms, strict=True)
        ),
    ]
    figure, axes = _one(0.36 * len(names) + 0.5)
    wrong = [max(0.0, t.value - s) for t, s in zip(totals, spent, strict=True)]
    axes.barh(range(len(names)), spent, color=RULE, label="cost")
    axes.barh(range(len(names)), wrong, left=spent, color="#F0B27A", label="errors", hatch="///")
    _whiskers(axes, totals, amount)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, (max(t.high for t in totals) or 1.0) * 1.18)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("loss of a round, in wrong answers")
    legend_below(figure)
    return figure


@styled
def repairs(diagnosis: Diagnosis) -> Figure:
    """Draw how often a deeper arm mends, and how often it spoils, a cheaper arm's answer."""
    found = diagnosis.audit.pairs if diagnosis.audit is not None else ()
    names = [label(arm.name, 14) for arm in diagnosis.arms]
    figure, axes = _one(0.42 * len(found) + 0.5)
    for shift, what, colour, words in (
        (-0.19, [p.repair for p in found], RULE, "mends a wrong answer"),
        (0.19, [p.harm for p in found], HARM, "spoils a right one"),
    ):
        places = [k + shift for k in range(len(found))]
        values = [w.value for w in what]
        axes.barh(
            places, values, 0.36, color=colour, label=words, xerr=_reach(what), error_kw=_THIN_BARS
        )
    axes.set_yticks(range(len(found)), [f"{names[p.first]} → {names[p.second]}" for p in found])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    axes.set_xlabel("share of labelled rounds")
    _percent_axis(axes.xaxis)
    legend_below(figure)
    return figure


# --- the pieces -----------------------------------------------------------------------------------

_THIN_BARS: dict[str, Any] = {"elinewidth": 1, "ecolor": "#333333"}


def _one(height: float) -> tuple[Figure, Axes]:
    """Return a figure of one panel, with the grid behind what is drawn."""
    figure = panels(1, 1, WIDTH, height)
    figure.axes[0].set_axisbelow(True)
    return figure, figure.axes[0]


def _bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[Estimate],
    colours: Sequence[str],
    words: Callable[[float], str],
) -> None:
    axes.barh(range(len(names)), [v.value for v in values], color=colours)
    _whiskers(axes, values, words)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _whiskers(axes: Axes, values: Sequence[Estimate], words: Callable[[float], str]) -> None:
    """Draw each interval at the end of its bar, and the value after it."""
    for place, value in enumerate(values):
        if value.high > value.low:
            axes.errorbar(
                [value.value], [place], xerr=_reach([value]), fmt="none", capsize=2, **_THIN_BARS
            )
        axes.annotate(
            words(value.value),
            (value.high, place),
            (4, 0),
            textcoords="offset points",
            va="center",
        )


def _dots(
    axes: Axes, places: Sequence[float], values: Sequence[Estimate], look: dict[str, Any]
) -> None:
    axes.errorbar([v.value for v in values], places, xerr=_reach(values), capsize=2, **look)


def _reach(values: Sequence[Estimate]) -> list[list[float]]:
    # an interval need not hold its own estimate where both are bounded; a bar cannot be negative
    return [
        [max(0.0, v.value - v.low) for v in values],
        [max(0.0, v.high - v.value) for v in values],
    ]


def _frontier_panel(
    axes: Axes,
    diagnosis: Diagnosis,
    moving: Sequence[Estimate],
    fixed: Sequence[Estimate],
    ylabel: str,
) -> None:
    order = sorted(range(len(moving)), key=lambda k: diagnosis.frontier[k].cost)
    costs = [diagnosis.frontier[k].cost for k in order]
    axes.fill_between(
        costs,
        [moving[k].low for k in order],
        [moving[k].high for k in order],
        color=RULE,
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(costs, [moving[k].value for k in order], ".-", color=RULE, label="the rule")
    axes.errorbar(
        [p.cost for p in diagnosis.fixed],
        [e.value for e in fixed],
        yerr=_reach(fixed),
        fmt="s",
        color=FIXED,
        markersize=5,
        capsize=2,
        label="a fixed depth",
    )
    now: FrontierPoint | None = present(diagnosis.frontier)
    if now is not None:
        rate = moving[diagnosis.frontier.index(now)].value
        axes.plot(
            [now.cost],
            [rate],
            "*",
            color="#08304d",
            markersize=12,
            zorder=6,
            label="costs as given",
        )
    widest = max(p.cost for p in diagnosis.fixed) or 1.0
    for point, value in zip(diagnosis.fixed, fixed, strict=True):
        right = point.cost > 0.6 * widest
        axes.annotate(
            label(diagnosis.arms[point.arm].name, 14),
            (point.cost, value.value),
            (-7 if right else 7, 5),
            textcoords="offset points",
            ha="right" if right else "left",
            path_effects=[_halo()],
        )
    axes.set_xlim(-0.03 * widest, 1.06 * widest)
    highest = max(e.high for e in (*moving, *fixed)) or 1.0
    axes.set_ylim(-0.04 * highest, 1.12 * highest)
    axes.set_ylabel(ylabel)
    _percent_axis(axes.yaxis)


def _halo() -> Any:
    """Return what keeps letters legible where they lie on a line."""
    from matplotlib.patheffects import withStroke

    return withStroke(linewidth=2.5, foreground="white")


def _tile(axes: Axes, column: int, row: int, share: float, words: str) -> None:
    # never so dark that black letters could not be read on it
    mixed = [a + min(share, 1.0) * (b - a) for a, b in zip(PALE, STRONG, strict=True)]
    axes.add_patch(_square(column, row, facecolor=mixed, linewidth=0))
    axes.text(column, row, words, ha="center", va="center", size=8)


def _outline(axes: Axes, column: int, row: int) -> None:
    axes.add_patch(_square(column, row, inset=0.06, fill=False, edgecolor=FIXED, linewidth=1.8))


def _square(column: int, row: int, inset: float = 0.02, **look: Any) -> Any:
    from matplotlib.patches import Rectangle

    side = 1 - 2 * inset
    return Rectangle((column - 0.5 + inset, row - 0.5 + inset), side, side, **look)


def _grid(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _percent_axis(axis: Any) -> None:
    axis.set_major_formatter(_as_percent)


def _as_percent(share: float, _: int) -> str:
    return f"{100 * share:.4g} %"
