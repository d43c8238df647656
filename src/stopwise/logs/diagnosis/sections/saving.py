"""What it would save: against the last arm, against every fixed depth, and at other weights."""

import math

import numpy as np

from stopwise.logs.diagnosis.findings import Diagnosis, Estimate, FixedDepthPoint
from stopwise.logs.diagnosis.sections.panel import (
    BLUE,
    DARK,
    ORANGE,
    POLICY,
    WIDTH,
    Panel,
    ReportSection,
    label,
    percent_axes,
    reach,
    tabled,
)
from stopwise.logs.diagnosis.words import cell, percent_between
from stopwise.reporting.drawing import Axes, Figure, legend_below, panels, styled
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import NOTHING, Value, code, listed, number, percent

HEADS = ("what", "cost a round", "saved, %", "differs from the last arm, %", "stops here, %")


def saving(diagnosis: Diagnosis) -> ReportSection:
    """What a round would cost, beside every fixed depth."""
    last, saved = diagnosis.arms[-1], diagnosis.saving
    spent = last.total - saved.per_round.value
    rows: list[tuple[Value, ...]] = []
    for arm, fixed, stop in zip(diagnosis.arms, diagnosis.fixed, diagnosis.stops, strict=True):
        less = 1 - arm.total / last.total if last.total else 0.0
        shares = (less, fixed.disagreement.value, stop.share.value)
        rows.append((f"always {tabled(arm.name)}", arm.total, *_percentages(*shares)))
    if diagnosis.full_depth < diagnosis.rows:
        rows.insert(0, ("as it ran", diagnosis.logged_cost, NOTHING, NOTHING, NOTHING))
    shares = (saved.share.value, saved.disagreement.value)
    rows.insert(0, (POLICY, spent, *_percentages(*shares), NOTHING))
    if saved.per_round.low > 0:
        found = (
            f"A round would cost {number(spent)} on average instead of "
            f"{number(last.total)}: {percent_between(saved.share)} less than always running "
            f"{code(last.name)}."
        )
    else:
        found = (
            f"No saving can be shown: a round would cost {number(spent)} instead of the "
            f"{number(last.total)} of always running {code(last.name)}."
        )
    return ReportSection(
        "saving",
        "Where it would stop, and what that saves",
        f"{found}\n\n{POLICY} stops at the first arm beyond which every step costs more than the "
        "two arms disagree. A deeper arm can repair an answer only by disagreeing with it, so "
        "continuing would not pay. That needs no label.\n\nAll costs are in units of one wrong "
        "answer: a cost of 0.1 a round is worth paying if it prevents one error in ten rounds.",
        (
            Panel(
                Table("saving", "Cost of a round, and where rounds would stop", HEADS, tuple(rows))
            ),
        ),
    )


def _percentages(*shares: float) -> tuple[float, ...]:
    return tuple(round(100 * share, 1) for share in shares)


def frontier(diagnosis: Diagnosis) -> ReportSection:
    """Cost against disagreement, and error where labels show it, as the weight of costs moves."""
    labelled = diagnosis.audit is not None
    rows: list[tuple[Value, ...]] = []
    for point in (*diagnosis.frontier, *diagnosis.fixed):
        if isinstance(point, FixedDepthPoint):
            name = f"always {tabled(diagnosis.arms[point.arm].name)}"
        else:
            name = "costs as given" if point.weight == 1.0 else f"costs × {point.weight:.3g}"
        rows.append((name, point.cost, cell(point.disagreement, diagnosis.used, 100)))
        if point.error is not None:
            rows[-1] += (cell(point.error, diagnosis.labelled, 100),)
    heads = ("what", *HEADS[1:4:2], "wrong, %")[: 4 if labelled else 3]
    differs = _compared(diagnosis, "disagreement")
    found = (
        f"At the same cost, {POLICY} differs from the last arm {listed(differs)}."
        if differs
        else f"At the same cost, {POLICY} agrees with the last arm about as often as a fixed depth."
    )
    wrong = _compared(diagnosis, "error") if labelled else []
    found += f" By the labels it is wrong {listed(wrong)}." if wrong else ""
    picture = Picture(
        "frontier",
        found,
        f"A curve of cost against disagreement with the last arm. {found}",
        lambda: _draw_frontier(diagnosis, labelled),
    )
    return ReportSection(
        "frontier",
        "If costs weighed more, or less",
        f"How much an error costs is a judgement. The curve is {POLICY} with all costs multiplied "
        "by a weight: towards the right errors weigh more, and it goes deeper. The star is where "
        "the given costs put it; the squares are fixed depths. Lower and farther left is better.",
        (Panel(Table("frontier", "The curve and the fixed depths", heads, tuple(rows)), picture),),
    )


def _compared(diagnosis: Diagnosis, what: str) -> list[str]:
    """Describe the fixed depths from which the rule clearly differs at their own cost."""
    costs, heights = zip(
        *sorted((p.cost, getattr(p, what).value) for p in diagnosis.frontier), strict=True
    )
    words: list[str] = []
    for point in diagnosis.fixed[:-1]:
        there: Estimate = getattr(point, what)
        here = float(np.interp(point.cost, costs, heights))
        reachable = costs[0] <= point.cost <= costs[-1]
        if reachable and not there.low <= here <= there.high:
            words.append(
                f"in {percent(here)} of rounds (always {code(diagnosis.arms[point.arm].name)}: "
                f"{percent(there.value)})"
            )
    return words


@styled
def _draw_frontier(diagnosis: Diagnosis, labelled: bool) -> Figure:
    figure = panels(2 if labelled else 1, 1, WIDTH, 2.6)
    kinds = [("disagreement", f"differs from {label(diagnosis.arms[-1].name)}")]
    kinds += [("error", "is wrong, by the labels")] if labelled else []
    for axes, (what, ylabel) in zip(figure.axes, kinds, strict=True):
        _frontier_panel(axes, diagnosis, what, ylabel)
    figure.axes[-1].set_xlabel("cost of a round, in wrong answers")
    legend_below(figure)
    return figure


def _frontier_panel(axes: Axes, diagnosis: Diagnosis, what: str, ylabel: str) -> None:
    points = sorted(diagnosis.frontier, key=lambda p: p.cost)
    costs = [p.cost for p in points]
    heights: list[Estimate] = [getattr(p, what) for p in points]
    fixed: list[Estimate] = [getattr(p, what) for p in diagnosis.fixed]
    low, high = [h.low for h in heights], [h.high for h in heights]
    axes.fill_between(costs, low, high, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(costs, [h.value for h in heights], ".-", color=BLUE, label=POLICY)
    axes.errorbar(
        [p.cost for p in diagnosis.fixed],
        [e.value for e in fixed],
        yerr=reach(fixed),
        fmt="s",
        color=ORANGE,
        markersize=5,
        capsize=2,
        label="a fixed depth",
    )
    now = min(points, key=lambda p: abs(math.log(p.weight)))
    height: Estimate = getattr(now, what)
    star = {"color": DARK, "markersize": 12, "zorder": 6, "label": "costs as given"}
    axes.plot([now.cost], [height.value], "*", **star)
    widest = max(p.cost for p in diagnosis.fixed) or 1.0
    for point, value in zip(diagnosis.fixed, fixed, strict=True):
        right = point.cost > 0.6 * widest
        axes.annotate(
            label(diagnosis.arms[point.arm].name, 14),
            (point.cost, value.value),
            (-7 if right else 7, 5),
            textcoords="offset points",
            ha="right" if right else "left",
        )
    axes.set_xlim(-0.03 * widest, 1.06 * widest)
    highest = max(e.high for e in (*heights, *fixed)) or 1.0
    axes.set_ylim(-0.04 * highest, 1.12 * highest)
    axes.set_ylabel(ylabel)
    percent_axes(axes.yaxis)
