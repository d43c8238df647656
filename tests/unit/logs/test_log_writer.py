"""Writing logs: file contents, invalid rounds, and recovery after a crash."""

import csv
import enum
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.formats import parquet
from stopwise.logs.log import Log
from stopwise.logs.writer import LogWriter
from stopwise.records import Failure, Round
from tests.helpers.processes import run_python

ARMS = ["small", "large"]


def finished(*outputs: Any, **fields: Any) -> Round:
    stop = len(outputs) - 1
    defaults = {
        "id": "7",
        "time": 1_700_000_000.25,
        "context": (0.5,),
        "outputs": outputs,
        "answers": outputs,
        "stop": stop if stop >= 0 else None,
        "rule_stop": max(stop, 0),
    }
    return Round(**(defaults | fields))


def write(path: Path, *rounds: Round, **options: Any) -> Path:
    with LogWriter(path, ARMS, ["x"], **options) as log:
        for done in rounds:
            log.write(done)
    return path


def file_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file without Stopwise."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


DONE = finished("spam", "ham", costs=(0.25, 1.5), context=(0.5, 8.0), rule_stop=0)
FAILED = finished("spam", context=(0.1, 9.0), costs=(1.0,), failure=Failure(1, "timeout", "late"))


def test_rounds_are_written_to_the_documented_columns(path: Path) -> None:
    with LogWriter(path, ARMS, ["x"], {"small": ["y"]}, labels=True, costs=True) as log:
        log.write(DONE, "ham")
        log.write(FAILED)
    moment = "2023-11-14T22:13:20.250000Z"
    if path.suffix == ".csv":
        header, *rows = path.read_text().splitlines()
        assert header.startswith("id,time,context.x,revealed.small.y,output.small,output.large,")
        assert header.endswith(",stop,rule_stop,failed,error,label,cost.small,cost.large,kind")
        assert rows == [
            f"7,{moment},0.5,8.0,spam,ham,large,small,,,ham,0.25,1.5,text",
            f"7,{moment},0.1,9.0,spam,,small,small,large,late,,1.0,,text",
        ]
        return
    cells = {"id": "7", "time": moment, "stop": "small", "rule_stop": "small", "label": None}
    cells |= {"failed": "large", "error": "late"}
    if path.suffix == ".jsonl":
        cells |= {"context": {"x": 0.1}, "revealed": {"small": {"y": 9.0}}}
        cells |= {"outputs": {"small": "spam", "large": None}}
        cells |= {"costs": {"small": 1.0, "large": None}}
    else:
        cells |= {"time": datetime.fromisoformat(moment), "context.x": 0.1}
        cells |= {"revealed.small.y": 9.0, "output.small": "spam", "output.large": None}
        cells |= {"cost.small": 1.0, "cost.large": None}
    assert file_rows(path)[1] == cells


class Colour(str, enum.Enum):  # noqa: UP042 - unlike a StrEnum, its str() is its name
    RED = "red"


@pytest.mark.parametrize(
    ("output", "plain"),
    [
        (np.int8(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (Colour.RED, "red"),
        (enum.IntEnum("Number", "ONE").ONE, 1),
    ],
)
def test_numpy_and_enum_outputs_are_written_as_plain_values(
    path: Path, output: Any, plain: Any
) -> None:
    write(path, finished(output))
    (chunk,) = Log(path).chunks()
    assert chunk.answer(int(chunk.codes[0, 0])) == plain


UNWRITABLE = (("a", "b"), None, b"a", float("nan"), float("inf"), 2**63, 1j)


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        *((finished(1, output), r"round '7'.*'large'.*canonical=") for output in UNWRITABLE),
        (finished(1, "a"), r"mixed types: the text 'a' after outputs that are numbers"),
        (finished(1, context=(0.5, 1.0)), "context of 2 numbers; expected 1"),
        (finished(1, context=(float("nan"),)), "not finite"),
        (finished(1, 1, 1), "3 outputs"),
        (finished(1, stop=1), "1 outputs, stop 1"),
        (finished(1, rule_stop=2), "rule_stop 2"),
        (finished(1, rule_stop=-2), "rule_stop -2"),
        (finished(), "0 outputs"),
        (finished(1, failure=Failure(0, "error", "?")), "1 outputs.*failed arm 0"),
        (finished(1, 1, failure=Failure(2, "error", "?")), "2 outputs.*failed arm 2"),
        (finished(1, costs=(-1.0,)), r"costs \[-1.0\]"),
        (finished(1, costs=(1.0, 1.0, 1.0)), "costs"),
        (finished(1, time=1e300), r"time 1e\+300"),
    ],
)
def test_invalid_rounds_are_rejected(path: Path, invalid: Round, message: str) -> None:
    with LogWriter(path, ARMS, ["x"], costs=True) as log:
        log.write(finished(5))
        with pytest.raises(InvalidLogError, match=message):
            log.write(invalid)
        with pytest.raises(InvalidLogError, match=r"mixed types: the text"):
            log.write(finished("text"))  # the rejected round has no effect on the type
        log.write(finished(5, 6))
    (chunk,) = Log(path).chunks()
    assert chunk.codes.tolist() == [[5, -1], [5, 6]]


def test_invalid_labels_and_characters_are_rejected_and_errors_shortened(path: Path) -> None:
    with LogWriter(path, ARMS, ["x"]) as log:
        with pytest.raises(InvalidLogError, match="labels=True"):
            log.write(finished(1), 1)
        message = rf"^{path.name}: round '7' .*\\ud800.*not a Unicode character"
        with pytest.raises(InvalidLogError, match=message):
            log.write(finished("\ud800"))
        log.write(finished("a", failure=Failure(1, "error", "\ud800")))  # any error is written
        log.write(finished("a", failure=Failure(1, "error", "x" * 1_000_000)))
    log.close()  # closing again has no effect
    with pytest.raises(InvalidLogError, match="is closed"):
        log.write(finished("a"))
    assert [len(row["error"]) for row in file_rows(path)] == [1, 2_000]
    with (
        LogWriter(path, ARMS, ["x"], labels=True, overwrite=True) as log,
        pytest.raises(InvalidLogError, match="mixed types: the text 'one'"),
    ):
        log.write(finished(1), "one")


def test_csv_cells_beyond_the_limit_of_readers_are_rejected(tmp_path: Path) -> None:
    with (
        LogWriter(tmp_path / "log.csv", ARMS, ["x"], labels=True) as log,
        pytest.raises(InvalidLogError, match="200,000 characters"),
    ):
        log.write(finished("a" * 200_000))


def test_a_blank_label_is_missing_and_a_blank_output_is_an_answer(path: Path) -> None:
    """The `stop` of the row tells a blank answer from an arm that did not run."""
    with LogWriter(path, ARMS, ["x"], labels=True) as log:
        log.write(finished("", "cat"), "")
        log.write(finished(""), " ")
        log.write(finished("cat", "cat"), "cat")
    (chunk,) = Log(path).chunks()
    assert chunk.rounds.answered.tolist() == [2, 1, 2]
    assert chunk.rounds.differ[:, 0].tolist() == [1, 0, 0]
    assert (chunk.labels >= 0).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("arms", "context", "revealed", "message"),
    [
        (["a"], ["x"], {}, "arms must have at least 2 names, got"),
        ([], ["x"], {}, r"arms must have at least 2 names, got \[\]"),
        ("ab", ["x"], {}, "arms must be a list of names, got 'ab'"),
        (["a", "a"], ["x"], {}, "duplicate"),
        (["a", " b"], ["x"], {}, "arms has the invalid column name ' b'"),
        (["a", "b"], ["x", ""], {}, "context has the invalid column name ''"),
        (["a", "b"], ["x", "x"], {}, "duplicate"),
        (["a", "b"], "xy", {}, "context must be a list of names, got 'xy'"),
        (["a", "b"], ["x"], {"b": ["y"]}, "must not include the last arm, 'b'"),
        (["a", "b"], ["x"], {"c": ["y"]}, "unknown arm 'c'"),
        (["a", "a.b", "c"], ["x"], {"a": ["b.y"]}, "dots"),
    ],
)
def test_invalid_names_are_rejected(
    path: Path, arms: Any, context: Any, revealed: Any, message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        LogWriter(path, arms, context, revealed)
    assert not path.exists()


def test_folders_are_created_and_files_replaced_only_with_overwrite(path: Path) -> None:
    nested = path.parent / "new" / "folder" / path.name
    write(nested, finished(1), finished(2))
    before = nested.read_bytes()
    with pytest.raises(FileExistsError, match=r"pass append=True to continue or overwrite=True to"):
        write(nested, finished(3))
    assert nested.read_bytes() == before
    write(nested, finished(3), overwrite=True)
    (chunk,) = Log(nested).chunks()
    assert chunk.codes[:, 0].tolist() == [3]


def test_an_exception_keeps_the_rounds_written_before_it(path: Path) -> None:
    def run() -> None:
        with LogWriter(path, ARMS, ["x"], overwrite=True) as log:
            log.write(finished(2))
            log.write(finished(3))
            if path.suffix == ".parquet":
                assert Log(path).rows == 1  # still the old file
            raise RuntimeError("stop")

    write(path, finished(1))
    with pytest.raises(RuntimeError, match="stop"):
        run()
    assert [chunk.n for chunk in Log(path).chunks()] == [2]
    assert list(path.parent.iterdir()) == [path]  # without temporary files


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        ([True, 2, 2.5], pa.float64()),
        ([1, 2, 3], pa.int64()),
        ([None, True, False], pa.bool_()),
        ([None, None, "a"], pa.string()),
        ([0.5, None, 1], pa.float64()),
    ],
)
def test_parquet_columns_have_the_narrowest_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: list[Any], kind: Any
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1)
    failed = finished(failure=Failure(0, "error", "?"))
    rounds = [failed if output is None else finished(output) for output in outputs]
    path = write(tmp_path / "log.parquet", *rounds)
    assert pq.read_schema(path).field("output.small").type == kind
    assert [row["output.small"] for row in file_rows(path)] == outputs
    with pytest.raises(InvalidLogError, match=r"cannot append to log.parquet.*CSV"):
        LogWriter(path, ARMS, ["x"], append=True)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arms", "context"), [(["small", "huge"], ["x"]), (ARMS, ["z"]), (ARMS[::-1], ["x"])]
)
def test_append_requires_the_same_columns(
    text_path: Path, arms: list[str], context: list[str]
) -> None:
    write(text_path, append=True)  # creates the file
    write(text_path, finished("a"), append=True)  # no rows
    before = text_path.read_bytes()
    with pytest.raises(InvalidLogError, match=r"cannot append to .*: its columns are id"):
        LogWriter(text_path, arms, context, append=True)
    assert text_path.read_bytes() == before


@pytest.mark.parametrize(
    "content", ["something else\n", "something else", 'something "else\n and more\n']
)
def test_append_rejects_files_that_are_not_logs(text_path: Path, content: str) -> None:
    text_path.write_text(content)
    with pytest.raises(InvalidLogError, match=text_path.name):
        LogWriter(text_path, ARMS, ["x"], append=True)
    assert text_path.read_text() == content


def test_append_keeps_a_complete_last_line_without_a_line_break(text_path: Path) -> None:
    write(text_path, finished("a"), finished("b"))
    before = text_path.read_bytes()
    text_path.write_bytes(before[:-1])
    write(text_path, finished("c"), append=True)
    assert text_path.read_bytes().startswith(before)
    assert len(file_rows(text_path)) == 3


BIG = 2**60 + 1


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("spam", 1, "mixed types"),
        (1, "spam", "mixed types"),
        (0.5, BIG, r"beyond 2\*\*53 and fractions"),
        (BIG, 0.5, "fractions"),
        (-BIG, 1.0, "fractions"),
    ],
)
def test_answers_that_cannot_be_compared_are_rejected(
    path: Path, before: Any, after: Any, message: str
) -> None:
    with LogWriter(path, ARMS, ["x"]) as log:
        log.write(finished(before))
        with pytest.raises(InvalidLogError, match=message):
            log.write(finished(after))
        log.write(finished(before, before))
    assert sum(chunk.n for chunk in Log(path).chunks()) == 2


def test_threads_can_share_a_writer(text_path: Path) -> None:
    texts = [f"text {i}" for i in range(800)]
    with LogWriter(text_path, ARMS, ["x"]) as log, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: log.write(finished(text)), texts))
    (chunk,) = Log(text_path).chunks()
    assert (chunk.n, sorted(chunk.values or ())) == (800, sorted(texts))


@contextmanager
def full_disk(free: int) -> Iterator[None]:
    """Limit the size of files: writes beyond it fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("free", [0, 1000, 1500])
def test_writing_continues_with_complete_rows_after_a_full_disk(path: Path, free: int) -> None:
    stored: list[str] = []
    rejected: list[str] = []
    with LogWriter(path, ARMS, ["x"]) as log:
        for i in range(40):
            done = finished(1 if i < 20 else 2.5, id=str(i))
            with full_disk(free if 3 <= i < 35 else 10**9):
                try:
                    log.write(done)
                except OSError:
                    rejected.append(done.id)
                else:
                    stored.append(done.id)
    assert rejected
    assert [row["id"] for row in file_rows(path)] == stored
    assert list(path.parent.iterdir()) == [path]
    assert sum(chunk.n for chunk in Log(path).chunks()) == len(stored)


def test_an_unfinished_parquet_file_leaves_its_rows_as_json_lines(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log.parquet", ARMS, ["x"])
    log.write(finished(1))
    with full_disk(0), pytest.raises(OSError, match="large") as caught:
        log.close()
    (rows,) = tmp_path.iterdir()
    note = f"log.parquet was not written; its rounds are in {rows}"
    assert caught.value.__notes__ == [note]
    (chunk,) = Log(rows).chunks()
    assert chunk.codes.tolist() == [[1, -1]]


def test_parquet_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "log.parquet", os.fsync
    synced: list[tuple[int, bool]] = []

    def record_fsync(file: int) -> None:
        fsync(file)
        synced.append((os.fstat(file).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", record_fsync)
    write(path, finished(1))
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_rows_are_written_immediately_and_survive_a_kill(path: Path) -> None:
    script = """
        import os, signal, sys
        from stopwise.logs.writer import LogWriter
        from stopwise.records import Round
        log = LogWriter(sys.argv[1], ["small", "large"], ["x"])
        for i in range(100):
            log.write(Round(str(i), 0.0, (0.5,), (f"line\\n{i}",), ("",), stop=0, rule_stop=0))
        os.kill(os.getpid(), signal.SIGKILL)
        """
    with pytest.raises(subprocess.CalledProcessError):
        run_python(script, path)
    (remaining,) = path.parent.iterdir()  # in the case of Parquet, JSON lines
    with remaining.open("ab") as file:
        file.write(b"100,")  # a row truncated by the kill
    write(remaining, finished("after"), append=True)
    answers = [
        (chunk.values or ())[code]
        for chunk in Log(remaining).chunks()
        for code in chunk.codes[:, 0]
    ]
    assert answers == [*(f"line\n{i}" for i in range(100)), "after"]
