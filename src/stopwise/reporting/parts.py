"""What a report is made of: tables and pictures, as plain values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from stopwise.experiments.summary import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
else:
    Drawing = object

Value: TypeAlias = str | float | int | Interval


class Table(msgspec.Struct, frozen=True):
    """A table of the report; ``rows`` have a value for each of ``columns``."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""


class Picture(msgspec.Struct, frozen=True):
    """A figure of the report, drawn when it is needed.

    ``alt`` says in words what it shows, for those who cannot see it.
    """

    name: str
    title: str
    alt: str
    draw: "Callable[[], Drawing]"
