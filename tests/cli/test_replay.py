"""``stopwise replay``, run for real: on good logs, on bad ones, and interrupted."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stopwise as sw
from tests.cli.conftest import Run

COSTS = ("--costs", "0.02,0.1,0.25")
ARMS = ("rules", "small", "large")
Table = dict[str, list[Any]]


def rounds(n: int, seed: int = 0) -> Table:
    """Arms that err more where hard is high, the first one most."""
    random = np.random.default_rng(seed)
    hard = random.uniform(size=n)
    truth = random.integers(0, 2, n)
    errs = [random.uniform(size=n) < e * hard for e in (0.8, 0.4, 0.05)]
    table = {"context.hard": hard.tolist(), "context.age": random.uniform(20, 90, n).tolist()}
    table |= {f"output.{arm}": (truth ^ e).tolist() for arm, e in zip(ARMS, errs, strict=True)}
    return table | {"label": truth.tolist()}


def write(path: Path, table: Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path, row_group_size=65_536)
    elif path.suffix == ".csv":
        lines = [",".join("" if v is None else str(v) for v in row) for row in _rows(table)]
        path.write_text("\n".join([",".join(table), *lines]) + "\n", encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(_nested(table, row)) + "\n" for row in _rows(table)))
    return path


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return list(zip(*table.values(), strict=True))


def _nested(table: Table, row: tuple[Any, ...]) -> dict[str, Any]:
    line: dict[str, Any] = {"context": {}, "outputs": {}}
    for name, value in zip(table, row, strict=True):
        kind, _, rest = name.partition(".")
        if kind == "context":
            line["context"][rest] = value
        elif kind == "output":
            line["outputs"][rest] = value
        else:
            line[name] = value
    return line


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "visits.csv", rounds(1500))


def flat(text: str) -> str:
    """Text as it reads, whatever box or line it was put into."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def test_help_teaches_with_examples(stopwise: Run) -> None:
    done = stopwise("replay", "--help")
    assert done.returncode == 0
    text = flat(done.stdout)
    assert "stopwise replay visits.parquet --costs 0.01,0.24,0.25" in text
    assert "--policy thompson:scale=0.5" in text
    pasted = re.search(r"0\.25 \\ *\n +--policy", done.stdout)
    assert pasted, done.stdout
    assert "--policy before.stopwise" in text
    for option in ("--costs", "--policy", "--audit", "--degree", "--json", "--out", "--seed"):
        assert option in text


def test_into_a_pipe_it_writes_a_table_and_what_to_take_from_it(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    words = ("--policy", "uss-pd:sigma=0.05", "--policy", "thompson:scale=0.5")
    done = stopwise("replay", log.name, *COSTS, *words, FORCE_COLOR="", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    found = json.loads((tmp_path / "visits-replay" / "replay.json").read_bytes())
    names = [one["name"] for one in found["policies"]]
    assert sorted(names) == ["thompson:scale=0.5", "uss-pd:sigma=0.05"]
    assert flat(done.stdout).index(f"{names[0]} would have cost") > 0
    for arm in ARMS:
        assert re.search(rf"^ *always {arm} .*100.*%", done.stdout, re.MULTILINE)
    cost = found["policies"][0]["cost"]["value"]
    assert f"{names[0]} would have cost {cost:.3g} a round" in flat(done.stdout)
    less = 1 - cost / found["costs"][-1]
    assert f"{100 * less:.3g} % less than always going to 'large'" in flat(done.stdout)
    assert "every decision could be looked up in the log" in flat(done.stdout)
    assert sorted(p.name for p in (tmp_path / "visits-replay").iterdir()) == [
        "replay.json",
        "replay.png",
    ]


def test_json_is_all_there_is_on_standard_output(stopwise: Run, log: Path, tmp_path: Path) -> None:
    done = stopwise("replay", log.name, *COSTS, "--json", "--out", "here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.encode() == (tmp_path / "here" / "replay.json").read_bytes()
    assert json.loads(done.stdout)["rounds"] == 1500


def test_the_same_command_gives_the_same_bytes(stopwise: Run, log: Path) -> None:
    words = ("replay", log.name, *COSTS, "--json", "--policy", "thompson", "--audit", "0.1")
    words += ("--policy", "uss-pd:full_depth_every=20")
    first, again = stopwise(*words), stopwise(*words, "--out", "there")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    other = stopwise(*words, "--seed", "1")
    assert other.stdout != first.stdout


def test_a_log_that_ends_early_is_said_to(stopwise: Run, tmp_path: Path) -> None:
    table = rounds(900)
    table["output.large"] = [y if t % 3 else None for t, y in enumerate(table["output.large"])]
    write(tmp_path / "cut.jsonl", table)
    done = stopwise("replay", "cut.jsonl", *COSTS, "--policy", "fixed-depth:depth=large")
    assert done.returncode == 0, done.stderr
    said = flat(done.stdout)
    assert "decided deeper than the log knows in 300 of 900 rounds (33.3 %)" in said
    assert "600 of 900" in said or re.search(r"600.*of 900", said)
    assert "no totals" in said
    assert "best fixed" not in said


def test_what_is_compared_is_counted_beside_it(stopwise: Run, tmp_path: Path) -> None:
    table = rounds(900)
    table["output.large"] = [y if t % 3 else None for t, y in enumerate(table["output.large"])]
    del table["label"]
    write(tmp_path / "cut.jsonl", table)
    done = stopwise("replay", "cut.jsonl", *COSTS, "--policy", "fixed-depth:depth=rules")
    assert "its disagreement is known for 600 of 900 rounds only" in flat(done.stdout)
    assert len(re.findall(r"\bof 600 +of 600\b", done.stdout)) == 3  # the policy, rules, small


@pytest.mark.slow
def test_costs_in_another_unit_are_warned_of(stopwise: Run, log: Path) -> None:
    done = stopwise("replay", log.name, "--costs", "0.5,20,300", "--json")
    assert done.returncode == 0
    assert "costs above 1: small (20), large (300). The unit is one wrong answer" in done.stderr
    assert json.loads(done.stdout)["rounds"] == 1500


def test_progress_names_what_it_is_at(stopwise: Run, log: Path) -> None:
    done = stopwise("replay", log.name, *COSTS)
    stages = [line.split(" ")[0] for line in done.stderr.splitlines() if re.search(r"\d/\d", line)]
    assert list(dict.fromkeys(stages))[:2] == ["reading", "replaying"]


def test_at_a_narrow_terminal_no_number_is_cut(stopwise: Run, log: Path, tmp_path: Path) -> None:
    done = stopwise("replay", log.name, *COSTS, COLUMNS="40")
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    found = json.loads((tmp_path / "visits-replay" / "replay.json").read_bytes())
    blocks = re.findall(r"^  total loss: (\S+) ±\S+$", done.stdout, re.MULTILINE)
    losses = [one["loss"]["value"] for one in (*found["policies"], *found["fixed"])]
    assert [float(text) for text in blocks] == pytest.approx(losses, abs=6e-4)
    done = stopwise("replay", log.name, *COSTS, "--out", "wide", COLUMNS="80")
    assert "…" not in done.stdout
    assert re.search(r"^ ?uss-pd .* \d\.\d+ ?$", done.stdout, re.MULTILINE)  # a table, not blocks


def test_a_log_without_any_answer(stopwise: Run, tmp_path: Path) -> None:
    row = {"context": {"x": 1}, "outputs": {"a": None, "b": None}, "failed": "a"}
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 40)
    done = stopwise("replay", "log.jsonl", "--costs", "0.1,0.2")
    check_refused(done, path, "failed in every round")


def test_a_saved_policy_goes_on(stopwise: Run, log: Path, tmp_path: Path) -> None:
    cascade = sw.Cascade([0.02, 0.1, 0.25], names=ARMS)
    policy = sw.USSUCB(cascade, a=0.01)
    for _ in range(2000):  # taught that arms never disagree
        policy.observe([], [1, 1, 1])
    policy.save(tmp_path / "taught.stopwise")
    done = stopwise("replay", log.name, *COSTS, "--policy", "taught.stopwise", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["policies"]
    assert one["name"] == "taught.stopwise"
    assert one["depths"][0]["value"] > 0.2  # it did not begin by exploring


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--costs", "0.1,0.2"], "2 costs for 3 arms"),
        (["--costs", "0.1,x,0.2"], "'x' is no number"),
        ([*COSTS, "--policy", "uss-dp"], "uss-pd, uss-pd-ridge, thompson"),
        ([*COSTS, "--policy", "saved.stopwise"], "no such file"),
        ([*COSTS, "--policy", "oracle"], "needs the truth"),
        ([*COSTS, "--policy", "thompson:scael=1"], "scale, forced_rounds, ridge, seed"),
        ([*COSTS, "--policy", "thompson:scale=-1"], "scale must be a number"),
        ([*COSTS, "--policy", "fixed-depth:depth=huge"], "'rules', 'small', 'large'"),
        ([*COSTS, "--audit", "2"], "--audit"),
        ([*COSTS, "--degree", "0"], "--degree"),
        ([*COSTS, "--seed", "-1"], "--seed"),
        ([*COSTS, "--context", "hight"], "hight"),
        ([], "in the order rules, small, large: its own cost"),
        ([*COSTS, "--outputs", "output.rules,output.small,label"], "right answers and of an arm"),
        (
            [
                *COSTS,
                "--outputs",
                "output.rules,output.small,output.large",
                "--label",
                "output.large",
            ],
            "right answers and of an arm",
        ),
    ],
)
def test_what_is_not_understood_is_said_and_nothing_begun(
    stopwise: Run, log: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    done = stopwise("replay", log.name, *words)
    assert done.returncode == 2
    assert says in flat(done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == [log]


def bad(table: Table, column: str, row: int, value: Any) -> Table:
    values = list(table[column])
    values[row] = value
    return {**table, column: values}


NAN = float("nan")
TABLE = rounds(300)
TEXTS = {**TABLE, **{c: list(map(str, TABLE[c])) for c in TABLE if c.startswith(("output", "la"))}}
BAD: dict[str, tuple[str, Table, str]] = {
    "no outputs": ("log.parquet", {"context.x": [1.0], "y": [2]}, "no column 'output.<name>'"),
    "no context": ("log.csv", {"output.a": [1], "output.b": [2]}, "no column 'context.<name>'"),
    "NaN, Parquet": ("log.parquet", bad(TABLE, "context.age", 200, NAN), r"row 201.*context\.age"),
    "NaN, CSV": ("log.csv", bad(TABLE, "context.age", 200, NAN), r"row 201.*context\.age"),
    "nothing known": ("log.jsonl", bad(TABLE, "context.age", 9, None), r"row 10.*context\.age"),
    "a hole": ("log.parquet", bad(TABLE, "output.small", 250, None), r"row 251.*output\.small"),
    "a hole, CSV": ("log.csv", bad(TABLE, "output.small", 250, None), r"row 251.*output\.small"),
    "mixed types": ("log.jsonl", bad(TABLE, "output.small", 99, "yes"), r"row 100.*output\.small"),
    "mixed columns": ("log.parquet", {**TABLE, "label": TEXTS["label"]}, "cannot be read; fix"),
    "no rows": ("log.parquet", {name: TABLE[name][:0] for name in TABLE}, "has no rows"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_log_is_a_sentence_that_says_where(stopwise: Run, tmp_path: Path, what: str) -> None:
    name, table, says = BAD[what]
    path = write(tmp_path / name, table)
    costs = COSTS if "output.large" in table else ("--costs", "0.1,0.2")
    check_refused(stopwise("replay", name, *costs), path, says)


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl"])
def test_an_empty_file(stopwise: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    check_refused(stopwise("replay", name, *COSTS), path, "is empty")


@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_a_truncated_parquet_file(stopwise: Run, tmp_path: Path, kept: float) -> None:
    path = write(tmp_path / "log.parquet", TABLE)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    check_refused(stopwise("replay", path.name, *COSTS), path, "cannot be read as Parquet")


def test_a_bad_row_found_late_leaves_nothing_behind(stopwise: Run, tmp_path: Path) -> None:
    """Beyond the first chunk, when decisions have been kept already."""
    table = rounds(70_000)
    path = write(tmp_path / "log.parquet", bad(table, "context.age", 69_000, NAN))
    check_refused(stopwise("replay", path.name, *COSTS), path, r"row 69,?001.*context\.age")


def check_refused(done: subprocess.CompletedProcess[str], path: Path, says: str) -> None:
    assert done.returncode == 2
    said = done.stderr[done.stderr.index("stopwise: ") :]  # progress comes before it
    assert re.match(rf"(?s)stopwise: {re.escape(path.name)}.*{says}", said), done.stderr
    assert "Traceback" not in said
    assert list(path.parent.iterdir()) == [path]


def test_another_format_is_a_usage_error(stopwise: Run, tmp_path: Path) -> None:
    (tmp_path / "log.xlsx").write_bytes(b"PK")
    done = stopwise("replay", "log.xlsx", *COSTS)
    assert done.returncode == 2
    assert ".parquet, .csv" in flat(done.stderr)
    assert "format=" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_policy_made_for_other_numbers_is_a_sentence(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    cascade = sw.Cascade([0.02, 0.1, 0.25], names=ARMS)
    sw.USSPD(cascade, sw.Identity(), 2).save(tmp_path / "narrow.stopwise")
    done = stopwise("replay", log.name, *COSTS, "--policy", "narrow.stopwise")
    assert done.returncode == 2
    assert re.match(r"stopwise: visits\.csv, row 1, .*narrow\.stopwise", done.stderr)
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "visits-replay").exists()
    other = stopwise("replay", log.name, "--costs", "1,1,1", "--policy", "narrow.stopwise")
    assert other.returncode == 2
    assert "another cascade" in flat(other.stderr)
