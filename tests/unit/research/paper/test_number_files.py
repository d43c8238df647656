"""CSV and Parquet files of the report: exact numbers in both formats."""

import csv
import math
from pathlib import Path

import pyarrow.parquet as pq

from stopwise.files import write_files
from stopwise.research.paper.report import Row, claim_rows, number_files, table_rows
from tests.browser.sample_report import REGRET, REPORT

ROWS: list[Row] = [
    {"policy": "USS-PD, λI", "regret": 0.1 + 0.2, "round": 1, "mixed": 1},
    {"policy": 'a "b"\nc', "regret": math.nan, "round": 2, "mixed": 0.5},
    {"policy": None, "regret": 1 / 3, "round": None, "mixed": 5e-324},
]


def test_both_formats_keep_numbers_exact(tmp_path: Path) -> None:
    write_files(tmp_path, number_files("a", ROWS) | number_files("none", []))
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["policy"] for row in rows] == ["USS-PD, λI", 'a "b"\nc', ""]
    assert [row["regret"] for row in rows] == [repr(0.1 + 0.2), "nan", repr(1 / 3)]
    assert [row["round"] for row in rows] == ["1", "2", ""]
    assert float(rows[2]["mixed"]) == 5e-324
    table = pq.read_table(tmp_path / "a.parquet")
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types == {"policy": "string", "regret": "double", "round": "int64", "mixed": "double"}
    assert table["regret"].to_pylist()[::2] == [0.1 + 0.2, 1 / 3]
    assert table["round"].to_pylist() == [1, 2, None]
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_tables_have_a_row_per_cell_and_claims_a_row_per_verdict() -> None:
    rows = table_rows(REGRET.tables[0])
    assert len(rows) == 2 * 10
    (mean,) = (row for row in rows if row["line"] == 0 and row["column"] == "instance 3")
    assert mean["label"] == "literal, USS-PD"
    assert (mean["value"], mean["low"], mean["high"], mean["n"]) == (123.456, 122.2, 124.712, 100)
    (plain,) = (row for row in rows if row["line"] == 1 and row["column"] == "instance 1")
    assert (plain["value"], plain["low"], plain["text"]) == (0.0692, None, None)
    assert [row["verdict"] for row in claim_rows(REPORT.sections)] == [
        claim.verdict for section in REPORT.sections for claim in section.claims
    ]
