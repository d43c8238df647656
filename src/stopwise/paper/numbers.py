"""The numbers behind the report, as files: CSV to look at, Parquet to compute with."""

import csv
import io
from collections.abc import Iterable, Mapping
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

from stopwise.errors import missing_package
from stopwise.experiments.summary import Interval
from stopwise.paper.section import Section
from stopwise.reporting.files import write_file
from stopwise.reporting.parts import Table
from stopwise.reporting.wording import Value

Cell: TypeAlias = str | float | int | bool | None
Row: TypeAlias = Mapping[str, Cell]


def write_numbers(rows: Iterable[Row], path: Path) -> None:
    r"""Write rows as ``path.csv`` and ``path.parquet``; the same rows give the same bytes.

    Parameters
    ----------
    rows : iterable of dict
        Columns come in the order in which they are first met; a missing value is left empty.
        Floats lose no digit.
    path : Path
        Without the suffix.

    Raises
    ------
    MissingPackageError
        If pyarrow is not installed; nothing is written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_numbers([{"policy": "uss-pd", "regret": 0.1}], Path(folder, "regret"))
    ...     Path(folder, "regret.csv").read_text()
    'policy,regret\nuss-pd,0.1\n'
    """
    table = list(rows)
    columns = list(dict.fromkeys(name for row in table for name in row))
    parquet = _parquet(table, columns)
    write_file(path.with_name(path.name + ".csv"), _csv(table, columns))
    write_file(path.with_name(path.name + ".parquet"), parquet)


def table_rows(table: Table) -> list[dict[str, Cell]]:
    """Return a table of the report with one row for each of its cells.

    ``line`` and ``label`` say which row of the table, ``label`` being the words it begins with;
    ``column`` says which column. Words are in ``text``; a number is in ``value``, with ``low``,
    ``high`` and ``n`` if it is a mean.

    Examples
    --------
    >>> table_rows(Table("t", "T", ("case", "ξ"), (("first", 0.5),)))[1]["value"]
    0.5
    """
    rows: list[dict[str, Cell]] = []
    for line, cells in enumerate(table.rows):
        label = ", ".join(map(str, takewhile(_is_word, cells)))
        for column, cell in zip(table.columns, cells, strict=True):
            row: dict[str, Cell] = {"line": line, "label": label, "column": column}
            row |= dict.fromkeys(("text", "value", "low", "high", "n"))
            if isinstance(cell, Interval):
                row |= {"value": cell.mean, "low": cell.low, "high": cell.high, "n": cell.n}
            elif isinstance(cell, str):
                row["text"] = cell
            else:
                row["value"] = float(cell)
            rows.append(row)
    return rows


def claim_rows(sections: Iterable[Section]) -> list[dict[str, Cell]]:
    """Return a row for every claim and what became of it.

    Examples
    --------
    >>> claim_rows([])
    []
    """
    return [
        {
            "section": section.name,
            "claim": claim.text,
            "where": claim.where,
            "setting": claim.setting,
            "verdict": claim.verdict,
            "numbers": claim.numbers,
            "why": claim.why,
        }
        for section in sections
        for claim in section.claims
    ]


def _is_word(value: Value) -> bool:
    return isinstance(value, str)


def _csv(rows: list[Row], columns: list[str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(row.get(name)) for name in columns] for row in rows)
    return text.getvalue().encode()


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return repr(float(cell))  # numpy's own floats would be written with their type
    return str(cell)


def _parquet(rows: list[Row], columns: list[str]) -> bytes:
    arrow = _arrow("pyarrow")
    arrays = [_column(arrow, [row.get(name) for row in rows]) for name in columns]
    sink: Any = io.BytesIO()
    _arrow("pyarrow.parquet").write_table(arrow.table(arrays, names=columns), sink)
    return sink.getvalue()


def _column(arrow: Any, cells: list[Cell]) -> Any:
    """Give a column the narrowest type that holds every cell of it."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if all(issubclass(kind, bool) for kind in kinds) and kinds:
        return arrow.array(cells, arrow.bool_())
    if all(issubclass(kind, int) and kind is not bool for kind in kinds) and kinds:
        return arrow.array(cells, arrow.int64())
    if all(issubclass(kind, int | float) and kind is not bool for kind in kinds) and kinds:
        numbers = [None if cell is None else float(cell) for cell in cells]
        return arrow.array(numbers, arrow.float64())
    return arrow.array([None if cell is None else _plain(cell) for cell in cells], arrow.string())


def _arrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package("writing Parquet", "pyarrow", "paper") from error
