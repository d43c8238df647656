"""``stopwise diagnose``: on good logs, on bad ones, and interrupted in a process of its own."""

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


def test_into_a_pipe_it_writes_a_summary_and_a_report(
    process: Run, log: Path, tmp_path: Path
) -> None:
    """A pipe gets neither colours nor control characters."""
    done = process("diagnose", log.name, *COSTS)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    assert "? probably" in done.stdout
    for arm in ARMS:
        assert re.search(rf"^ *{arm} .*%", done.stdout, re.MULTILINE)
    assert f"Open visits-diagnosis{os.sep}report.html" in done.stdout
    folder = tmp_path / "visits-diagnosis"
    assert {p.name for p in folder.iterdir()} == {"report.html", "diagnosis.json", "figures"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "stopwise diagnose visits.csv --costs 0.01,0.04,0.1<" in page
    assert str(tmp_path) not in page


def test_json_is_all_there_is_on_standard_output(stopwise: Run, tmp_path: Path) -> None:
    """With columns of other names, labels and cumulative costs."""
    table = rounds(1500, (0.2, 0.1, 0.05))
    renamed = {name.partition(".")[2] or "truth": column for name, column in table.items()}
    write_csv(tmp_path / "mine.csv", renamed)
    words = ("--cumulative", "--context", "age", "--outputs", ",".join(ARMS), "--label", "truth")
    more = ("--degree", "2", "--seed", "3", "--out", "here", "--json")
    done = stopwise("diagnose", "mine.csv", "--costs", "0.01, 0.05, 0.15", *words, *more)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [arm["name"] for arm in found["arms"]] == list(ARMS)
    assert [arm["total"] for arm in found["arms"]] == [0.01, 0.05, 0.15]
    expected = {"seed": 3, "degree": 2, "rows": 1500, "labelled": 1500, "context": ["age"]}
    assert {name: found[name] for name in expected} == expected
    assert found["command"].endswith("--degree 2 --seed 3")
    errors = [error["value"] for error in found["audit"]["errors"]]
    wrong = [np.mean(table[f"output.{arm}"] != table["label"]) for arm in ARMS]
    assert errors == pytest.approx(wrong, abs=1e-9)
    assert (tmp_path / "here" / "diagnosis.json").read_text(encoding="utf-8") == done.stdout
    assert "Open here" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--costs", "0.01,0.04"], "2 costs for 3 arms: give one for each of nurse, doctor, prof"),
        (["--costs", "0.01,0.04,nan"], "'nan' is no number"),
        (["--costs", "0.3,0.2,0.1", "--cumulative"], "may not decrease"),
        ([], "--costs"),
        ([*COSTS, "--outputs", "a,,b"], "names no column"),
        ([*COSTS, "--degree", "5"], "--degree"),
        ([*COSTS, "--out", "visits.csv"], "--out"),
    ],
)
def test_usage_errors(
    stopwise: Run, log: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    done = stopwise("diagnose", log.name, *words)
    assert done.returncode == 2
    assert says in re.sub(r"[\s│]+", " ", done.stderr)
    assert [p.name for p in tmp_path.iterdir()] == [log.name]


HEAD = "context.age,output.nurse,output.doctor,output.professor\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "bad.csv"),
        ("", "bad.csv"),
        (HEAD + "0.5,1,1,1\n" * 99 + "0.5,1,,1\n", "output.doctor"),
        (HEAD + "0.5,1,1,1\n" * 9, "9 rows"),
    ],
    ids=["not there", "empty", "a hole", "too few"],
)
def test_a_bad_log_is_named_and_nothing_is_written(
    stopwise: Run, tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "bad.csv").write_text(content, encoding="utf-8")
    done = stopwise("diagnose", "bad.csv", *COSTS)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"] * (content is not None)


def test_without_matplotlib_it_names_what_to_install_before_any_work(
    stopwise: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # import raises ImportError
    done = stopwise("diagnose", log.name, *COSTS)
    assert done.returncode == 1
    assert "[logs]'" in done.stderr
    assert done.stdout == ""
    assert not log.with_name("visits-diagnosis").exists()


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table(rounds(1_000_000, (0.2, 0.1, 0.05))), path)
    with subprocess.Popen(
        [sys.executable, "-m", "stopwise", "diagnose", path.name, *COSTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=_environment(),
    ) as process:
        assert process.stdout is not None
        assert any("reading" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 1
    assert rest.endswith("stopwise: interrupted; nothing was written.\n")
    assert [p.name for p in tmp_path.iterdir()] == ["long.parquet"]


def _environment() -> dict[str, str]:
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, "COLUMNS": "100"}
