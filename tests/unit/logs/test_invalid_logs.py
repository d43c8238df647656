"""Invalid logs: errors name the file, the row and the column."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stopwise.errors import InvalidLogError
from stopwise.logs.log import Log
from tests.helpers.log_files import save

N = 9  # rows; the sixth is invalid
VALID: dict[str, list[Any]] = {
    "context.x": [0.5] * N,
    "revealed.a.y": [1.5] * N,
    "output.a": [1] * N,
    "output.b": [1, 2, 1] * 3,
    "output.c": [None] * N,
    "stop": ["b"] * N,
    "failed": [None] * N,
    "label": [None, 1, 2] * 3,
    "cost.a": [0.5] * N,
}
NAN, INF = float("nan"), float("inf")


def with_cells(cells: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the valid table with other cells in the sixth row."""
    return {
        name: [*column[:5], cells.get(name, column[5]), *column[6:]]
        for name, column in VALID.items()
    }


def error_of(path: Path, **options: Any) -> str:
    with pytest.raises(InvalidLogError) as caught:
        list(Log(path).chunks(**options))
    return str(caught.value)


CELLS = {
    "NaN context": ({"context.x": NAN}, "context.x", "is nan"),
    "infinite context": ({"context.x": -INF}, "context.x", "is -inf"),
    "missing revealed number": ({"revealed.a.y": None}, "revealed.a.y", "'a' answered"),
    "revealed number of an arm without output": (
        {"output.a": None, "output.b": None, "stop": None, "failed": "a"},
        "revealed.a.y",
        "is 1.5, but 'a' has no output",
    ),
    "gap": ({"output.a": None}, "output.a", "is empty, but 'output.b'"),
    "gap before the last arm": (
        {"output.b": None, "output.c": 1},
        "output.b",
        "is empty, but 'output.c'",
    ),
    "no outputs": (
        {"output.a": None, "output.b": None, "revealed.a.y": None, "stop": None},
        "output.a",
        "fill them in, or if the first arm failed, name it in 'failed'",
    ),
    "NaN output": ({"output.b": NAN}, "output.b", "is nan"),
    "infinite label": ({"label": INF}, "label", "is inf"),
    "unknown stop": (
        {"stop": "z"},
        "stop",
        "is the text 'z', which is not an arm or a number from 0 to 2; choose",
    ),
    "stop out of range": ({"stop": "3"}, "stop", "is the text '3', which is not an arm"),
    "stop too deep": ({"stop": "c"}, "stop", "is 'c', but the last arm with an output is 'b'"),
    "failed arm answered": (
        {"failed": "b"},
        "failed",
        "is 'b', but the failed arm must be the one after the last output .'c'.",
    ),
    "failed arm not reached": (
        {"output.b": None, "stop": "a", "failed": "c"},
        "failed",
        "is 'c', but the failed arm must be the one after the last output .'b'.",
    ),
    "no arm left to fail": ({"output.c": 1, "failed": "c"}, "failed", "output .none."),
    "negative cost": ({"cost.a": -1.0}, "cost.a", "is -1.0"),
}


@pytest.mark.parametrize("case", CELLS)
def test_an_invalid_cell_is_named(path: Path, case: str) -> None:
    cells, column, message = CELLS[case]
    table = with_cells(cells)
    if path.suffix == ".jsonl" and any(v != v or v in (INF, -INF) for v in cells.values()):
        save(path, table)  # Python writes NaN, which is invalid JSON
        error = error_of(path)
        assert error.startswith("log.jsonl, row 6 (line 6): is not JSON")
        assert "NaN is not valid" in error or "Infinity is not valid" in error
        return
    save(path, table)
    line = {".parquet": "", ".csv": r" \(line 7\)", ".jsonl": r" \(line 6\)"}[path.suffix]
    for size in (65_536, 2):
        with pytest.raises(
            InvalidLogError, match=f"^log.*, row 6{line}, column '{column}': .*{message}"
        ):
            list(Log(path).chunks(size))


def test_chunks_before_an_invalid_row_are_yielded(path: Path) -> None:
    chunks = Log(save(path, with_cells({"output.a": None}))).chunks(size=1)
    assert [next(chunks).first for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidLogError, match="row 6"):
        next(chunks)


def test_text_in_a_numeric_context_column_is_rejected(text_path: Path) -> None:
    error = error_of(save(text_path, with_cells({"context.x": "half"})))
    assert "row 6" in error
    assert "column 'context.x': is the text 'half' in a column of numbers; " in error
    assert "leave unknown cells empty" in error


@pytest.mark.parametrize("column", ["stop", "failed"])
def test_bools_are_not_arms(path: Path, column: str) -> None:
    empty = {"stop": [None] * N, "failed": [None] * N}
    save(path, VALID | empty | {column: [None] * 5 + [True] + [None] * 3})
    error = error_of(path)
    assert ", row 6" in error
    assert re.search(f"'{column}': is the (bool|text) '?True'?, which is not an arm", error)


MIXED_TYPES = "mixed types: the text 'one' after outputs that are numbers"


@pytest.mark.parametrize(("column", "kind"), [("output.b", "number"), ("output.a", "text")])
def test_numbers_and_text_in_csv_with_kinds_are_rejected(
    tmp_path: Path, column: str, kind: str
) -> None:
    """Without the column ``kind``, all answers are text if any is."""
    kinds = ["number"] * N
    kinds[5] = kind
    path = save(tmp_path / "log.csv", with_cells({column: "one"}) | {"kind": kinds})
    assert f"row 6 (line 7), column '{column}': {MIXED_TYPES}" in error_of(path)


@pytest.mark.parametrize("size", [65_536, 2])
def test_number_and_text_columns_in_parquet_are_rejected(tmp_path: Path, size: int) -> None:
    texts = [None, None, None, "one", *["two"] * 5]
    path = save(tmp_path / "log.parquet", VALID | {"output.b": texts, "stop": [0] * N})
    assert f"row 4, column 'output.b': {MIXED_TYPES}" in error_of(path, size=size)


@pytest.mark.parametrize("size", [65_536, 5, 1])
@pytest.mark.parametrize("column", ["output.a", "output.b", "label"])
def test_numbers_and_text_in_json_lines_are_rejected(
    tmp_path: Path, column: str, size: int
) -> None:
    path = save(tmp_path / "log.jsonl", with_cells({column: "one"}))
    assert f"row 6 (line 6), column '{column}': {MIXED_TYPES}" in error_of(path, size=size)


def test_a_list_as_output_is_rejected(tmp_path: Path) -> None:
    path = save(tmp_path / "log.jsonl", with_cells({"output.b": [1]}))
    assert "row 6 (line 6), column 'output.b': is a list: '[1]'" in error_of(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_numbers_too_large_to_compare_exactly_are_rejected(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log.{suffix}"
    save(path, with_cells({"output.b": 2**63}))
    error = error_of(path)
    assert "column 'output.b': is 9223372036854775808, which does not fit in 64 bits" in error
    save(path, with_cells({"output.b": 2**53 + 1, "label": 0.5}))
    assert "column 'output.b': is too large to compare exactly with" in error_of(path)
    table = with_cells({"output.b": 2**53 + 1})
    table["output.b"][0] = 0.5
    save(path, table)
    assert "column 'output.b': is 9007199254740993, which is too large to compare" in error_of(path)


def test_the_first_ten_invalid_cells_are_listed_in_order(path: Path) -> None:
    table = {name: [*values, *values] for name, values in VALID.items()}
    table["revealed.a.y"] = [None, *[0.5] * 3, *[None] * 14]
    table["stop"][2] = "x"
    save(path, table)
    first, *listed = error_of(path).split("\n  ")
    assert first == f"{path.name} cannot be read; fix these cells (the first 10 are listed):"
    assert [int(re.findall(r"row (\d+)", line)[0]) for line in listed] == [1, 3, *range(5, 13)]
    assert "column 'stop': is the text 'x', which is not an arm" in listed[1]
    assert all("column 'revealed.a.y': is empty, but 'a' answered" in line for line in listed[2:])


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_unparsable_rows_are_listed(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"log.{suffix}", VALID)
    lines = path.read_bytes().splitlines()
    lines[3], lines[5] = lines[3][: len(lines[3]) // 2], b"{"
    path.write_bytes(b"\n".join(lines))
    error = error_of(path)
    assert error.startswith(f"log.{suffix} cannot be read; fix these cells:\n  row")
    assert "(line 4): " in error
    assert "(line 6): " in error
    lines[3] = lines[4].replace(b"0.5", b"0\xff5", 1)
    path.write_bytes(b"\n".join(lines))
    assert f"log.{suffix}, line 4: not UTF-8 (byte" in error_of(path)


def test_missing_and_empty_files_are_rejected(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=path.name):
        Log(path)
    path.touch()
    assert f"{path.name} is empty" in error_of(path)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [] for name in VALID}), path)
    else:
        path.write_text("\n \n" if path.suffix == ".jsonl" else ",".join(VALID) + "\n\n")
    assert f"{path.name} has no rows" in error_of(path)
    if path.suffix == ".csv":
        path.write_text("\n\n")
        assert f"{path.name} is empty" in error_of(path)
    path.unlink()
    path.mkdir()
    assert f"{path.name} has no rows in 0 Parquet files" in error_of(path)


def test_damaged_parquet_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    columns = {name: [i / 7 for i in range(5_000)] for name in ("context.x", "context.y")}
    columns |= {"output.a": [1] * 5_000, "output.b": [1] * 5_000}
    pq.write_table(pa.table(columns), path, use_dictionary=False)
    content = path.read_bytes()
    damaged = content[:4] + b"\xff" * 56 + content[60:]  # the first page of the first column
    for invalid in (
        content[: len(content) // 2],
        content[:3],
        b"context.x,output.a\n0,1\n",
        damaged,
    ):
        path.write_bytes(invalid)
        assert "log.parquet cannot be read as Parquet" in error_of(path)
    names = ["context.x", "output.a", "output.b", "context.x"]
    pq.write_table(pa.table([pa.array([1])] * 4, names=names), path)
    assert "duplicate columns: 'context.x'" in error_of(path)


HEAD = "context.x,output.a,output.b"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{HEAD}\n0,1,1\n0,1\n", "row 2 (line 3): has 2 cells but the header has 3"),
        ("{HEAD}\n0,1,1\n0,1,1,\n0,1,1\n", "row 2 (line 3): has 4 cells but the header has 3"),
        ('{HEAD}\n0,1,1\n0,1,"1\n0,1,1\n', "row 2 (line 4): unexpected end of data"),
        ("{HEAD}\n0,1,1\n0,1\r,1\n", "row 2 (line 3): "),
        ('context.x,"output.a,output.b\n0,1,1\n', "row 1 (line 2): unexpected end"),
        ("{HEAD},kind\n0,1,1,number\n0,1,1,\n", "'output.a': is in a row of the invalid kind ''"),
        (
            "{HEAD},kind\n0,1,1,number\n0,1,1,txt\n",
            "'output.a': is in a row of the invalid kind 'txt'",
        ),
        ("{HEAD}\n1_000,1,1\n2,1,1\n", "row 1 (line 2), column 'context.x': is the text '1_000'"),
    ],
)
def test_invalid_csv_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content.replace("{HEAD}", HEAD).encode())
    assert message in error_of(path)


SMALL = '{"context": {"x": 1}, "outputs": {"a": 1, "b": 1}}'
LARGE = SMALL[:-1] + ', "revealed": {"a": {"y": 1}}, "costs": {"a": 1}}'


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (SMALL, '{"context": {"x": 1}, "outputs": {"a"', "is not JSON"),
        (SMALL, "[1]", "is a list: '[1]'; each line must be a JSON object"),
        (
            SMALL,
            SMALL.replace(', "b": 1', ""),
            "'outputs' must be an object with the keys 'a', 'b', as",
        ),
        (
            SMALL,
            SMALL.replace('"b": 1', '"b": 1, "c": 1'),
            "'outputs' must be an object with the keys 'a',",
        ),
        (SMALL, SMALL.replace('{"x": 1}', "1"), "'context' must be an object"),
        (SMALL, SMALL[:-1] + ', "label": 1}', "has 'label', but the first row does not"),
        (SMALL, LARGE, "has 'costs', 'revealed', but the first row does not"),
        (
            LARGE,
            LARGE.replace('"y": 1', '"y": 1, "z": 1'),
            "has 'revealed.a.z', but the first row does not",
        ),
        (
            LARGE,
            LARGE.replace('"costs": {"a"', '"costs": {"b"'),
            "has 'costs.b', but the first row does not",
        ),
    ],
)
def test_invalid_json_lines_are_rejected(
    tmp_path: Path, first: str, later: str, message: str
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{first}\n\n{later}\n{first}\n")
    assert error_of(path).startswith(f"log.jsonl, row 2 (line 3): {message}")
    path.write_text(f"{LARGE}\n" + LARGE.replace('"costs": {"a": 1}', '"costs": null'))
    (chunk,) = Log(path).chunks()  # fields of the first row may be missing later
    assert chunk.costs is not None
    assert chunk.costs[0, 0] == 1


def test_outputs_that_are_lists_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(SMALL.replace('"a": 1, "b": 1', '"a": [1], "b": null'))
    message = "is a list: '[1]'; outputs and labels must be text, bools or 64-bit numbers"
    assert f"row 1 (line 1), column 'output.a': {message}" in error_of(path)


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ("0.10", "0.1", 0),
        ("9007199254740993", "9007199254740992", 1),  # equal as floats
        ("0.1", "0.10000000000000000001", None),
    ],
)
def test_decimals_are_compared_exactly(tmp_path: Path, a: str, b: str, differ: int | None) -> None:
    path = tmp_path / "log.parquet"
    columns = {
        "context.x": pa.array([Decimal("0.25")] * 2, pa.decimal128(20, 17)),
        "output.a": pa.array([Decimal(a), Decimal(a)], pa.decimal128(30, 2)),
        "output.b": pa.array([Decimal(b), None], pa.decimal256(50, 20)),
    }
    pq.write_table(pa.table(columns), path)
    if differ is None:
        assert "row 1, column 'output.b': is a Decimal: '0.10000000000000000001'" in error_of(path)
        return
    chunk = next(Log(path).chunks())
    assert chunk.rounds.differ.tolist() == [[differ], [0]]
    assert chunk.rounds.answered.tolist() == [2, 1]
    assert chunk.rounds.contexts.tolist() == [[0.25], [0.25]]
