"""Logs that cannot be read: the error names the file, the row and the column."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stopwise.errors import InvalidLogError
from stopwise.logs.log import Log
from tests.unit.logs.test_log import save

N = 9  # rows; the bad one is the sixth
GOOD: dict[str, list[Any]] = {
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


def with_bad(cells: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [*v[:5], cells.get(name, v[5]), *v[6:]] for name, v in GOOD.items()}


def complaint(path: Path, **chunks: Any) -> str:
    with pytest.raises(InvalidLogError) as caught:
        list(Log(path).chunks(**chunks))
    return str(caught.value)


CELLS = {
    "NaN context": ({"context.x": NAN}, "context.x", "is nan"),
    "infinite context": ({"context.x": -INF}, "context.x", "is -inf"),
    "nothing revealed": ({"revealed.a.y": None}, "revealed.a.y", "'a' answered"),
    "revealed by nobody": (
        {"output.a": None, "output.b": None, "stop": None, "failed": "a"},
        "revealed.a.y",
        "is 1.5, but 'a' has no output",
    ),
    "hole": ({"output.a": None}, "output.a", "is empty, but 'output.b'"),
    "deep hole": ({"output.b": None, "output.c": 1}, "output.b", "is empty, but 'output.c'"),
    "no outputs": (
        {"output.a": None, "output.b": None, "revealed.a.y": None, "stop": None},
        "output.a",
        "fill in the outputs, or name the first arm in 'failed'",
    ),
    "NaN output": ({"output.b": NAN}, "output.b", "is nan"),
    "infinite label": ({"label": INF}, "label", "is inf"),
    "unknown stop": (
        {"stop": "z"},
        "stop",
        "is the text 'z', which is not an arm or a number from 0 to 2; choose",
    ),
    "stop beyond the arms": ({"stop": "3"}, "stop", "is the text '3', which is not an arm"),
    "stop too deep": ({"stop": "c"}, "stop", "is 'c', but the last arm with an output is 'b'"),
    "failed arm answered": (
        {"failed": "b"},
        "failed",
        "is 'b', but the arm after the last output is 'c'",
    ),
    "failed arm not reached": (
        {"output.b": None, "stop": "a", "failed": "c"},
        "failed",
        "is 'c', but the arm after the last output is 'b'",
    ),
    "nobody left to fail": ({"output.c": 1, "failed": "c"}, "failed", "is none"),
    "negative cost": ({"cost.a": -1.0}, "cost.a", "is -1.0"),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_bad_cell(path: Path, case: str) -> None:
    cells, column, words = CELLS[case]
    table = with_bad(cells)
    if path.suffix == ".jsonl" and any(v != v or v in (INF, -INF) for v in cells.values()):
        save(path, table)  # Python writes NaN, which is no JSON: the line is named
        said = complaint(path)
        assert said.startswith("log.jsonl, row 6 (line 6): is not JSON")
        assert "NaN is not valid" in said or "Infinity is not valid" in said
        return
    save(path, table)
    line = {".parquet": "", ".csv": r" \(line 7\)", ".jsonl": r" \(line 6\)"}[path.suffix]
    for size in (65_536, 2):
        with pytest.raises(
            InvalidLogError, match=f"^log.*, row 6{line}, column '{column}': .*{words}"
        ):
            list(Log(path).chunks(size))


def test_rows_before_the_bad_one_are_read(path: Path) -> None:
    chunks = Log(save(path, with_bad({"output.a": None}))).chunks(size=1)
    assert [next(chunks).first for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidLogError, match="row 6"):
        next(chunks)


def test_text_where_a_number_must_be(lines: Path) -> None:
    words = complaint(save(lines, with_bad({"context.x": "half"})))
    assert "row 6" in words
    assert "column 'context.x': is the text 'half' in a column of numbers; " in words
    assert "leave the cell empty if unknown" in words


def test_a_bool_names_no_arm(path: Path) -> None:
    for column in ("stop", "failed"):
        nobody = {"stop": [None] * N, "failed": [None] * N}
        save(path, GOOD | nobody | {column: [None] * 5 + [True] + [None] * 3})
        said = complaint(path)
        assert ", row 6" in said
        assert re.search(f"'{column}': is the (bool|text) '?True'?, which is not an arm", said)


def test_mixed_types(path: Path) -> None:
    words = "mixed types: the text 'one' after outputs that are numbers"
    if path.suffix == ".csv":  # which is all text where anything is: see the column kind
        kinds = ["number"] * N
        save(path, with_bad({"output.b": "one"}) | {"kind": kinds})
        assert f"row 6 (line 7), column 'output.b': {words}" in complaint(path)
        kinds[5] = "text"
        save(path, with_bad({"output.a": "one"}) | {"kind": kinds})
        assert f"row 6 (line 7), column 'output.a': {words}" in complaint(path)
        return
    if path.suffix == ".parquet":
        save(path, GOOD | {"output.b": [None, None, None, "one", *["two"] * 5], "stop": [0] * N})
        assert f"row 4, column 'output.b': {words}" in complaint(path)
        assert f"row 4, column 'output.b': {words}" in complaint(path, size=2)
        return
    for column in ("output.a", "output.b", "label"):
        save(path, with_bad({column: "one"}))
        for size in (65_536, 5, 1):
            assert f"row 6 (line 6), column '{column}': {words}" in complaint(path, size=size)
    save(path, with_bad({"output.b": [1]}))
    assert "row 6 (line 6), column 'output.b': is a list: '[1]'" in complaint(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_numbers_that_are_too_large(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log.{suffix}"
    save(path, with_bad({"output.b": 2**63}))
    assert "column 'output.b': is 9223372036854775808, which does not fit in 64 bits" in complaint(
        path
    )
    save(path, with_bad({"output.b": 2**53 + 1, "label": 0.5}))
    assert "column 'output.b': is too large to compare exactly with" in complaint(path)
    table = with_bad({"output.b": 2**53 + 1})
    table["output.b"][0] = 0.5
    save(path, table)
    assert "column 'output.b': is 9007199254740993, which is too large to compare" in complaint(
        path
    )


def test_the_first_ten_wrong_cells_are_listed_in_order(path: Path) -> None:
    table = {name: [*values, *values] for name, values in GOOD.items()}
    table["revealed.a.y"] = [None, *[0.5] * 3, *[None] * 14]
    table["stop"][2] = "nobody"
    save(path, table)
    first, *listed = complaint(path).split("\n  ")
    assert first == f"{path.name} cannot be read; fix these cells (the first 10 are listed):"
    assert [int(re.findall(r"row (\d+)", line)[0]) for line in listed] == [1, 3, *range(5, 13)]
    assert "column 'stop': is the text 'nobody', which is not an arm" in listed[1]
    assert all("column 'revealed.a.y': is empty, but 'a' answered" in x for x in listed[2:])


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_rows_that_cannot_be_parsed_are_listed(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path / f"log.{suffix}", GOOD)
    lines = path.read_bytes().splitlines()
    lines[3], lines[5] = lines[3][: len(lines[3]) // 2], b"{"
    path.write_bytes(b"\n".join(lines))
    words = complaint(path)
    assert words.startswith(f"log.{suffix} cannot be read; fix these cells:\n  row")
    assert "(line 4): " in words
    assert "(line 6): " in words
    lines[3] = lines[4].replace(b"0.5", b"0\xff5", 1)
    path.write_bytes(b"\n".join(lines))
    assert f"log.{suffix}, line 4: not UTF-8 (byte" in complaint(path)


def test_no_file_a_folder_and_files_without_rows(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=path.name):
        Log(path)
    path.touch()
    assert f"{path.name} is empty" in complaint(path)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [] for name in GOOD}), path)
    else:
        path.write_text("\n \n" if path.suffix == ".jsonl" else ",".join(GOOD) + "\n\n")
    assert f"{path.name} has no rows" in complaint(path)
    if path.suffix == ".csv":
        path.write_text("\n\n")
        assert f"{path.name} is empty" in complaint(path)
    path.unlink()
    path.mkdir()
    assert f"{path.name} has no rows in 0 Parquet files" in complaint(path)


def test_parquet_files_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    columns = {name: [i / 7 for i in range(5_000)] for name in ("context.x", "context.y")}
    columns |= {"output.a": [1] * 5_000, "output.b": [1] * 5_000}
    pq.write_table(pa.table(columns), path, use_dictionary=False)
    content = path.read_bytes()
    damaged = content[:4] + b"\xff" * 56 + content[60:]  # the first page of the first column
    for bad in (content[: len(content) // 2], content[:3], b"context.x,output.a\n0,1\n", damaged):
        path.write_bytes(bad)
        assert "log.parquet cannot be read as Parquet" in complaint(path)
    names = ["context.x", "output.a", "output.b", "context.x"]
    pq.write_table(pa.table([pa.array([1])] * 4, names=names), path)
    assert "duplicate columns: 'context.x'" in complaint(path)


HEAD = "context.x,output.a,output.b"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{HEAD}\n0,1,1\n0,1\n", "row 2 (line 3): has 2 cells but the header has 3"),
        ("{HEAD}\n0,1,1\n0,1,1,\n0,1,1\n", "row 2 (line 3): has 4 cells but the header has 3"),
        ('{HEAD}\n0,1,1\n0,1,"1\n0,1,1\n', "row 2 (line 4): unexpected end of data"),
        ("{HEAD}\n0,1,1\n0,1\r,1\n", "row 2 (line 3): "),
        ('context.x,"output.a,output.b\n0,1,1\n', "row 1 (line 2): unexpected end"),
        ("{HEAD},kind\n0,1,1,number\n0,1,1,\n", "'output.a': is in a row of kind ''"),
        ("{HEAD},kind\n0,1,1,number\n0,1,1,txt\n", "'output.a': is in a row of kind 'txt'"),
        ("{HEAD}\n1_000,1,1\n2,1,1\n", "row 1 (line 2), column 'context.x': is the text '1_000'"),
    ],
)
def test_broken_csv(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content.replace("{HEAD}", HEAD).encode())
    assert words in complaint(path)


LINE = '{"context": {"x": 1}, "outputs": {"a": 1, "b": 1}}'
MORE = LINE[:-1] + ', "revealed": {"a": {"y": 1}}, "costs": {"a": 1}}'


@pytest.mark.parametrize(
    ("first", "line", "words"),
    [
        (LINE, '{"context": {"x": 1}, "outputs": {"a"', "is not JSON"),
        (LINE, "[1]", "is a list: '[1]'; each line must be a JSON object"),
        (LINE, LINE.replace(', "b": 1', ""), "'outputs' must be an object with 'a', 'b', as in"),
        (LINE, LINE.replace('"b": 1', '"b": 1, "c": 1'), "'outputs' must be an object with 'a',"),
        (LINE, LINE.replace('{"x": 1}', "1"), "'context' must be an object"),
        (LINE, LINE[:-1] + ', "label": 1}', "has 'label', which is missing in the first row"),
        (LINE, MORE, "has 'costs', 'revealed', which is missing"),
        (MORE, MORE.replace('"y": 1', '"y": 1, "z": 1'), "has 'revealed.a.z', which is missing"),
        (MORE, MORE.replace('"costs": {"a"', '"costs": {"b"'), "has 'costs.b', which is missing"),
    ],
)
def test_broken_json_lines(tmp_path: Path, first: str, line: str, words: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{first}\n\n{line}\n{first}\n")
    assert complaint(path).startswith(f"log.jsonl, row 2 (line 3): {words}")
    path.write_text(f"{MORE}\n" + MORE.replace('"costs": {"a": 1}', '"costs": null'))
    (chunk,) = Log(path).chunks()  # what the first row has may be missing
    assert chunk.costs is not None
    assert chunk.costs[0, 0] == 1


def test_nothing_but_what_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(LINE.replace('"a": 1, "b": 1', '"a": [1], "b": null'))
    words = "is a list: '[1]'; outputs and labels must be text, bools or 64-bit numbers"
    assert f"row 1 (line 1), column 'output.a': {words}" in complaint(path)


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ("0.10", "0.1", 0),
        ("9007199254740993", "9007199254740992", 1),  # one float
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
        assert "row 1, column 'output.b': is a Decimal: '0.10000000000000000001'" in complaint(path)
        return
    chunk = next(Log(path).chunks())
    assert chunk.rounds.differ.tolist() == [[differ], [0]]
    assert chunk.rounds.answered.tolist() == [2, 1]
    assert chunk.rounds.contexts.tolist() == [[0.25], [0.25]]
