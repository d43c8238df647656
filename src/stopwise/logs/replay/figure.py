"""The figure of a replay: cost against error or disagreement."""

from typing import Any

from stopwise.errors import MissingPackageError
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.reporting.drawing import MARKS, SERIES, draw, need_matplotlib, panels
from stopwise.reporting.elements import Picture


def png(replay: Replay) -> bytes | None:
    """Draw the figure; None without matplotlib, or if there is nothing to draw."""
    try:
        need_matplotlib("plot")
    except MissingPackageError:
        return None
    if not any(_point(row, replay) for row in (*replay.policies, *replay.fixed)):
        return None
    title = f"Replay of {replay.log}"
    return draw(Picture("replay", title, title, lambda: _figure(replay))).png


def _figure(replay: Replay) -> Any:
    figure = panels(1, 1, width=5.6, height=3.8)
    (axes,) = figure.axes
    fixed = {row.name: point for row in replay.fixed if (point := _point(row, replay))}
    label = "fixed depths" if replay.exact else "fixed depths (each on different rounds)"
    axes.plot(*zip(*fixed.values(), strict=True), "--o", color="0.45", label=label)
    for name, point in fixed.items():
        axes.annotate(name, point, (5, 5), textcoords="offset points", color="0.35")
    for k, row in enumerate(replay.policies):
        if point := _point(row, replay):
            marker, color = MARKS[k % len(MARKS)], SERIES[k % len(SERIES)]
            axes.plot(*point, marker, color=color, markersize=7, label=row.name)
    by_labels = replay.judged_by == "total loss"
    partly = "" if replay.exact else "; each point covers the rounds it can evaluate"
    axes.set(
        xlabel="cost per round",
        ylabel="wrong (%)" if by_labels else f"disagrees with {replay.arms[-1]} (%)",
        title=f"{replay.log}: {replay.rounds:,} rounds{partly}",
    )
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
    axes.margins(x=0.12, y=0.12)
    return figure


def _point(row: CandidateResult, replay: Replay) -> tuple[float, float] | None:
    share = row.error if replay.judged_by == "total loss" else row.disagreement
    if row.cost is None or share is None:
        return None
    return row.cost.value, 100 * share.value
