"""``stopwise diagnose``, run for real: on good logs, on bad ones, and interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

COSTS = ("--costs", "0.01,0.04,0.1")
ARMS = ("nurse", "doctor", "professor")


def rounds(n: int, errors: tuple[float, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Arms that err independently, twice as often where age is high."""
    random = np.random.default_rng(seed)
    age = random.uniform(size=n)
    truth = random.integers(0, 2, n)
    wrong = [random.uniform(size=n) < e * (0.5 + (age > 0.5)) for e in errors]
    table = {"context.age": age}
    table |= {f"output.{arm}": truth ^ w for arm, w in zip(ARMS, wrong, strict=False)}
    return table | {"label": truth}


def write_csv(path: Path, table: dict[str, np.ndarray]) -> None:
    lines = [
        ",".join(table),
        *(",".join(map(str, row)) for row in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    table = rounds(1500, (0.2, 0.1, 0.05))
    del table["label"]
    write_csv(tmp_path / "visits.csv", table)
    return tmp_path / "visits.csv"


def test_help_teaches_with_an_example(stopwise: Run) -> None:
    done = stopwise("diagnose", "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "stopwise diagnose visits.parquet --costs 0.01,0.24,0.25" in text
    for option in ("--costs", "--cumulative", "--context", "--outputs", "--label", "--degree"):
        assert option in text


def test_into_a_pipe_it_writes_a_summary_and_a_report(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    done = stopwise("diagnose", log.name, *COSTS, FORCE_COLOR="", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout)
    assert "? probably" in done.stdout
    for arm in ARMS:
        assert re.search(rf"^ *{arm} .*%", done.stdout, re.MULTILINE)
    assert f"Open visits-diagnosis{os.sep}report.html" in done.stdout
    folder = tmp_path / "visits-diagnosis"
    assert {p.name for p in folder.iterdir()} == {"report.html", "diagnosis.json", "figures"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "stopwise diagnose visits.csv --costs 0.01,0.04,0.1<" in page
    assert str(tmp_path) not in page


def test_json_is_all_there_is_on_standard_output(stopwise: Run, log: Path, tmp_path: Path) -> None:
    done = stopwise("diagnose", log.name, *COSTS, "--json", "--seed", "3", "--out", "here")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"]["answer"] == "probably"
    assert [arm["name"] for arm in found["arms"]] == list(ARMS)
    assert [arm["total"] for arm in found["arms"]] == pytest.approx([0.01, 0.05, 0.15])
    assert found["seed"] == 3
    assert found["rows"] == 1500
    assert (tmp_path / "here" / "diagnosis.json").read_text(encoding="utf-8") == done.stdout
    assert "Open here" in done.stderr


def test_columns_of_other_names_and_cumulative_costs(stopwise: Run, tmp_path: Path) -> None:
    table = rounds(1500, (0.2, 0.1, 0.05))
    renamed = {name.partition(".")[2] or "truth": column for name, column in table.items()}
    write_csv(tmp_path / "mine.csv", renamed)
    words = ("--cumulative", "--context", "age", "--outputs", ",".join(ARMS), "--label", "truth")
    done = stopwise("diagnose", "mine.csv", "--costs", "0.01, 0.05, 0.15", *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["labelled"] == 1500
    assert found["context"] == ["age"]
    assert [arm["total"] for arm in found["arms"]] == [0.01, 0.05, 0.15]
    errors = [error["value"] for error in found["audit"]["errors"]]
    expected = [np.mean(table[f"output.{arm}"] != table["label"]) for arm in ARMS]
    assert errors == pytest.approx(expected, abs=1e-9)


@pytest.mark.full
def test_a_dear_arm_that_is_worse_is_named(stopwise: Run, tmp_path: Path) -> None:
    table = rounds(4000, (0.15, 0.05, 0.3), seed=1)
    del table["label"]
    write_csv(tmp_path / "bad.csv", table)
    done = stopwise("diagnose", "bad.csv", *COSTS)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "not from disagreement alone" in text
    assert "⚠ professor costs more than" in text
    assert "Either professor is worse than doctor" in text
    assert "agreement alone cannot tell these apart" in text
    assert "Drop" not in text
    assert "• Accuracy from agreement, and its intervals, hold only if" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--costs", "0.01,0.04"], "2 costs for 3 arms: give one for each of nurse, doctor, prof"),
        (["--costs", "0.01"], "1 cost for 3 arms"),
        (["--costs", "0.01,0.04,much"], "'much' is no number"),
        (["--costs", "0.01,,0.1"], "'' is no number"),
        (["--costs", "0.01,0.04,nan"], "'nan' is no number"),
        (["--costs", "0.01,-0.04,0.1"], "--costs"),
        (["--costs", "0.3,0.2,0.1", "--cumulative"], "may not decrease"),
        ([], "--costs"),
        ([*COSTS, "--outputs", "a,,b"], "names no column"),
        ([*COSTS, "--degree", "0"], "--degree"),
        ([*COSTS, "--degree", "5"], "--degree"),
        ([*COSTS, "--seed", "-1"], "--seed"),
        ([*COSTS, "--out", "visits.csv"], "--out"),
    ],
)
def test_usage_errors(
    stopwise: Run, log: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    done = stopwise("diagnose", log.name, *words)
    assert done.returncode == 2
    boxed = re.sub(r"[\s│]+", " ", done.stderr)
    assert says in boxed
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == [log.name]


def test_a_log_that_is_not_there(stopwise: Run, tmp_path: Path) -> None:
    done = stopwise("diagnose", "nowhere.csv", *COSTS)
    assert done.returncode == 2
    assert "nowhere.csv" in done.stderr
    assert list(tmp_path.iterdir()) == []


HEAD = "context.age,output.nurse,output.doctor,output.professor\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "bad.csv"),
        (HEAD, "bad.csv"),
        ("age,score\n1,2\n", "output."),
        (HEAD + "0.5,1,1,1\n" * 99 + "nan,1,1,1\n", "context.age"),
        (HEAD + "0.5,1,1,1\n" * 99 + "0.5,1,,1\n", "output.doctor"),
        (HEAD + "0.5,1,1,1\n" * 9, "9 rows"),
    ],
    ids=["empty", "no rows", "no outputs", "not a number", "a hole", "too few"],
)
def test_a_bad_log_is_one_sentence_and_nothing_is_written(
    stopwise: Run, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "bad.csv").write_text(content, encoding="utf-8")
    done = stopwise("diagnose", "bad.csv", *COSTS)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("stopwise: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_a_truncated_parquet_file(stopwise: Run, tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table(rounds(500, (0.2, 0.1, 0.05))), path)
    path.write_bytes(path.read_bytes()[:-200])
    done = stopwise("diagnose", "cut.parquet", *COSTS)
    assert done.returncode == 2
    assert done.stderr.startswith("stopwise: ")
    assert "cut.parquet" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["cut.parquet"]


def test_without_matplotlib_it_says_what_to_install_before_any_work(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    # found first, as the program runs in this folder
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')")
    done = stopwise("diagnose", log.name, *COSTS)
    assert done.returncode == 1
    assert "pip install 'stopwise[logs]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / "visits-diagnosis").exists()


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table(rounds(3_000_000, (0.2, 0.1, 0.05))), path)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    with subprocess.Popen(
        [sys.executable, "-m", "stopwise", "diagnose", path.name, *COSTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any("reading" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 1
    assert said == "stopwise: interrupted; nothing was written.\n"
    assert [p.name for p in tmp_path.iterdir()] == ["long.parquet"]
