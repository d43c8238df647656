"""The numbers as files: every digit, in two formats that agree."""

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stopwise.paper.numbers import Row, claim_rows, table_rows, write_numbers
from tests.browser.sample_report import REGRET, REPORT

ROWS: list[Row] = [
    {"policy": "USS-PD, λI", "regret": 0.1 + 0.2, "round": 1, "sure": True, "mixed": 1, "odd": "a"},
    {"policy": 'a "b"\nc', "regret": math.nan, "round": 2, "sure": False, "mixed": 0.5, "odd": 2},
    {"policy": None, "regret": np.float64(1 / 3), "round": None, "mixed": 5e-324, "late": 1},
]


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    write_numbers(ROWS, tmp_path / "a.b")
    with (tmp_path / "a.b.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["policy"] for row in found] == ["USS-PD, λI", 'a "b"\nc', ""]
    assert [float(row["regret"]) for row in found][::2] == [0.1 + 0.2, 1 / 3]
    assert found[1]["regret"] == "nan"
    assert [row["round"] for row in found] == ["1", "2", ""]
    assert float(found[2]["mixed"]) == 5e-324
    assert [row["late"] for row in found] == ["", "", "1"]


def test_parquet_has_a_type_for_every_column(tmp_path: Path) -> None:
    write_numbers(ROWS, tmp_path / "a")
    table = pq.read_table(tmp_path / "a.parquet")
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types == {
        "policy": "string",
        "regret": "double",
        "round": "int64",
        "sure": "bool",
        "mixed": "double",
        "odd": "string",
        "late": "int64",
    }
    assert table["regret"].to_pylist()[::2] == [0.1 + 0.2, 1 / 3]
    assert table["round"].to_pylist() == [1, 2, None]
    assert table["odd"].to_pylist() == ["a", "2", None]


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_numbers(iter(ROWS), tmp_path / name)
    for kind in ("csv", "parquet"):
        one, two = (tmp_path / f"{name}.{kind}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_no_rows_are_no_trouble(tmp_path: Path) -> None:
    write_numbers([], tmp_path / "none")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_a_table_is_taken_apart_cell_by_cell() -> None:
    rows = table_rows(REGRET.tables[0])
    assert len(rows) == 2 * 10
    (mean,) = (row for row in rows if row["line"] == 0 and row["column"] == "instance 3")
    assert mean["label"] == "literal, USS-PD"
    assert (mean["value"], mean["low"], mean["high"], mean["n"]) == (123.456, 122.2, 124.712, 100)
    (plain,) = (row for row in rows if row["line"] == 1 and row["column"] == "instance 1")
    assert (plain["value"], plain["low"], plain["text"]) == (0.0692, None, None)


def test_every_verdict_is_a_row() -> None:
    rows = claim_rows(REPORT.sections)
    assert [row["verdict"] for row in rows] == [
        claim.verdict for section in REPORT.sections for claim in section.claims
    ]


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from stopwise.errors import MissingPackageError\n"
        "from stopwise.paper.numbers import write_numbers\n"
        "try:\n"
        "    write_numbers([{'a': 1}], Path(sys.argv[1]))\n"
        "except MissingPackageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[paper]'" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("heavy", ["pyarrow", "matplotlib"])
def test_importing_the_report_imports_nothing_heavy(heavy: str) -> None:
    script = f"import sys, stopwise.paper.report; print({heavy!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
