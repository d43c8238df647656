"""What a report is made of: tables and pictures, as plain values."""

from collections.abc import Callable
from typing import Any

import msgspec

from stopwise.reporting.wording import NOTHING, Value


class Table(msgspec.Struct, frozen=True):
    """A table of the report; ``rows`` have a value for each of ``columns``."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers only, to be set flush right."""
        return [
            all(not isinstance(row[k], str) or row[k] == NOTHING for row in self.rows)
            for k in range(len(self.columns))
        ]


class Picture(msgspec.Struct, frozen=True):
    """A figure of the report, drawn when it is needed; ``alt`` describes it in words."""

    name: str
    title: str
    alt: str
    draw: Callable[[], Any]
