"""Columns ``right.<arm>``: the correctness of each arm instead of a label."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stopwise as sw
from stopwise.errors import InvalidLogError
from stopwise.logs.diagnosis.report import as_json, write_label_rows
from stopwise.logs.log import Columns, Log
from stopwise.logs.writer import LogWriter
from stopwise.records import Round
from tests.unit.logs.replay.live import CASCADE, NAMES, Arms, arms, full, truncate, writer

HEADER = "context.x,output.small,output.large,right.small,right.large\n"


def saved(folder: Path, text: str) -> Path:
    """Write a CSV file."""
    path = folder / "log.csv"
    path.write_text(text)
    return path


def correctness(log: Log) -> tuple[list[Any], list[Any]]:
    """Return which arms were right, and which rows are labelled."""
    (chunk,) = log.chunks()
    assert chunk.rounds.right is not None
    return chunk.rounds.right.tolist(), chunk.labelled.tolist()


def finished(*outputs: str) -> Round:
    stop = len(outputs) - 1
    return Round("a", 0.0, (0.5,), outputs, outputs, stop=stop, rule_stop=stop)


def test_written_correctness_is_read(path: Path) -> None:
    with LogWriter(path, ["small", "large"], ["x"], right=True) as log:
        log.write(finished("Rome", "Rome, Italy"), right=[True, True])
        log.write(finished("Oslo", "Bergen"), right=[False, True])
        log.write(finished("Oslo"), right=[False])
        log.write(finished("Oslo", "Paris"))
    log = Log(path)
    assert log.has_labels
    assert log.layout.right == ("right.small", "right.large")
    right = [[True, True], [False, True], [False, False], [False, False]]
    assert correctness(log) == (right, [True, True, True, False])


def test_spellings_of_true_and_false_are_read(tmp_path: Path) -> None:
    rows = ["0,a,b,1,0", "0,a,b,true,False", "0,a,b, TRUE ,0.0", "0,a,b,,", "0,a,,1,"]
    right, labelled = correctness(Log(saved(tmp_path, HEADER + "\n".join(rows))))
    assert right == [[True, False]] * 3 + [[False, False], [True, False]]
    assert labelled == [True, True, True, False, True]


@pytest.mark.parametrize("values", [[True, None], [1, None], [1.0, None], ["true", None]])
def test_parquet_columns_may_be_bools_numbers_or_text(tmp_path: Path, values: list[Any]) -> None:
    columns = {"context.x": [0.1, 0.2], "output.small": ["a", "a"], "output.large": ["b", "b"]}
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns | {"right.small": values, "right.large": values}), path)
    assert correctness(Log(path)) == ([[True, True], [False, False]], [True, False])


def test_rows_with_some_arms_evaluated_are_unlabelled(tmp_path: Path) -> None:
    path = saved(tmp_path, HEADER + "0,a,b,,1\n0,a,b,0,1\n")
    assert correctness(Log(path))[1] == [False, True]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,a,b,1,maybe", "'right.large': is the text 'maybe'; write 1 or true for a right answer"),
        ("0,a,b,2,1", "'right.small': is the text '2'; write 1 or true"),
        ("0,a,,1,0", "'right.large': is not empty, but 'large' has no output"),
    ],
)
def test_invalid_cells_are_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InvalidLogError, match=r"log\.csv, row 1 \(line 2\), column") as caught:
        correctness(Log(saved(tmp_path, HEADER + row)))
    assert message in str(caught.value)


def test_a_label_and_right_columns_must_agree(tmp_path: Path) -> None:
    header = HEADER.replace("right.small", "label,right.small")
    agree = "0,a,b,b,0,1\n0,a,b,b,,\n0,a,b,,1,0\n0,a,b,,,\n"
    right, labelled = correctness(Log(saved(tmp_path, header + agree)))
    assert right == [[False, True], [False, True], [True, False], [False, False]]
    assert labelled == [True, True, True, False]

    path = saved(tmp_path, header + agree + "0,a,b,a,0,1\n")
    with pytest.raises(InvalidLogError, match="marks 'small' as wrong, which contradicts 'label'"):
        correctness(Log(path))
    by_label = Log(path, Columns(right=()))
    assert (by_label.layout.label, by_label.layout.right) == ("label", ())
    assert correctness(by_label)[0][4] == [True, False]
    by_arm = Log(path, Columns(label=""))
    assert (by_arm.layout.label, by_arm.has_labels) == (None, True)
    assert correctness(by_arm)[0][4] == [False, True]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    text = "x,small,large,ok_small,ok_large\n0,a,b,0,1\n"
    names = Columns(context=("x",), outputs=("small", "large"), right=("ok_small", "ok_large"))
    assert correctness(Log(saved(tmp_path, text), names)) == ([[False, True]], [True])
    with pytest.raises(InvalidLogError, match=r"a column for each of the 2 arms, .* got 1"):
        Log(saved(tmp_path, text), msgspec.structs.replace(names, right=("ok_small",)))
    with pytest.raises(
        InvalidLogError, match=r"no column 'missing'.* with --right or Columns\(right"
    ):
        Log(saved(tmp_path, text), msgspec.structs.replace(names, right=("ok_small", "missing")))
    with pytest.raises(InvalidLogError, match="before the first arm, but 'ok_small' is a label"):
        Log(saved(tmp_path, text), msgspec.structs.replace(names, context=("x", "ok_small")))
    with pytest.raises(InvalidLogError, match=r"column 'right\.medium' does not belong to an arm"):
        Log(saved(tmp_path, HEADER.replace("right.large", "right.medium") + "0,a,b,0,1\n"))


def test_the_writer_rejects_invalid_correctness(tmp_path: Path) -> None:
    two = finished("a", "b")
    with (
        LogWriter(tmp_path / "a.csv", ["small", "large"], ["x"], labels=True) as log,
        pytest.raises(InvalidLogError, match="create the LogWriter with right=True"),
    ):
        log.write(two, right=[True, False])
    with LogWriter(tmp_path / "b.csv", ["small", "large"], ["x"], labels=True, right=True) as log:
        with pytest.raises(InvalidLogError, match="has both label and right"):
            log.write(two, "b", right=[False, True])
        values: list[Any] = [[True], [True, False, True], [1, 0], ["yes", "no"]]
        for right in values:
            with pytest.raises(InvalidLogError, match="True or False for each of the 2 arms"):
                log.write(two, right=right)
        log.write(two, "b")
        log.write(two, right=[True, False])
    assert correctness(Log(tmp_path / "b.csv"))[0] == [[False, True], [True, False]]


def two_logs(folder: Path, answers: Arms, rounds: Sequence[Round]) -> tuple[Path, Path]:
    """Write rounds twice: half of them with labels, and the same half with correctness."""
    for name in ("answers", "arms"):
        (folder / name).mkdir()
    paths = folder / "answers" / "log.csv", folder / "arms" / "log.csv"
    with writer(paths[0], labels=True) as log:
        for t, done in enumerate(rounds):
            log.write(done, str(answers.labels[t]) if t % 2 else None)
    with LogWriter(paths[1], NAMES, ["a", "b", "c", "d"], right=True) as log:
        for t, done in enumerate(rounds):
            right = [output == answers.labels[t] for output in done.outputs]
            log.write(done, right=right if t % 2 else None)
    return paths


def without_answer_counts(text: bytes) -> dict[str, Any]:
    """Return results as plain values, without the counts of answers, which include labels."""
    return {key: value for key, value in msgspec.json.decode(text).items() if key != "answers"}


@pytest.mark.parametrize("complete", [True, False])
def test_replay_gives_the_same_report_for_labels_and_correctness(
    tmp_path: Path, complete: bool
) -> None:
    answers = arms(1500)
    rounds = full(answers) if complete else truncate(full(answers), lambda t: t % 3)
    first, second = (
        sw.replay(Log(path), CASCADE, ["uss-laplace", "uss-anchor"], labels=60)
        for path in two_logs(tmp_path, answers, rounds)
    )
    assert without_answer_counts(first.to_json()) == without_answer_counts(second.to_json())
    assert first.labelled == 750
    assert first.fixed[0].error is not None
    assert first.answered["uss-laplace"] > 10
    for name, stops in first.decisions.items():
        assert stops.tolist() == second.decisions[name].tolist()


def test_diagnosis_gives_the_same_report_for_labels_and_correctness(tmp_path: Path) -> None:
    answers = arms(1500)
    first, second = (
        sw.diagnose(Log(path), CASCADE) for path in two_logs(tmp_path, answers, full(answers))
    )
    assert without_answer_counts(as_json(first, "")) == without_answer_counts(as_json(second, ""))
    assert first.audit is not None
    assert first.labelled == 750


def test_rows_to_label_have_the_columns_of_the_log(tmp_path: Path) -> None:
    answers = arms(20)
    for path, label_columns in zip(
        two_logs(tmp_path, answers, full(answers)),
        ("label", "right.rules,right.small,right.large"),
        strict=True,
    ):
        write_label_rows(Log(path), [0, 3], tmp_path / "rows.csv")
        header, first, _ = (tmp_path / "rows.csv").read_text().splitlines()
        assert header == f"row,id,time,output.rules,output.small,output.large,{label_columns}"
        assert first.endswith("," * (label_columns.count(",") + 1))
