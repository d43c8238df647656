"""Tables and pictures of a report."""

from collections.abc import Callable
from typing import Any

import msgspec

from stopwise.reporting.wording import NOTHING, Value


class Table(msgspec.Struct, frozen=True):
    """A table; each of the ``rows`` has a value for each of the ``columns``."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column contains only numbers and is right-aligned."""
        return [
            all(not isinstance(row[k], str) or row[k] == NOTHING for row in self.rows)
            for k in range(len(self.columns))
        ]


class Picture(msgspec.Struct, frozen=True):
    """A figure, drawn on demand; ``alt`` is its text description."""

    name: str
    title: str
    alt: str
    draw: Callable[[], Any]
