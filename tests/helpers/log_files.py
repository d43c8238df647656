"""Log files in each format, written without `LogWriter`."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GROUPS = {"output": "outputs", "cost": "costs"}


def save(path: Path, table: dict[str, list[Any]]) -> Path:
    """Write a table as a log, as other programs would."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path, row_group_size=3)
    elif path.suffix == ".csv":
        rows = zip(*table.values(), strict=True)
        lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
        path.write_text("\n".join([",".join(table), *lines, ""]))
    else:
        lines = []
        for cells in zip(*table.values(), strict=True):
            row: dict[str, Any] = {}
            for name, cell in zip(table, cells, strict=True):
                *groups, key = name.split(".")
                parent = row
                for group in groups:
                    parent = parent.setdefault(GROUPS.get(group, group), {})
                parent[key] = cell
            lines.append(json.dumps(row) + "\n")
        path.write_text("".join(lines))
    return path
