"""What sections are made of, and how their figures write names and intervals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stopwise.logs.diagnosis.findings import Estimate
from stopwise.reporting.drawing import SERIES
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import code, short

WIDTH = 4.2  # inches: letters stay legible where a phone is as wide as the figure
POLICY = "Stopwise"  # what the report calls the rule: an arm may be called "rule"
BLUE, ORANGE, GREY, DARK = SERIES[0], SERIES[1], "#9aa5ad", "#08304d"


class Panel(NamedTuple):
    """A table, and the picture of it where there is one; whether that is too wide for a phone."""

    table: Table
    picture: Picture | None = None
    wide: bool = False


class ReportSection(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...] = ()


def tabled(name: str) -> str:
    """Return a name for a table."""
    return code(name, 80)


def label(name: str, longest: int = 18) -> str:
    """Return a name for a figure: cut, and never taken for a formula."""
    return short(name, longest).replace("\\", "/").replace("$", r"\$") or "?"


def reach(values: Sequence[Estimate]) -> list[list[float]]:
    """Return intervals as matplotlib takes error bars."""
    # a bounded interval may end before its estimate by rounding; a bar cannot be negative
    return [
        [max(0.0, v.value - v.low) for v in values],
        [max(0.0, v.high - v.value) for v in values],
    ]


def percent_axes(*axes: Any) -> None:
    """Label axes in per cent."""
    for axis in axes:
        axis.set_major_formatter(_percent)


def _percent(share: float, _: int) -> str:
    return f"{100 * share:.4g} %"
