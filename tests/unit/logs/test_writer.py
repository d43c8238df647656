"""Writing logs: what is in the file, what is refused, and what a crash leaves."""

import csv
import enum
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
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

ARMS = ["small", "large"]


def played(*outputs: Any, **fields: Any) -> Round:
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


@pytest.fixture(params=("parquet", "csv", "jsonl"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log.{request.param}"


@pytest.fixture(params=("csv", "jsonl"))
def lines(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log.{request.param}"


def write(path: Path, *rounds: Round, **options: Any) -> Path:
    with LogWriter(path, ARMS, ["x"], **options) as log:
        for each in rounds:
            log.write(each)
    return path


def raw(path: Path) -> list[dict[str, Any]]:
    """Read a file without Stopwise."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


DONE = played("spam", "ham", costs=(0.25, 1.5), context=(0.5, 8.0), rule_stop=0)
FAILED = played("spam", context=(0.1, 9.0), costs=(1.0,), failure=Failure(1, "timeout", "late"))


def test_what_is_in_the_file(path: Path) -> None:
    with LogWriter(path, ARMS, ["x"], {"small": ["y"]}, labels=True, costs=True) as log:
        log.write(DONE, "ham")
        log.write(FAILED)
    first, second = raw(path)
    if path.suffix == ".jsonl":
        assert first == {
            "id": "7",
            "time": "2023-11-14T22:13:20.250000Z",
            "context": {"x": 0.5},
            "revealed": {"small": {"y": 8.0}},
            "outputs": {"small": "spam", "large": "ham"},
            "stop": "large",
            "rule_stop": "small",
            "failed": None,
            "error": None,
            "label": "ham",
            "costs": {"small": 0.25, "large": 1.5},
        }
        assert second["outputs"] == {"small": "spam", "large": None}
        assert (second["failed"], second["error"], second["label"]) == ("large", "late", None)
        return
    flat = {
        "id": "7",
        "time": "2023-11-14T22:13:20.250000Z",
        "context.x": "0.5",
        "revealed.small.y": "8.0",
        "output.small": "spam",
        "output.large": "ham",
        "stop": "large",
        "rule_stop": "small",
        "failed": "",
        "error": "",
        "label": "ham",
        "cost.small": "0.25",
        "cost.large": "1.5",
    }
    if path.suffix == ".csv":
        assert first == flat | {"kind": "text"}
        assert (second["output.large"], second["failed"], second["error"]) == ("", "large", "late")
        return
    numbers = {
        name: float(flat[name])
        for name in flat
        if name.split(".")[0] in ("context", "revealed", "cost")
    }
    moment = datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)
    assert first == flat | numbers | {"time": moment, "failed": None, "error": None}
    assert (second["output.large"], second["failed"], second["label"]) == (None, "large", None)


class Colour(str, enum.Enum):  # noqa: UP042 - unlike a StrEnum, it shows its own name as text
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
def test_outputs_that_are_nearly_plain(path: Path, output: Any, plain: Any) -> None:
    write(path, played(output))
    (chunk,) = Log(path).chunks()
    code = int(chunk.codes[0, 0])
    assert (code if chunk.values is None else chunk.values[code]) == plain


@pytest.mark.parametrize("output", [("a", "b"), None, b"a", float("nan"), float("inf"), 2**63, 1j])
def test_outputs_that_cannot_be_written(path: Path, output: Any) -> None:
    with LogWriter(path, ARMS, ["x"]) as log:
        log.write(played("good"))
        with pytest.raises(InvalidLogError, match=r"round '8'.*'large'.*canonical="):
            log.write(played("fine", output, id="8"))
        log.write(played("good"))
    assert [chunk.n for chunk in Log(path).chunks()] == [2]  # nothing of it was written


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (played(1, "a"), r"mixed types: is the text 'a'.*numbers"),
        (played(1, context=(0.5, 1.0)), "context of 2 numbers; the log has 1"),
        (played(1, context=(float("nan"),)), "not finite"),
        (played(1, 1, 1), "3 outputs"),
        (played(1, stop=1), "1 outputs, stop 1"),
        (played(1, rule_stop=2), "rule_stop 2"),
        (played(), "no outputs and no failure"),
        (played(1, failure=Failure(0, "error", "?")), "arm 0 cannot be the one that failed"),
        (played(1, 1, failure=Failure(2, "error", "?")), "arm 2 cannot be"),
        (played(1, costs=(-1.0,)), r"costs \[-1.0\]"),
        (played(1, costs=(1.0, 1.0, 1.0)), "costs"),
        (played(1, time=1e300), r"time 1e\+300"),
    ],
)
def test_rounds_that_do_not_fit(path: Path, bad: Round, words: str) -> None:
    with LogWriter(path, ARMS, ["x"], costs=True) as log:
        log.write(played(5))
        with pytest.raises(InvalidLogError, match=words):
            log.write(bad)
        with pytest.raises(InvalidLogError, match=r"mixed types: is the text"):
            log.write(played("text"))  # refused rounds leave no trace
        log.write(played(5, 6))
    (chunk,) = Log(path).chunks()
    assert chunk.codes.tolist() == [[5, -1], [5, 6]]


def test_a_label_needs_a_column(path: Path) -> None:
    with LogWriter(path, ARMS, ["x"]) as log, pytest.raises(InvalidLogError, match="labels=True"):
        log.write(played(1), 1)
    with (
        LogWriter(path, ARMS, ["x"], labels=True, overwrite=True) as log,
        pytest.raises(InvalidLogError, match="mixed types: is the text 'one'"),
    ):
        log.write(played(1), "one")


def test_large_whole_numbers_do_not_go_with_fractions(path: Path) -> None:
    large, fraction = played(2**53 + 1, 2**53), played(0.5)
    for first, second in ((large, fraction), (fraction, large)):
        with LogWriter(path, ARMS, ["x"], overwrite=True) as log:
            log.write(first)
            with pytest.raises(InvalidLogError, match=r"beyond 2\*\*53"):
                log.write(second)
    (chunk,) = Log(write(path, large, overwrite=True)).chunks()
    assert chunk.rounds.differ.tolist() == [[1]]


def test_text_that_is_no_unicode(path: Path) -> None:
    with LogWriter(path, ARMS, ["x"]) as log:
        with pytest.raises(InvalidLogError, match=r"log.*\\ud800.*not a character of Unicode"):
            log.write(played("\ud800"))
        log.write(played("a", failure=Failure(1, "error", "\ud800")))  # an error may say anything
    assert raw(path)[0]["error"] == "?"


def test_long_errors_are_cut(path: Path) -> None:
    write(path, played("a", failure=Failure(1, "error", "x" * 1_000_000)))
    assert len(raw(path)[0]["error"]) == 2_000


def test_csv_cells_that_no_reader_takes(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.csv", ARMS, ["x"], labels=True) as log:
        with pytest.raises(InvalidLogError, match="200,000 characters"):
            log.write(played("a" * 200_000))
        with pytest.raises(InvalidLogError, match="empty label"):
            log.write(played("a"), "")


@pytest.mark.parametrize(
    ("arms", "context", "revealed", "words"),
    [
        (["a"], ["x"], {}, "two arms"),
        (["a", "a"], ["x"], {}, "twice"),
        (["a", " b"], ["x"], {}, "' b' cannot be the name"),
        (["a", "b"], ["x", ""], {}, "'' cannot be the name"),
        (["a", "b"], ["x", "x"], {}, "twice"),
        (["a", "b"], "xy", {}, "a list of names, not the text 'xy'"),
        (["a", "b"], ["x"], {"b": ["y"]}, "not an arm before the last"),
        (["a", "b"], ["x"], {"c": ["y"]}, "revealed names 'c'"),
        (["a", "a.b", "c"], ["x"], {"a": ["b.y"]}, "dots"),
    ],
)
def test_logs_that_cannot_be(
    path: Path, arms: Any, context: Any, revealed: Any, words: str
) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        LogWriter(path, arms, context, revealed)
    assert not path.exists()


def test_folders_are_made_and_files_replaced_only_on_demand(path: Path) -> None:
    inside = path.parent / "new" / "folder" / path.name
    write(inside, played(1), played(2))
    before = inside.read_bytes()
    with pytest.raises(FileExistsError, match=r"append=True continues it, overwrite=True replaces"):
        write(inside, played(3))
    assert inside.read_bytes() == before
    write(inside, played(3), overwrite=True)
    (chunk,) = Log(inside).chunks()
    assert chunk.codes[:, 0].tolist() == [3]


def test_an_exception_keeps_what_was_written(path: Path) -> None:
    def run() -> None:
        with LogWriter(path, ARMS, ["x"]) as log:
            log.write(played(1))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        run()
    assert [chunk.n for chunk in Log(path).chunks()] == [1]
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing beside it


def test_closed_is_closed(path: Path) -> None:
    log = LogWriter(path, ARMS, ["x"])
    log.write(played(1))
    log.close()
    log.close()
    with pytest.raises(InvalidLogError, match="is closed"):
        log.write(played(1))


def test_parquet_is_put_in_its_place_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP", 2)
    path = write(tmp_path / "log.parquet", played(1))
    with LogWriter(path, ARMS, ["x"], overwrite=True) as log:
        for i in range(5):
            log.write(played(i))
        assert Log(path).rows == 1  # the old one
    assert Log(path).rows == 5
    assert pq.ParquetFile(path).metadata.num_row_groups == 3


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
def test_parquet_types_widen_as_need_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: list[Any], kind: Any
) -> None:
    monkeypatch.setattr(parquet, "GROUP", 1)
    nothing = played(failure=Failure(0, "error", "?"))
    rounds = [nothing if output is None else played(output) for output in outputs]
    path = write(tmp_path / "log.parquet", *rounds)
    assert pq.read_schema(path).field("output.small").type == kind
    assert [row["output.small"] for row in raw(path)] == outputs
    assert len(list(tmp_path.iterdir())) == 1


def test_parquet_cannot_be_appended_to(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", played(1))
    with pytest.raises(InvalidLogError, match=r"log.parquet.*nothing can be appended.*CSV"):
        LogWriter(path, ARMS, ["x"], append=True)
    assert Log(path).rows == 1


def test_appending(lines: Path) -> None:
    write(lines, played("a"), append=True)  # nothing there yet
    write(lines, played("b"), append=True)
    (chunk,) = Log(lines).chunks()
    assert chunk.values == ("a", "b")
    with (
        LogWriter(lines, ARMS, ["x"], append=True) as log,
        pytest.raises(InvalidLogError, match="mixed types"),
    ):
        log.write(played(1))  # the file holds text


def test_appending_to_other_columns(lines: Path) -> None:
    write(lines, played("a"))
    before = lines.read_bytes()
    for arms, context in ((["small", "huge"], ["x"]), (ARMS, ["z"]), (ARMS[::-1], ["x"])):
        with pytest.raises(InvalidLogError, match=r"cannot be appended to: its columns are id"):
            LogWriter(lines, arms, context, append=True)
    lines.write_text("something else\n")
    with pytest.raises(InvalidLogError, match=lines.name):
        LogWriter(lines, ARMS, ["x"], append=True)
    assert before != lines.read_bytes() == b"something else\n"


def test_rows_are_in_the_file_at_once_and_survive_a_kill(lines: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from stopwise.logs.writer import LogWriter
        from stopwise.records import Round
        log = LogWriter(sys.argv[1], ["small", "large"], ["x"])
        for i in range(1_000_000):
            log.write(Round(str(i), 0.0, (0.5,), (f"line\\n{i}",), ("",), stop=0, rule_stop=0))
            if i == 100:
                print("ready", flush=True)
        """
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script, lines], stdout=subprocess.PIPE, env=environment
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    write(lines, played("after"), append=True)
    said = [
        (chunk.values or ())[code] for chunk in Log(lines).chunks() for code in chunk.codes[:, 0]
    ]
    assert len(said) > 101
    assert said == [*(f"line\n{i}" for i in range(len(said) - 1)), "after"]


def test_a_disk_that_is_full_leaves_whole_rows(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk."""
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from stopwise.logs.writer import LogWriter
        from stopwise.records import Round
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
        log = LogWriter(sys.argv[1], ["small", "large"], ["x"])
        rows = 0
        try:
            while True:
                log.write(Round(str(rows), 0.0, (0.5,), ("spam",), ("",), stop=0, rule_stop=0))
                rows += 1
        except OSError:
            print(rows)
        """
    )
    path = tmp_path / "log.csv"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, check=True, env=environment
    )
    assert path.read_bytes().endswith(b"\n")
    assert sum(chunk.n for chunk in Log(path).chunks()) == int(done.stdout) > 10


def test_threads_may_write_together(lines: Path) -> None:
    with LogWriter(lines, ARMS, ["x"]) as log:

        def some(name: str) -> None:
            for i in range(200):
                log.write(played(f"{name} {i}"))

        threads = [threading.Thread(target=some, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (chunk,) = Log(lines).chunks()
    assert chunk.n == 800
    assert chunk.values is not None
    assert sorted(chunk.values) == sorted(f"{name} {i}" for name in "abcd" for i in range(200))


@contextmanager
def full_disk(free: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: the system then refuses writes, as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("later", [3, 2.5], ids=["same type", "wider type"])
@pytest.mark.parametrize("free", [0, 1000, 2500])
def test_parquet_goes_on_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, free: int
) -> None:
    monkeypatch.setattr(parquet, "GROUP", 2)
    path = tmp_path / "log.parquet"
    kept: list[str] = []
    refused: list[str] = []
    with LogWriter(path, ARMS, ["x"]) as log:
        for i in range(20):
            each = played(1 if i < 4 else later, id=str(i))
            with full_disk(free if 3 <= i < 12 else 10**9):
                try:
                    log.write(each)
                except OSError:
                    refused.append(each.id)
                else:
                    kept.append(each.id)
    assert refused  # and of those, nothing
    assert [row["id"] for row in raw(path)] == kept
    assert list(tmp_path.iterdir()) == [path]
    assert Log(path).rows == len(kept)


def test_parquet_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log.parquet", ARMS, ["x"])
    log.write(played(1))
    with full_disk(0), pytest.raises(OSError, match="large"):
        log.close()
    assert list(tmp_path.iterdir()) == []


BIG = 2**60 + 1


@pytest.mark.parametrize("context", [(), ("x",)])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("spam", 1, "mixed types"),
        (1, "spam", "mixed types"),
        (0.5, BIG, "fractions"),
        (1.0, -BIG, "fractions"),
        (BIG, 0.5, "fractions"),
        (-BIG, 1.0, "fractions"),
    ],
)
def test_what_is_appended_must_stand_with_what_is_there(
    lines: Path, context: tuple[str, ...], before: Any, after: Any, words: str
) -> None:
    x = (0.5,) * len(context)
    with LogWriter(lines, ARMS, context) as log:
        log.write(played(before, context=x))
        log.write(played(before, context=x))
    held = lines.read_bytes()
    with LogWriter(lines, ARMS, context, append=True) as log:
        with pytest.raises(InvalidLogError, match=words):
            log.write(played(after, context=x))
        assert lines.read_bytes() == held
        log.write(played(before, before, context=x))
    assert len(raw(lines)) == 3


def test_a_file_with_a_row_that_cannot_be_read_is_not_appended_to(lines: Path) -> None:
    write(lines, played("spam"), played("ham"))
    lines.write_text(lines.read_text().replace("0.5", '"?"' if lines.suffix == ".jsonl" else "?"))
    with pytest.raises(InvalidLogError, match=r"row 1.*context\.x"):
        LogWriter(lines, ARMS, ["x"], append=True)


def test_a_file_without_rows_is_appended_to(lines: Path) -> None:
    write(lines)
    write(lines, played("spam"), append=True)
    assert len(raw(lines)) == 1
