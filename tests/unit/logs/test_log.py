"""Reading logs: what the numbers are, in all three formats."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.chunk import Chunk
from stopwise.logs.formats import csv as csv_format
from stopwise.logs.log import Columns, Log

FORMATS = ("parquet", "csv", "jsonl")

GROUPS = {"output": "outputs", "cost": "costs"}


def save(path: Path, table: dict[str, list[Any]]) -> Path:
    """Write a table without `LogWriter`: as others would."""
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
                *around, key = name.split(".")
                inner = row
                for group in around:
                    inner = inner.setdefault(GROUPS.get(group, group), {})
                inner[key] = cell
            lines.append(json.dumps(row) + "\n")
        path.write_text("".join(lines))
    return path


def read(path: Path, table: dict[str, list[Any]], columns: Columns | None = None) -> Chunk:
    (chunk,) = Log(save(path, table), columns).chunks()
    return chunk


TRIAGE: dict[str, list[Any]] = {
    "context.age": [0.5, 0.25, 0.75, 1.0, 0.0],
    "context.fever": [1, 0, 0, 1, 1],
    "revealed.nurse.pulse": [7.5, 8.0, 9.0, 6.0, None],
    "output.nurse": ["ill", "well", "well", "ill", None],
    "output.doctor": ["ill", "ill", None, None, None],
    "output.board": ["well", None, None, None, None],
    "stop": ["nurse", "doctor", "nurse", "nurse", None],
    "rule_stop": ["nurse", "nurse", "nurse", "board", "nurse"],
    "failed": [None, None, None, "doctor", "nurse"],
    "label": ["well", None, "well", "dead", "well"],
    "cost.nurse": [1.5, 2.0, None, 1.0, None],
}


def test_a_log_with_everything(path: Path) -> None:
    log = Log(save(path, TRIAGE))
    assert log.arms == ("nurse", "doctor", "board")
    assert log.context == ("age", "fever", "nurse.pulse")
    assert log.sees == (3, 3)
    assert log.has_labels
    assert log.has_costs
    assert log.rows == (5 if path.suffix == ".parquet" else None)
    (chunk,) = log.chunks()
    rounds = chunk.rounds
    assert rounds.contexts.tolist() == [
        [0.5, 1, 7.5],
        [0.25, 0, 8],
        [0.75, 0, 9],
        [1, 1, 6],
        [0, 1, 0],
    ]
    # pairs: nurse–doctor, nurse–board, doctor–board
    assert rounds.differ.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert rounds.answered.tolist() == [3, 2, 1, 1, 0]
    assert rounds.failed.tolist() == [False, False, False, True, True]
    assert rounds.labelled is not None
    assert rounds.labelled.tolist() == [True, False, True, True, False]
    assert rounds.right is not None
    assert rounds.right[0].tolist() == [False, False, True]
    assert rounds.right[2:4, 0].tolist() == [True, False]
    assert chunk.stops.tolist() == [0, 1, 0, 0, -1]
    assert chunk.rule_stop.tolist() == [0, 0, 0, 2, 0]
    answers = [*chunk.codes.T, chunk.labels]
    said = [[chunk.answer(c) if c >= 0 else None for c in column] for column in answers]
    assert said == [*list(TRIAGE.values())[3:6], TRIAGE["label"]]
    assert chunk.costs is not None
    expected = np.full((5, 3), np.nan)
    expected[[0, 1, 3], 0] = 1.5, 2.0, 1.0
    assert np.array_equal(chunk.costs, expected, equal_nan=True)


def test_the_least_a_log_can_be(path: Path) -> None:
    table = {"context.x": [1, 2], "output.a": [0, 1], "output.b": [0, None]}
    log = Log(save(path, table))
    assert not log.has_labels
    assert not log.has_costs
    assert log.sees is None
    (chunk,) = log.chunks()
    assert chunk.rounds.right is None
    assert chunk.rounds.labelled is None
    assert not chunk.labelled.any()
    assert chunk.costs is None
    assert chunk.labels.tolist() == [-1, -1]
    assert chunk.stops.tolist() == chunk.rule_stop.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("a", "b", "differ", "values"),
    [
        ([1, 2, 3], [1, 3, None], [0, 1, 0], None),
        ([-(2**62), 5, 5], [-(2**62), 2**62, None], [0, 1, 0], (-(2**62), 0, 5, 2**62)),
        ([2**62, 2**62 + 1, 0], [2**62 + 1, 2**62 + 1, None], [1, 0, 0], None),  # not as floats
        ([1, 2, 2], [1.0, 2.5, None], [0, 1, 0], (0.0, 1.0, 2.0, 2.5)),
        (["a", "b", "b"], ["a", "ä", None], [0, 1, 0], ("a", "b", "ä")),
    ],
)
def test_outputs_are_compared_as_what_they_are(
    path: Path, a: list[Any], b: list[Any], differ: list[int], values: tuple[Any, ...] | None
) -> None:
    chunk = read(path, {"context.x": [0, 0, 0], "output.a": a, "output.b": b})
    assert chunk.rounds.differ[:, 0].tolist() == differ
    assert chunk.values == values
    assert chunk.codes[2, 1] == -1


def test_stops_may_be_numbers_and_beyond_a_failure(path: Path) -> None:
    table: dict[str, list[Any]] = {
        "context.x": [0, 0, 0],
        "output.a": [1, 1, 1],
        "output.b": [1, 2, None],
        "output.c": [None] * 3,
        "stop": [1, 0, 2],
        "failed": [None, None, 1],
    }
    chunk = read(path, table)
    assert chunk.stops.tolist() == [1, 0, 0]
    assert chunk.rule_stop.tolist() == [1, 0, 2]  # what the rule decided before the arm failed
    assert chunk.rounds.answered.tolist() == [2, 2, 1]  # a deeper arm was run beside it


def test_a_log_is_read_as_often_as_one_likes_but_not_by_nothing(path: Path) -> None:
    log = Log(save(path, TRIAGE))
    seen: list[tuple[str, int, int]] = []
    assert sum(chunk.n for chunk in log.chunks(2, lambda *step: seen.append(step))) == 5
    assert [done for _, done, _ in seen] == [2, 4, 5]
    assert all(
        of == 5 if done == 5 else done < of <= 6 for _, done, of in seen
    )  # a guess, at first
    assert sum(chunk.n for chunk in log.chunks()) == 5
    with pytest.raises(InvalidParameterError, match="size must be a whole number"):
        log.chunks(0)


def test_formats_by_suffix(tmp_path: Path) -> None:
    odd = save(tmp_path / "log.csv", TRIAGE).rename(tmp_path / "log.txt")
    with pytest.raises(
        InvalidParameterError, match=r"unknown format of log.txt.*\.parquet.*ndjson"
    ):
        Log(odd)
    lines = save(tmp_path / "log.jsonl", TRIAGE).rename(tmp_path / "log.NDJSON")
    assert Log(lines).arms == ("nurse", "doctor", "board")


def test_other_parquet_types(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table(
        {
            "context.flag": pa.array([True, False]),
            "context.small": pa.array([1, 2], pa.uint64()),
            "context.half": pa.array([0.5, 1.5], pa.float32()),
            "context.money": pa.array([1, 2], pa.decimal128(5, 2)),
            "output.a": pa.array(["x", "y"]).dictionary_encode(),
            "output.b": pa.array(["y", "y"], pa.large_string()),
            "output.c": pa.array([None, None], pa.null()),
            "when": pa.array([1, 2], pa.timestamp("us")),
        }
    )
    pq.write_table(table, path)
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.contexts.tolist() == [[1, 1, 0.5, 1], [0, 2, 1.5, 2]]
    assert chunk.rounds.differ.tolist() == [[1, 0, 0], [0, 0, 0]]
    (dated,) = Log(path, Columns(context=("when",))).chunks()
    assert dated.rounds.contexts[:, 0] == pytest.approx([0, 1e-6 / 86_400], rel=1e-3, abs=0)
    with pytest.raises(InvalidLogError, match="'when' has the unsupported type timestamp"):
        list(Log(path, Columns(outputs=("output.a", "when"))).chunks())
    large = pa.table({"context.x": [1, 1], "output.a": pa.array([1, 2**63], pa.uint64())})
    pq.write_table(large.append_column("output.b", pa.array([1, 2])), path)
    with pytest.raises(InvalidLogError, match=r"row 2, column 'output.a'.*does not fit in 64 bits"):
        list(Log(path).chunks())


def test_csv_outputs_are_numbers_if_all_of_the_first_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    head = "context.x,output.a,output.b,label\n"
    path.write_text(head + "0,1,1.0,\n0,2,2e0,2\n")
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[0], [0]]
    path.write_text(head + "0,1,1.0,\n0,2,2e0,two\n")  # a label that is no number: all is text
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[1], [1]]
    path.write_text(head + "0,1_0,10,\n")  # what Python alone takes for a number is text
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[1]]

    monkeypatch.setattr(csv_format, "SAMPLE_ROWS", 2)
    path.write_text(head + "0,1,1,\n0,2,2,\n0,2,two,\n")
    message = (
        r"log.csv, row 3 \(line 4\), column 'output.b': mixed types: the text 'two' after outputs "
        "that are numbers"
    )
    for size in (1, 2, 65_536):  # whatever the size of chunks
        with pytest.raises(InvalidLogError, match=message):
            list(Log(path).chunks(size))
    path.write_text(head + "0,one,1,\n0,2,2,\n0,2,two,\n")
    assert list(Log(path).chunks(2))[1].values == ("2", "two")  # as the first rows say
    path.write_text("context.x,output.a,output.b,kind\n0,1,1.0,text\n0,01,1,text\n")
    assert next(Log(path).chunks()).values == ("1", "01", "1.0")  # as the column kind says


def test_csv_as_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    text = '\ufeffcontext.x, output.a, output.b\r\n 0.5, "x" ,x\r\n\r\n1,"a ""b""\nc", y'
    path.write_bytes(text.replace(' "x" ', " x ").encode())
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.contexts.tolist() == [[0.5], [1.0]]
    assert chunk.values == ("x", 'a "b"\nc', "y")
    assert chunk.rounds.differ.tolist() == [[0], [1]]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_csv_with_semicolons_or_tabs(tmp_path: Path, delimiter: str) -> None:
    path = save(tmp_path / "log.csv", TRIAGE)
    (wanted,) = Log(path).chunks()
    path.write_text(path.read_text().replace(",", delimiter))
    (chunk,) = Log(path).chunks()
    assert chunk.codes.tolist() == wanted.codes.tolist()
    assert chunk.rounds.contexts.tolist() == wanted.rounds.contexts.tolist()
    path.write_text("context.x;output.a;output.b\n0,5;1;1\n")
    with pytest.raises(InvalidLogError, match=r"is the text '0,5'; write numbers as 0\.5"):
        list(Log(path).chunks())


def test_json_lines_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"outputs": {"b": 1, "a": 1}, "context": {"x": true}, "label": 1, "note": {"y": []}}\n'
        "\n"
        '{"context": {"x": 2}, "outputs": {"a": 2, "b": 1}, "id": 7}'
    )
    (chunk,) = Log(path).chunks()
    assert Log(path).arms == ("b", "a")  # the order in the first row
    assert chunk.rounds.contexts.tolist() == [[1.0], [2.0]]
    assert chunk.codes.tolist() == [[1, 1], [1, 2]]
    assert chunk.labels.tolist() == [1, -1]
    path.write_text(
        '{"case": {"age": 3}, "said": {"a": "x", "b": "y"}, "context": {"free": 1}}\n'
        '{"case": {"age": 4}, "said": {"a": "x", "b": "x"}, "context": {"form": 1}, "stop": "?"}\n'
    )  # columns that are not used may differ
    (chunk,) = Log(path, Columns(context=("case.age",), outputs=("said.a", "said.b"))).chunks()
    assert chunk.rounds.contexts.tolist() == [[3.0], [4.0]]
    assert chunk.rounds.differ.tolist() == [[1], [0]]


def python(script: str, *words: object, **options: Any) -> str:
    """Run a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )
    return done.stdout


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    script = """
        import sys
        from stopwise.logs.log import Log
        rows = sum(chunk.n for chunk in Log(sys.argv[1]).chunks(10_000))
        # Not getrusage: its peak is that of the parent process too, whose memory was shared.
        status = dict(line.split(":") for line in open("/proc/self/status"))
        print(rows, int(status["VmHWM"].split()[0]) // 1024)
        """
    peaks: list[int] = []
    for n in (20_000, 120_000) if suffix == "csv" else (50_000, 400_000):
        path = tmp_path / f"{n}.{suffix}"
        if suffix == "csv":  # the rows themselves would take over 35 MB
            with path.open("w") as file:
                file.write("context.x,output.a,output.b\n")
                file.writelines(f"{i / n},label {i % 7},label {i % 5}\n" for i in range(n))
        else:  # one row group, of over 50 MB
            random = np.random.default_rng(0)
            columns = {f"context.x{k}": random.random(n) for k in range(16)}
            columns |= {f"output.{arm}": np.ones(n, dtype=np.int8) for arm in "ab"}
            pq.write_table(pa.table(columns), path, row_group_size=n, use_dictionary=False)
        rows, peak = map(int, python(script, path).split())
        assert rows == n
        peaks.append(peak)
    assert peaks[1] < peaks[0] + (20 if suffix == "csv" else 25)


def test_without_pyarrow_only_parquet_is_out_of_reach(tmp_path: Path) -> None:
    for suffix in FORMATS:
        save(tmp_path / f"log.{suffix}", TRIAGE)
    script = """
        import sys
        sys.modules["pyarrow"] = None  # as if it were not installed
        from stopwise.errors import MissingPackageError
        from stopwise.logs.log import Log
        from stopwise.logs.writer import LogWriter
        for suffix in ("csv", "jsonl"):
            assert sum(chunk.n for chunk in Log(f"log.{suffix}").chunks()) == 5
        for make in (Log, lambda path: LogWriter(path, ["a", "b"], overwrite=True)):
            try:
                make("log.parquet")
            except MissingPackageError as error:
                assert "[logs]'" in str(error), error
            else:
                raise AssertionError
        """
    python(script, cwd=tmp_path)
