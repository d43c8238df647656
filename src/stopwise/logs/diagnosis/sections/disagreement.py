"""How often arms disagree, and how well that is predicted."""

from collections.abc import Sequence

from stopwise.logs.diagnosis.findings import Diagnosis, GroupDisagreement
from stopwise.logs.diagnosis.sections.panel import (
    BLUE,
    GREY,
    POLICY,
    WIDTH,
    Panel,
    ReportSection,
    label,
    percent_axes,
    reach,
    tabled,
)
from stopwise.logs.diagnosis.words import cell
from stopwise.reporting.drawing import Figure, panels, styled
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import Value, code, percent, plain

COORDINATES = 8  # of the context, in the table of groups: those along which rates vary most
PAIRS = 6  # panels in the picture of reliability: the worst


def disagreement(diagnosis: Diagnosis) -> ReportSection:
    """Who disagrees with whom, and in which groups of contexts."""
    names = [tabled(one.name) for one in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for p in diagnosis.pairs:
        pays = "yes" if p.rate.value >= p.gap else "no"
        rate = cell(p.rate, p.rows, 100)
        rows.append((names[p.first], names[p.second], p.rows, rate, p.gap, pays))
    heads = ("from", "to", "rows", "disagree, %", "cost of the step", "could pay on average")
    found = [Panel(Table("pairs", "How often two arms disagree", heads, tuple(rows)))]
    text = (
        "Disagreement limits what a deeper arm could repair, and it is all that the label-free "
        "rule uses. A step that costs more than the two arms disagree cannot pay on average."
    )
    chosen = vary_most(diagnosis.groups)
    if chosen:
        pair, low, high = _widest(chosen[0][1])
        first, second = diagnosis.pairs[pair].first, diagnosis.pairs[pair].second
        text += (
            f"\n\nDisagreement varies most between {code(diagnosis.arms[first].name)} and "
            f"{code(diagnosis.arms[second].name)}: from {percent(low.rates[pair].value)} where "
            f"{code(chosen[0][0])} is {plain(low.group)} to {percent(high.rates[pair].value)} "
            f"where it is {plain(high.group)}. A column whose groups are alike does not help."
        )
        rows = [
            (
                *(tabled(column), tabled(group.group), group.rows),
                *(round(100 * rate.value, 1) for rate in group.rates),
            )
            for column, members in chosen
            for group in members
        ]
        columns = (f"{names[p.first]} – {names[p.second]}" for p in diagnosis.pairs)
        title = "How often two arms disagree, %, by group of rounds"
        if len(diagnosis.context) > COORDINATES:
            title += f": the {COORDINATES} columns along which it varies most"
        found.append(
            Panel(Table("groups", title, ("column", "group", "rows", *columns), tuple(rows)))
        )
    return ReportSection("disagreement", "Who disagrees with whom, and where", text, tuple(found))


def vary_most(
    groups: Sequence[GroupDisagreement],
) -> list[tuple[str, list[GroupDisagreement]]]:
    """Return the groups of each context column, those along which rates vary most first."""
    found: dict[str, list[GroupDisagreement]] = {}
    for group in groups:
        found.setdefault(group.coordinate, []).append(group)

    def spread(members: list[GroupDisagreement]) -> float:
        pair, low, high = _widest(members)
        return high.rates[pair].value - low.rates[pair].value

    return sorted(found.items(), key=lambda one: -spread(one[1]))[:COORDINATES]


def _widest(
    members: Sequence[GroupDisagreement],
) -> tuple[int, GroupDisagreement, GroupDisagreement]:
    """Return the pair whose rate varies most over the groups, and its least and greatest group."""
    found: list[tuple[int, GroupDisagreement, GroupDisagreement]] = []
    for pair in range(len(members[0].rates)):
        ordered = sorted(members, key=lambda group: group.rates[pair].value)
        found.append((pair, ordered[0], ordered[-1]))
    return max(found, key=lambda f: f[2].rates[f[0]].value - f[1].rates[f[0]].value)


def reliability(diagnosis: Diagnosis) -> ReportSection:
    """Predicted against observed disagreement."""
    names = [tabled(one.name) for one in diagnosis.arms]
    worst = max(diagnosis.reliability, key=lambda r: r.calibration_error)
    found = (
        "Each point is a group of rows with about the same predicted disagreement; on the "
        "diagonal, as many disagreed as predicted. The pair farthest from it is "
        f"{code(diagnosis.arms[worst.first].name)} and {code(diagnosis.arms[worst.second].name)}, "
        f"by {100 * worst.calibration_error:.1f} percentage points on average."
    )
    if len(diagnosis.reliability) > PAIRS:
        found += f" The {PAIRS} worst pairs are drawn."
    rows = tuple(
        (
            f"{names[pair.first]} – {names[pair.second]}",
            *(one.rows, 100 * one.predicted, cell(one.observed, one.rows, 100)),
        )
        for pair in diagnosis.reliability
        for one in pair.bins
    )
    heads = ("pair", "rows", "predicted, %", "observed, %")
    table = Table("reliability", "Predicted and observed disagreement", heads, rows)
    picture = Picture(
        "reliability",
        found,
        f"Predicted against observed disagreement, a panel for each pair. {found}",
        lambda: _draw_reliability(diagnosis),
    )
    return ReportSection(
        "reliability",
        "Whether the predictions can be trusted",
        f"{POLICY} acts on how often arms are *predicted* to disagree in a context. Each "
        "prediction is checked on rounds that it was not fitted on.",
        (Panel(table, picture, wide=len(diagnosis.reliability) > 4),),
    )


@styled
def _draw_reliability(diagnosis: Diagnosis) -> Figure:
    shown = sorted(diagnosis.reliability, key=lambda r: -r.calibration_error)[:PAIRS]
    shown.sort(key=lambda r: (r.first, r.second))
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3
    figure = panels(-(-len(shown) // columns), columns, WIDTH / min(columns, 2), 2.1)
    names = [label(arm.name, 11) for arm in diagnosis.arms]
    for axes, pair in zip(figure.axes, shown, strict=False):
        predicted, observed = [b.predicted for b in pair.bins], [b.observed for b in pair.bins]
        top = max([*predicted, *(o.high for o in observed)]) * 1.08 or 1.0
        axes.plot([0, top], [0, top], color=GREY, linestyle="--")
        heights, bars = [o.value for o in observed], reach(observed)
        axes.errorbar(predicted, heights, yerr=bars, fmt="o-", color=BLUE, capsize=2)
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.locator_params(nbins=4)
        percent_axes(axes.xaxis, axes.yaxis)
        axes.set_title(f"{names[pair.first]} – {names[pair.second]}", size=9)
    for axes in figure.axes[len(shown) :]:
        axes.remove()
    figure.supxlabel("predicted disagreement", size=9)
    figure.supylabel("observed disagreement", size=9)
    return figure
