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
from stopwise.logs.columns import Columns
from stopwise.logs.formats import csv as csv_format
from stopwise.logs.log import Log

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


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log.{request.param}"


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
    assert rounds.reach.tolist() == [2, 1, 0, 0, -1]
    assert rounds.failed.tolist() == [False, False, False, True, True]
    assert rounds.wrong is not None
    assert rounds.wrong.tolist() == [[1, 1, 0], [2, 2, 2], [0, 2, 2], [1, 2, 2], [2, 2, 2]]
    assert chunk.stops.tolist() == [0, 1, 0, 0, -1]
    assert chunk.rule_stop.tolist() == [0, 0, 0, 2, 0]
    assert chunk.values is not None
    said = [[chunk.values[c] if c >= 0 else None for c in row] for row in chunk.codes]
    assert said == [list(row) for row in zip(*list(TRIAGE.values())[3:6], strict=True)]
    labels = [chunk.values[c] if c >= 0 else None for c in chunk.labels]
    assert labels == TRIAGE["label"]
    assert chunk.costs is not None
    assert np.isnan(chunk.costs[:, 1:]).all()
    assert chunk.costs[:2, 0].tolist() == [1.5, 2.0]
    assert np.isnan(chunk.costs[2, 0])


def test_types_are_those_of_the_kernels(path: Path) -> None:
    chunk = read(path, TRIAGE)
    rounds = chunk.rounds
    assert rounds.wrong is not None
    assert [
        array.dtype.name
        for array in (rounds.contexts, rounds.differ, rounds.reach, rounds.failed, rounds.wrong)
    ] == ["float64", "uint8", "int64", "bool", "uint8"]
    for array in (chunk.codes, chunk.labels, chunk.stops, chunk.rule_stop):
        assert array.dtype == np.int64
    for array in (rounds.contexts, rounds.differ, chunk.codes):
        assert array.flags.c_contiguous


def test_the_least_a_log_can_be(path: Path) -> None:
    table = {"context.x": [1, 2], "output.a": [0, 1], "output.b": [0, None]}
    log = Log(save(path, table))
    assert not log.has_labels
    assert not log.has_costs
    assert log.sees is None
    (chunk,) = log.chunks()
    assert chunk.rounds.wrong is None
    assert chunk.costs is None
    assert chunk.labels.tolist() == [-1, -1]
    assert chunk.stops.tolist() == chunk.rule_stop.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("a", "b", "differ", "values"),
    [
        ([1, 2, 3], [1, 3, None], [0, 1, 0], None),
        ([-1, 1, 1], [1, 1, None], [1, 0, 0], (-1, 0, 1)),
        ([-(2**62), 5, 5], [-(2**62), 2**62, None], [0, 1, 0], (-(2**62), 0, 5, 2**62)),
        ([2**62, 2**62 + 1, 0], [2**62 + 1, 2**62 + 1, None], [1, 0, 0], None),  # not as floats
        ([0.5, 1.5, 1.5], [0.5, 0.5, None], [0, 1, 0], (0.0, 0.5, 1.5)),
        ([1, 2, 2], [1.0, 2.5, None], [0, 1, 0], (0.0, 1.0, 2.0, 2.5)),
        ([1, 2, 2], [1.0, 3.0, None], [0, 1, 0], None),
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


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])  # in CSV an empty cell is null
def test_empty_text_is_an_answer(tmp_path: Path, suffix: str) -> None:
    table = {"context.x": [0, 0], "output.a": ["", "a"], "output.b": ["", ""]}
    chunk = read(tmp_path / f"log.{suffix}", table)
    assert chunk.rounds.differ[:, 0].tolist() == [0, 1]
    assert chunk.rounds.reach.tolist() == [1, 1]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_bools_are_compared_with_numbers_as_python_does(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log.{suffix}"
    table: dict[str, list[Any]] = {
        "context.x": [0, 0],
        "output.a": [True, False],
        "output.b": [True, True],
    }
    chunk = read(path, table)
    assert chunk.values == (False, True)
    assert chunk.rounds.differ[:, 0].tolist() == [0, 1]
    chunk = read(path, table | {"output.b": [1, 2]})
    assert chunk.values is None
    assert chunk.codes.tolist() == [[1, 1], [0, 2]]


def test_stops_may_be_numbers(path: Path) -> None:
    table = {"context.x": [0, 0], "output.a": [1, 1], "output.b": [1, 2], "stop": [1, 0]}
    chunk = read(path, table)
    assert chunk.stops.tolist() == [1, 0]
    assert chunk.rounds.reach.tolist() == [1, 1]  # the deeper arm was run beside it


def test_a_stop_beyond_a_failure_was_wanted(path: Path) -> None:
    table = {
        "context.x": [0.5],
        "output.a": [1],
        "output.b": [None],
        "output.c": [None],
        "stop": ["c"],
        "failed": ["b"],
    }
    chunk = read(path, table)
    assert (chunk.stops[0], chunk.rule_stop[0], chunk.rounds.reach[0]) == (0, 2, 0)


def test_own_columns(path: Path) -> None:
    table = {"age": [1, 2], "small": ["x", "y"], "large": ["x", "x"], "truth": ["x", "x"]}
    columns = Columns(context=("age",), outputs=("small", "large"), label="truth")
    log = Log(save(path, table), columns)
    assert log.arms == ("small", "large")
    (chunk,) = log.chunks()
    assert chunk.rounds.differ[:, 0].tolist() == [0, 1]
    assert chunk.rounds.wrong is not None
    assert chunk.rounds.wrong.tolist() == [[0, 0], [1, 0]]


def test_chunks_are_the_log_in_order(path: Path) -> None:
    n = 10
    table = {
        "context.x": list(range(n)),
        "output.a": [f"w{i % 3}" for i in range(n)],
        "output.b": [f"w{i % 2}" for i in range(n)],
    }
    log = Log(save(path, table))
    chunks = list(log.chunks(size=4))
    assert [chunk.first for chunk in chunks] == list(np.cumsum([0, *(c.n for c in chunks)]))[:-1]
    assert max(chunk.n for chunk in chunks) <= 4
    assert np.concatenate([c.rounds.contexts[:, 0] for c in chunks]).tolist() == list(range(n))
    differ = np.concatenate([c.rounds.differ[:, 0] for c in chunks])
    assert differ.tolist() == [int(i % 3 != i % 2) for i in range(n)]
    assert [c.n for c in log.chunks()] == [n]  # again, from the start


def test_formats_by_suffix_or_by_name(tmp_path: Path) -> None:
    odd = save(tmp_path / "log.csv", TRIAGE).rename(tmp_path / "log.txt")
    with pytest.raises(InvalidParameterError, match=r"log.txt.*\.parquet.*format="):
        Log(odd)
    with pytest.raises(InvalidParameterError, match="'tsv'"):
        Log(odd, format="tsv")
    assert Log(odd, format="csv").arms == ("nurse", "doctor", "board")
    lines = save(tmp_path / "log.jsonl", TRIAGE).rename(tmp_path / "log.NDJSON")
    assert Log(lines).arms == ("nurse", "doctor", "board")


def test_other_parquet_types(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table(
        {
            "context.flag": pa.array([True, False]),
            "context.small": pa.array([1, 2], pa.uint8()),
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
    with pytest.raises(InvalidLogError, match="'when' is of type timestamp"):
        list(Log(path, Columns(context=("when",))).chunks())


def test_parquet_integers_of_every_width(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64()):
        columns: dict[str, Any] = {
            "context.x": pa.array([1.0] * 3),
            "output.a": pa.array([1, 1, 1], kind),
            "output.b": pa.array([1, 2, None], kind),
        }
        (chunk,) = Log(save_table(path, columns)).chunks()
        assert chunk.codes.tolist() == [[1, 1], [1, 2], [1, -1]]
    columns = {
        "context.x": pa.array([1.0] * 3),
        "output.a": pa.array([1, 2**63, 1], pa.uint64()),
        "output.b": pa.array([1, 2, None]),
    }
    with pytest.raises(InvalidLogError, match=r"row 2, column 'output.a'.*63 bits"):
        list(Log(save_table(path, columns)).chunks())


def save_table(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


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

    monkeypatch.setattr(csv_format, "LOOKED_AT", 2)
    path.write_text(head + "0,1,1,\n0,2,2,\n0,2,two,\n")
    words = r"log.csv, row 3 \(line 4\), column 'output.b': mixed types: is the text 'two'.*numbers"
    for size in (1, 2, 65_536):  # whatever the size of chunks
        with pytest.raises(InvalidLogError, match=words):
            list(Log(path).chunks(size))
    path.write_text(head + "0,one,1,\n0,2,2,\n0,2,two,\n")
    assert list(Log(path).chunks(2))[1].values == ("2", "two")  # as the first rows say


def test_a_column_kind_says_what_csv_outputs_are(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("context.x,output.a,output.b,kind\n0,1,1.0,text\n0,01,1,text\n")
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[1], [1]]
    assert chunk.values == ("1", "01", "1.0")


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
    with pytest.raises(InvalidLogError, match=r"is the text '0,5'; .*with a decimal point"):
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


def test_own_columns_of_nested_json(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"case": {"age": 3}, "said": {"a": "x", "b": "y"}, "context": {"free": 1}}\n'
        '{"case": {"age": 4}, "said": {"a": "x", "b": "x"}, "context": {"form": 1}, "stop": "?"}\n'
    )
    (chunk,) = Log(path, Columns(context=("case.age",), outputs=("said.a", "said.b"))).chunks()
    assert chunk.rounds.contexts.tolist() == [[3.0], [4.0]]
    assert chunk.rounds.differ.tolist() == [[1], [0]]


def peak(path: Path, rows: int) -> int:
    """Return the memory, in MB, that reading a log takes at most."""
    script = textwrap.dedent(
        """
        import sys
        from stopwise.logs.log import Log
        rows = sum(chunk.n for chunk in Log(sys.argv[1]).chunks(5_000))
        # Not getrusage: its peak is that of the parent process too, whose memory was shared.
        status = dict(line.split(":") for line in open("/proc/self/status"))
        print(rows, int(status["VmHWM"].split()[0]) // 1024)
        """
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    read, memory = map(int, done.stdout.split())
    assert read == rows
    return memory


def test_memory_does_not_grow_with_a_csv_file(tmp_path: Path) -> None:
    peaks = []
    for n in (10_000, 200_000):
        path = tmp_path / f"{n}.csv"
        with path.open("w") as file:
            file.write("context.x,output.a,output.b\n")
            file.writelines(f"{i / n},label {i % 7},label {i % 5}\n" for i in range(n))
        peaks.append(peak(path, n))
    assert peaks[1] < peaks[0] + 20  # the rows themselves would take over 60


def test_memory_does_not_grow_with_a_parquet_file_of_one_row_group(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    peaks = []
    for n in (200_000, 3_000_000):
        columns = {f"context.x{k}": random.random(n) for k in range(4)}
        columns |= {f"output.{arm}": np.ones(n, dtype=np.int8) for arm in "ab"}
        path = tmp_path / f"{n}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=n)
        peaks.append(peak(path, n))
    assert peaks[1] < peaks[0] + 50  # the file itself has over 90


def test_without_pyarrow_only_parquet_is_out_of_reach(tmp_path: Path) -> None:
    for suffix in FORMATS:
        save(tmp_path / f"log.{suffix}", TRIAGE)
    script = textwrap.dedent(
        """
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
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environment)


def test_pyarrow_is_imported_only_for_parquet(tmp_path: Path) -> None:
    path = save(tmp_path / "log.csv", TRIAGE)
    script = (
        "import sys\nfrom stopwise.logs.log import Log\n"
        "list(Log(sys.argv[1]).chunks())\nassert 'pyarrow' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, path], check=True, env=environment)
