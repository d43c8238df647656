"""Reading logs in all three formats."""

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
from tests.helpers.log_files import save
from tests.helpers.processes import run_python

FORMATS = ("parquet", "csv", "jsonl")


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


def test_all_columns_are_read(path: Path) -> None:
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
    values = [[chunk.answer(code) if code >= 0 else None for code in codes] for codes in answers]
    assert values == [*list(TRIAGE.values())[3:6], TRIAGE["label"]]
    assert chunk.costs is not None
    expected = np.full((5, 3), np.nan)
    expected[[0, 1, 3], 0] = 1.5, 2.0, 1.0
    assert np.array_equal(chunk.costs, expected, equal_nan=True)


def test_contexts_and_two_outputs_are_enough(path: Path) -> None:
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
def test_outputs_are_compared_by_type_and_exactly(
    path: Path, a: list[Any], b: list[Any], differ: list[int], values: tuple[Any, ...] | None
) -> None:
    chunk = read(path, {"context.x": [0, 0, 0], "output.a": a, "output.b": b})
    assert chunk.rounds.differ[:, 0].tolist() == differ
    assert chunk.values == values
    assert chunk.codes[2, 1] == -1


def test_stops_may_be_numbers_and_come_after_a_failed_arm(path: Path) -> None:
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
    assert chunk.rule_stop.tolist() == [1, 0, 2]  # the decision of the rule before the arm failed
    assert chunk.rounds.answered.tolist() == [2, 2, 1]  # an arm after the stop also ran


def test_a_log_can_be_read_repeatedly_with_progress(path: Path) -> None:
    log = Log(save(path, TRIAGE))
    steps: list[tuple[str, int, int]] = []
    assert sum(chunk.n for chunk in log.chunks(2, lambda *step: steps.append(step))) == 5
    assert [done for _, done, _ in steps] == [2, 4, 5]
    assert all(
        of == 5 if done == 5 else done < of <= 6 for _, done, of in steps
    )  # an estimate before the end
    assert sum(chunk.n for chunk in log.chunks()) == 5
    with pytest.raises(InvalidParameterError, match="size must be an integer"):
        log.chunks(0)


def test_the_suffix_selects_the_format(tmp_path: Path) -> None:
    unknown = save(tmp_path / "log.csv", TRIAGE).rename(tmp_path / "log.txt")
    with pytest.raises(
        InvalidParameterError, match=r"unknown format of log.txt.*\.parquet.*ndjson"
    ):
        Log(unknown)
    lines = save(tmp_path / "log.jsonl", TRIAGE).rename(tmp_path / "log.NDJSON")
    assert Log(lines).arms == ("nurse", "doctor", "board")


def test_other_parquet_types_are_read_or_rejected(tmp_path: Path) -> None:
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


def test_csv_outputs_are_numbers_if_the_first_rows_have_only_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    head = "context.x,output.a,output.b,label\n"
    path.write_text(head + "0,1,1.0,\n0,2,2e0,2\n")
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[0], [0]]
    path.write_text(head + "0,1,1.0,\n0,2,2e0,two\n")  # with a text label, all answers are text
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[1], [1]]
    path.write_text(head + "0,1_0,10,\n")  # 1_0 is a number only in Python
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.differ.tolist() == [[1]]

    monkeypatch.setattr(csv_format, "SAMPLE_ROWS", 2)
    path.write_text(head + "0,1,1,\n0,2,2,\n0,2,two,\n")
    message = (
        r"log.csv, row 3 \(line 4\), column 'output.b': mixed types: the text 'two' after outputs "
        "that are numbers"
    )
    for size in (1, 2, 65_536):  # independent of the size of chunks
        with pytest.raises(InvalidLogError, match=message):
            list(Log(path).chunks(size))
    path.write_text(head + "0,one,1,\n0,2,2,\n0,2,two,\n")
    assert list(Log(path).chunks(2))[1].values == ("2", "two")  # text, like the first rows
    path.write_text("context.x,output.a,output.b,kind\n0,1,1.0,text\n0,01,1,text\n")
    assert next(Log(path).chunks()).values == ("1", "01", "1.0")  # declared by the column kind


def test_csv_may_have_a_byte_order_mark_spaces_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    text = '\ufeffcontext.x, output.a, output.b\r\n 0.5, "x" ,x\r\n\r\n1,"a ""b""\nc", y'
    path.write_bytes(text.replace(' "x" ', " x ").encode())
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.contexts.tolist() == [[0.5], [1.0]]
    assert chunk.values == ("x", 'a "b"\nc', "y")
    assert chunk.rounds.differ.tolist() == [[0], [1]]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_csv_may_be_separated_by_semicolons_or_tabs(tmp_path: Path, delimiter: str) -> None:
    path = save(tmp_path / "log.csv", TRIAGE)
    (expected,) = Log(path).chunks()
    path.write_text(path.read_text().replace(",", delimiter))
    (chunk,) = Log(path).chunks()
    assert chunk.codes.tolist() == expected.codes.tolist()
    assert chunk.rounds.contexts.tolist() == expected.rounds.contexts.tolist()
    path.write_text("context.x;output.a;output.b\n0,5;1;1\n")
    with pytest.raises(InvalidLogError, match=r"is the text '0,5'; write numbers as 0\.5"):
        list(Log(path).chunks())


def test_json_lines_may_have_other_fields_and_key_orders(tmp_path: Path) -> None:
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
        '{"case": {"age": 3}, "out": {"a": "x", "b": "y"}, "context": {"free": 1}}\n'
        '{"case": {"age": 4}, "out": {"a": "x", "b": "x"}, "context": {"form": 1}, "stop": "?"}\n'
    )  # unused fields may differ between rows
    (chunk,) = Log(path, Columns(context=("case.age",), outputs=("out.a", "out.b"))).chunks()
    assert chunk.rounds.contexts.tolist() == [[3.0], [4.0]]
    assert chunk.rounds.differ.tolist() == [[1], [0]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_is_bounded_for_any_length(tmp_path: Path, suffix: str) -> None:
    script = """
        import sys
        from stopwise.logs.log import Log
        rows = sum(chunk.n for chunk in Log(sys.argv[1]).chunks(10_000))
        # Not getrusage: its peak includes the memory shared with the parent process.
        status = dict(line.split(":") for line in open("/proc/self/status"))
        print(rows, int(status["VmHWM"].split()[0]) // 1024)
        """
    peaks: list[int] = []
    for n in (20_000, 120_000) if suffix == "csv" else (50_000, 400_000):
        path = tmp_path / f"{n}.{suffix}"
        if suffix == "csv":  # all rows would need over 35 MB
            with path.open("w") as file:
                file.write("context.x,output.a,output.b\n")
                file.writelines(f"{i / n},label {i % 7},label {i % 5}\n" for i in range(n))
        else:  # one row group, of over 50 MB
            random = np.random.default_rng(0)
            columns = {f"context.x{k}": random.random(n) for k in range(16)}
            columns |= {f"output.{arm}": np.ones(n, dtype=np.int8) for arm in "ab"}
            pq.write_table(pa.table(columns), path, row_group_size=n, use_dictionary=False)
        rows, peak = map(int, run_python(script, path).split())
        assert rows == n
        peaks.append(peak)
    assert peaks[1] < peaks[0] + (20 if suffix == "csv" else 25)


def test_only_parquet_needs_pyarrow(tmp_path: Path) -> None:
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
    run_python(script, cwd=tmp_path)
