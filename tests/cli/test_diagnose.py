"""``stopwise diagnose``: valid and invalid logs, options, and interrupts."""

import csv
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

from tests.cli.conftest import ARMS, Run, flat, rounds
from tests.helpers.log_files import save

COSTS = ("--costs", "0.01,0.04,0.1")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    table = rounds(1500)
    del table["label"]
    return save(tmp_path / "visits.csv", table)


def test_help_explains_columns_and_options(stopwise: Run) -> None:
    done = stopwise("diagnose", "--help")
    assert done.returncode == 0
    shown = flat(done.stdout)
    for text in (
        "one row per round",
        ".parquet, .csv or .jsonl",
        "context.",
        "output.",
        "right answer",
        "--context age,bmi --outputs history,glucose,insulin --label ill",
        "one wrong answer",
        "--costs",
        "--cumulative",
        "--degree",
        "--seed",
        "--json",
        "--out",
        "LOG-diagnosis",
    ):
        assert text in shown, text
    assert re.search(r"0\.25 \\ *\n +--context", done.stdout)  # the example can be pasted


def test_piped_output_has_a_summary_without_control_characters(
    process: Run, log: Path, tmp_path: Path
) -> None:
    done = process("diagnose", log.name, *COSTS)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    diagnosis = json.loads((tmp_path / "visits-diagnosis" / "diagnosis.json").read_bytes())
    needed = f"Labels on {diagnosis['plan']['labels']} rows are needed to say whether "
    assert diagnosis["verdict"]["headline"].startswith(needed)
    assert f"? labels needed  {needed}" in done.stdout
    text = flat(done.stdout).replace("\xa0", " ")
    assert text.count("Recommended: ") == 1
    assert diagnosis["recommendation"]["sentence"].replace("\xa0", " ") in text
    assert "contradicts" not in text
    for arm in ARMS:
        assert re.search(rf"^ *{arm} .*%", done.stdout, re.MULTILINE)
    assert f"Report: visits-diagnosis{os.sep}report.html" in done.stdout
    assert ": stopwise replay visits.csv --costs 0.01,0.04,0.1 --answers\n" in done.stdout
    folder = tmp_path / "visits-diagnosis"
    assert {p.name for p in folder.iterdir()} == {"report.html", "diagnosis.json", "figures"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "stopwise diagnose visits.csv --costs 0.01,0.04,0.1<" in page
    assert str(tmp_path) not in page


def test_json_is_the_only_standard_output(stopwise: Run, tmp_path: Path) -> None:
    """Also with other column names, labels and cumulative costs."""
    table = rounds(1500)
    renamed = {name.partition(".")[2] or "truth": column for name, column in table.items()}
    save(tmp_path / "renamed.csv", renamed)
    words = ("--context", "hard,age", "--outputs", ",".join(ARMS), "--label", "truth")
    more = ("--cumulative", "--degree", "2", "--seed", "3", "--out", "here", "--json")
    done = stopwise("diagnose", "renamed.csv", "--costs", "0.01, 0.05, 0.15", *words, *more)
    assert done.returncode == 0, done.stderr
    diagnosis = json.loads(done.stdout)
    arms = [(arm["name"], arm["total"]) for arm in diagnosis["arms"]]
    assert arms == list(zip(ARMS, [0.01, 0.05, 0.15], strict=True))
    expected = {"seed": 3, "degree": 2, "rows": 1500, "labelled": 1500, "context": ["hard", "age"]}
    assert {name: diagnosis[name] for name in expected} == expected
    assert diagnosis["command"].endswith("--degree 2 --seed 3")
    wrong = [np.mean(table[f"output.{arm}"] != table["label"]) for arm in ARMS]
    assert [arm["error"]["value"] for arm in diagnosis["arms"]] == pytest.approx(wrong, abs=1e-9)
    assert (tmp_path / "here" / "diagnosis.json").read_text(encoding="utf-8") == done.stdout
    assert "Report: here" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--costs", "0.01,0.04"], "must list the cost of running each of"),
        (["--costs", "0.01,0.04,nan"], "costs[2] must be a number >= 0, got nan"),
        (["--costs", "0.3,0.2,0.1", "--cumulative"], "must not decrease"),
        ([], "--costs"),
        ([*COSTS, "--outputs", "a,,b"], "has no column 'a', '', 'b'"),
        ([*COSTS, "--degree", "5"], "--degree"),
        ([*COSTS, "--out", "visits.csv"], "--out"),
        ([*COSTS, "--label-rows", "visits.csv"], "exists; use another file name, or --overwrite"),
        (["--prices", "10,40,100"], "requires --error-cost, the cost of one wrong answer"),
        ([*COSTS, "--prices", "1,4,10", "--error-cost", "100"], "cannot be combined with --costs"),
        ([*COSTS, "--label", "truth"], "no column 'truth'"),
        ([*COSTS, "--label", "truth"], "'output.large'. Choose other columns with --label"),
        ([*COSTS, "--context", "x"], "--context or Columns(context=…), or pass an empty value"),
    ],
)
def test_usage_errors_exit_with_2_and_write_no_file(
    stopwise: Run, log: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = stopwise("diagnose", log.name, *words)
    assert done.returncode == 2
    assert message in flat(done.stderr)
    assert [p.name for p in tmp_path.iterdir()] == [log.name]


def test_label_rows_are_written_with_outputs_and_empty_labels(
    stopwise: Run, tmp_path: Path
) -> None:
    table = rounds(4000)
    del table["label"]
    answers = {f"output.{arm}": np.array(["ill", "well"])[table[f"output.{arm}"]] for arm in ARMS}
    table = {"id": [f"v{k}" for k in range(4000)], **table, **answers}
    save(tmp_path / "visits.csv", {name: list(column) for name, column in table.items()})
    words = ("diagnose", "visits.csv", *COSTS, "--label-rows", "todo.csv", "--json")
    done = stopwise(*words)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert f"Rows to label: {len(plan['rows'])}, written to todo.csv" in done.stderr
    with (tmp_path / "todo.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == ["row", "id", *(f"output.{arm}" for arm in ARMS), "label"]
    assert len(lines) == len(plan["rows"]) == plan["labels"] > 50
    for number, *texts, label in lines:
        row = int(number) - 1
        assert texts == [f"v{row}", *(answers[f"output.{arm}"][row] for arm in ARMS)]
        assert len(set(texts[1:])) == 2  # arms disagree
        assert label == ""
    before = (tmp_path / "todo.csv").read_bytes()
    assert stopwise(*words).returncode == 2
    assert (tmp_path / "todo.csv").read_bytes() == before
    assert stopwise(*words, "--overwrite", "--seed", "1").returncode == 0
    assert (tmp_path / "todo.csv").read_bytes() != before  # another seed, other rows


def test_too_few_or_no_rows_to_label_are_reported(stopwise: Run, log: Path, tmp_path: Path) -> None:
    save(tmp_path / "all.csv", rounds(1500))
    done = stopwise("diagnose", "all.csv", *COSTS, "--label-rows", "todo.csv")
    assert "No rows to label" in done.stdout
    assert not (tmp_path / "todo.csv").exists()
    cheap = ("--costs", "0.01,0.004,0.004")  # a small gain would pay, so many labels are needed
    done = stopwise("diagnose", log.name, *cheap, "--label-rows", "todo.csv")
    n = len((tmp_path / "todo.csv").read_text().splitlines()) - 1
    assert f"(the log has only {n} such rows without a label, which are too few)" in flat(
        done.stdout
    )
    assert re.search(rf"Rows to label: {n}, written to todo.csv \([\d,]+ are needed", done.stdout)


def test_prices_are_shown_in_the_currency_and_costs_like_money_cause_a_warning(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    done = stopwise("diagnose", log.name, "--prices", "10,40,100", "--error-cost", "1000")
    assert done.returncode == 0, done.stderr
    assert re.search(r"large .* 100 +150 ", done.stdout)  # own and total cost
    unit = "in the currency of your prices (one wrong answer costs 1,000)"
    assert f"costs are {unit}" in flat(done.stdout)
    assert "at your prices (95" in flat(done.stdout)
    diagnosis = json.loads((tmp_path / "visits-diagnosis" / "diagnosis.json").read_bytes())
    assert diagnosis["error_cost"] == 1000
    assert [arm["total"] for arm in diagnosis["arms"]] == [10, 50, 150]
    assert diagnosis["saving"]["per_round"]["value"] > 1
    page = (tmp_path / "visits-diagnosis" / "report.html").read_text(encoding="utf-8")
    assert "--costs 10,40,100 --error-cost 1000<" in page
    assert "amounts of money" not in page
    done = stopwise("diagnose", log.name, "--costs", "10,40,100")
    page = (tmp_path / "visits-diagnosis" / "report.html").read_text(encoding="utf-8")
    for text in (flat(done.stdout), flat(done.stderr), page):
        assert "costs as much as 10 wrong answers" in text
        assert "amounts of money" in text
        assert "--error-cost" in text
    assert "nothing to learn" in flat(done.stdout)


@pytest.mark.parametrize(
    ("rows", "extra", "message"),
    [(10, "", "9 rows"), (None, "0.5,30,1,,1\n", "output.small"), (0, "", "visits.csv")],
)
def test_an_invalid_log_is_named_and_no_file_is_written(
    stopwise: Run, log: Path, rows: int | None, extra: str, message: str
) -> None:
    lines = log.read_text().splitlines(keepends=True)[:rows]
    log.write_text("".join(lines) + extra)
    done = stopwise("diagnose", log.name, *COSTS)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert list(log.parent.iterdir()) == [log]


def test_a_missing_log_is_a_usage_error(stopwise: Run) -> None:
    assert stopwise("diagnose", "none.csv", *COSTS).returncode == 2


def test_missing_matplotlib_is_reported_before_reading_the_log(
    stopwise: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # import raises ImportError
    done = stopwise("diagnose", log.name, *COSTS)
    assert done.returncode == 1
    assert "[logs]'" in done.stderr
    assert done.stdout == ""
    assert not log.with_name("visits-diagnosis").exists()


def test_an_interrupt_leaves_no_files(tmp_path: Path) -> None:
    pq.write_table(pa.table(rounds(400_000)), tmp_path / "long.parquet")
    with subprocess.Popen(
        [sys.executable, "-m", "stopwise", "diagnose", "long.parquet", *COSTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
    ) as process:
        assert process.stdout is not None
        assert any("reading" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 1
    assert rest.endswith("stopwise: interrupted. Nothing was written.\n")
    assert [p.name for p in tmp_path.iterdir()] == ["long.parquet"]


def test_tenants_are_listed(stopwise: Run, tmp_path: Path) -> None:
    clinics = [("north", "south")[t % 2] for t in range(1500)]
    save(tmp_path / "visits.csv", rounds(1500) | {"clinic": clinics})
    done = stopwise("diagnose", "visits.csv", *COSTS, "--by", "clinic", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    for clinic in ("north", "south"):
        saved = rf"^  {clinic}: saving per 1,000 rounds -?−?[\d.]+ \(750 rows\)$"
        assert re.search(saved, done.stdout, re.MULTILINE)
    page = (tmp_path / "visits-diagnosis" / "report.html").read_text()
    assert "By clinic, with separate models for each value" in page
    assert "--by clinic" in done.stdout  # also in the suggested replay command
