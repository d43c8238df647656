"""The figure of a replay: cost against error or disagreement."""

from typing import Any

from stopwise.errors import MissingPackageError
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.reporting.drawing import MARKS, SERIES, draw, need_matplotlib, panels
from stopwise.reporting.elements import Picture


def png(found: Replay) -> bytes | None:
    """Draw it, if matplotlib is installed and there is anything to draw."""
    try:
        need_matplotlib("plot")
    except MissingPackageError:
        return None
    if not any(_point(one, found) for one in (*found.policies, *found.fixed)):
        return None
    title = f"Replay of {found.log}"
    return draw(Picture("replay", title, title, lambda: _figure(found))).png


def _figure(found: Replay) -> Any:
    figure = panels(1, 1, width=5.6, height=3.8)
    (axes,) = figure.axes
    fixed = {one.name: point for one in found.fixed if (point := _point(one, found))}
    label = "fixed depths" if found.exact else "fixed depths (of other rounds each)"
    axes.plot(*zip(*fixed.values(), strict=True), "--o", color="0.45", label=label)
    for name, point in fixed.items():
        axes.annotate(name, point, (5, 5), textcoords="offset points", color="0.35")
    for k, one in enumerate(found.policies):
        if point := _point(one, found):
            mark, color = MARKS[k % len(MARKS)], SERIES[k % len(SERIES)]
            axes.plot(*point, mark, color=color, markersize=7, label=one.name)
    by_labels = found.judged_by == "total loss"
    partly = "" if found.exact else "; each point shows those it can evaluate"
    axes.set(
        xlabel="cost a round",
        ylabel="wrong (%)" if by_labels else f"disagrees with {found.arms[-1]} (%)",
        title=f"{found.log}: {found.rounds:,} rounds{partly}",
    )
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
    axes.margins(x=0.12, y=0.12)
    return figure


def _point(one: CandidateResult, found: Replay) -> tuple[float, float] | None:
    missed = one.error if found.judged_by == "total loss" else one.disagreement
    if one.cost is None or missed is None:
        return None
    return one.cost.value, 100 * missed.value
