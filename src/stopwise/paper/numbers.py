"""The numbers behind the report, as files: CSV to look at, Parquet to compute with."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any, TypeAlias

import msgspec

from stopwise.experiments.summary import Interval
from stopwise.paper.section import Section
from stopwise.reporting.parts import Table

Row: TypeAlias = Mapping[str, str | float | int | None]


def number_files(name: str, table: Sequence[Row]) -> dict[str, bytes]:
    r"""Return rows, which have the same columns, as ``name.csv`` and ``name.parquet``.

    The same rows give the same bytes; a missing value is left empty; floats lose no digit.
    """
    text, parquet = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(text, table[0] if table else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    arrow: Any = import_module("pyarrow")  # loaded late: it is slow
    import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(table), parquet)
    return {f"{name}.csv": text.getvalue().encode(), f"{name}.parquet": parquet.getvalue()}


def table_rows(table: Table) -> list[Row]:
    """Return a table of the report with one row for each of its cells.

    ``line`` and ``label`` identify the row of the table, ``label`` being the words it begins with;
    ``column`` names the column. Words are in ``text``; a number is in ``value``, with ``low``,
    ``high`` and ``n`` if it is a mean.
    """
    rows: list[Row] = []
    for line, cells in enumerate(table.rows):
        label = ", ".join(map(str, takewhile(lambda cell: isinstance(cell, str), cells)))
        for column, cell in zip(table.columns, cells, strict=True):
            row: dict[str, Any] = {"line": line, "label": label, "column": column}
            row |= dict.fromkeys(("text", "value", "low", "high", "n"))
            if isinstance(cell, Interval):
                row |= {"value": cell.mean, "low": cell.low, "high": cell.high, "n": cell.n}
            elif isinstance(cell, str):
                row["text"] = cell
            else:
                row["value"] = float(cell)
            rows.append(row)
    return rows


def claim_rows(sections: Iterable[Section]) -> list[Row]:
    """Return a row for every claim and its verdict."""
    return [
        {"section": section.name, "where": section.where, **msgspec.structs.asdict(claim)}
        for section in sections
        for claim in section.claims
    ]
