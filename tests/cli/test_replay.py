"""``stopwise replay``: valid and invalid logs, the table and its conclusions."""

import json
import re
from pathlib import Path

import pytest

import stopwise as sw
from tests.cli.conftest import ARMS, Run, flat, rounds
from tests.helpers.log_files import save

COSTS = ("--costs", "0.02,0.1,0.25")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return save(tmp_path / "visits.csv", rounds(1500))


def test_piped_output_has_a_table_and_conclusions(stopwise: Run, log: Path, tmp_path: Path) -> None:
    words = ("--policy", "uss-pd:sigma=0.05", "--policy", "thompson:scale=0.5")
    done = stopwise("replay", log.name, *COSTS, *words, FORCE_COLOR="", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    folder = tmp_path / "visits-replay"
    assert sorted(path.name for path in folder.iterdir()) == ["replay.json", "replay.png"]
    result = json.loads((folder / "replay.json").read_bytes())
    names = [row["name"] for row in result["policies"]]
    assert sorted(names) == ["thompson:scale=0.5", "uss-pd:sigma=0.05"]
    for arm in ARMS:
        assert re.search(rf"^ *always {arm} .*100.*%", done.stdout, re.MULTILINE)
    chosen = result["recommendation"]
    less = 1 - chosen["cost"] / result["costs"][-1]
    text = flat(done.stdout)
    assert text.count("Recommended: ") == 1
    assert chosen["sentence"].replace("\xa0", " ") in text.replace("\xa0", " ")
    assert f" would have cost {chosen['cost']:.3g} per round, {100 * less:.0f} % less than" in text
    assert f"Answers of large: {result['answers']['listed'][0]['answer']} " in text
    assert "the log has the outcome of every decision" in text
    stages = [line.split(" ")[0] for line in done.stderr.splitlines() if re.search(r"\d/\d", line)]
    assert list(dict.fromkeys(stages))[:2] == ["reading", "replaying"]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_numbers_are_not_truncated_on_a_narrow_terminal(
    stopwise: Run, log: Path, tmp_path: Path, columns: str
) -> None:
    done = stopwise("replay", log.name, *COSTS, COLUMNS=columns)
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    result = json.loads((tmp_path / "visits-replay" / "replay.json").read_bytes())
    shown = re.findall(r"^ ?(?:uss-\w+|always \w+) .* (\d\.\d+) ?$", done.stdout, re.MULTILINE)
    losses = [row["loss"]["value"] for row in (*result["policies"], *result["fixed"])]
    assert [float(text) for text in shown] == pytest.approx(losses, abs=6e-4)


def test_numbers_are_not_truncated_with_every_column(stopwise: Run, tmp_path: Path) -> None:
    table = {name: column.tolist() for name, column in rounds(1200).items()}
    table["output.large"] = [y if t % 3 else None for t, y in enumerate(table["output.large"])]
    save(tmp_path / "cut.jsonl", table)
    done = stopwise("replay", "cut.jsonl", *COSTS, "--labels", "50", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.partition("1,200 rounds")[0].splitlines()
    assert max(map(len, lines)) <= 80
    result = json.loads((tmp_path / "cut-replay" / "replay.json").read_bytes())
    shown = re.findall(r" ([\d,]+) *\n[^\n]* of 1,200 *$", done.stdout, re.MULTILINE)
    assert shown == [f"{row['rounds']:,}" for row in (*result["policies"], *result["fixed"])]


def test_policies_are_not_compared_on_a_log_that_ends_early(stopwise: Run, tmp_path: Path) -> None:
    table = {name: column.tolist() for name, column in rounds(900).items()}
    table["output.large"] = [y if t % 3 else None for t, y in enumerate(table["output.large"])]
    del table["label"]
    save(tmp_path / "cut.jsonl", table)
    words = ("--policy", "fixed-depth:depth=large", "--policy", "fixed-depth:depth=rules")
    done = stopwise("replay", "cut.jsonl", *COSTS, *words)
    assert done.returncode == 0, done.stderr
    text = flat(done.stdout)
    assert "went deeper than the log in 300 of 900 rounds (33 %)" in text
    assert "its disagreement is known for only 600 of 900 rounds" in text
    assert "not totals" in text
    assert "best fixed" not in text
    assert len(re.findall(r"\bof 600 +of 600\b", done.stdout)) == 3  # the policy, rules, small


def test_with_prices_all_amounts_are_in_the_currency(
    stopwise: Run, log: Path, tmp_path: Path
) -> None:
    words = ("--policy", "uss-laplace", "--error-cost", "200", "--budget", "30")
    done = stopwise("replay", log.name, "--prices", "4,20,50", *words)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "visits-replay" / "replay.json").read_bytes())
    assert result["costs"] == [4.0, 24.0, 74.0]
    text = flat(done.stdout)
    assert re.search(r"always large .* 74 ", text)
    assert "in the currency of your prices (one wrong answer costs 200)" in text
    assert text.count("Recommended: ") == 1
    assert result["recommendation"]["cost"] <= 30
    low = stopwise("replay", log.name, "--prices", "4,20,50", *words[:-1], "3")
    assert "Recommended: always rules; no option costs at most 3 per round" in flat(low.stdout)


def test_the_same_command_gives_the_same_bytes(stopwise: Run, log: Path) -> None:
    words = ("replay", log.name, *COSTS, "--json", "--policy", "thompson", "--labels", "50")
    words += ("--policy", "uss-laplace", "--answers")
    first, again = stopwise(*words), stopwise(*words, "--out", "there")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert json.loads(first.stdout)["rounds"] == 1500
    assert first.stdout.encode() == (log.parent / "visits-replay" / "replay.json").read_bytes()
    other = stopwise(*words, "--seed", "1")
    assert other.stdout != first.stdout


def test_a_saved_policy_continues_or_is_rejected(stopwise: Run, log: Path, tmp_path: Path) -> None:
    cascade = sw.Cascade([0.02, 0.1, 0.25], names=ARMS)
    policy = sw.USSUCB(cascade, a=0.01)
    for _ in range(2000):  # learns that arms never disagree
        policy.observe([], [1, 1, 1])
    policy.save(tmp_path / "trained.stopwise")
    done = stopwise("replay", log.name, *COSTS, "--policy", "trained.stopwise", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["policies"]
    assert row["name"] == "trained.stopwise"
    assert row["depths"][0]["value"] > 0.2  # it did not start with exploration

    costs = ("--costs", "1,1,1.5")
    done = stopwise("replay", log.name, *costs, "--policy", "trained.stopwise", "--out", "no")
    assert done.returncode == 2
    assert "another cascade" in flat(done.stderr)
    assert "arm 'large' costs as much as 1.5 wrong answers" in flat(done.stderr)
    assert stopwise("replay", log.name, "--prices", "1,1,1.5").returncode == 2
    done = stopwise("replay", log.name, *costs)
    assert "Warning: running arm 'large' costs as much as 1.5 wrong answers" in flat(done.stdout)
    assert '"stopwise diagnose" excludes these' in flat(done.stdout)
    assert not (tmp_path / "no").exists()


def test_an_invalid_log_leaves_no_files(stopwise: Run, tmp_path: Path) -> None:
    table = rounds(70_000)
    table["output.small"] = [*table["output.small"][:-1], None]  # beyond the first chunk
    path = save(tmp_path / "log.csv", table)
    done = stopwise("replay", "log.csv", *COSTS)
    assert done.returncode == 2
    assert re.search(r"log\.csv, row 70,?000 \(line 70001\).*output\.small", flat(done.stderr))
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [path]
    path = path.rename(tmp_path / "log.xlsx")
    done = stopwise("replay", "log.xlsx", *COSTS)
    assert done.returncode == 2
    assert "the name of a log must end in .parquet, .csv" in flat(done.stderr)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*COSTS, "--policy", "uss-dp"], "did you mean 'uss-pd'?"),
        ([*COSTS, "--labels", "-2"], "--labels"),
        (
            [*COSTS, "--labels", "9", "--policy", "uss-anchor"],
            "requires a policy that requests labels, got uss-anchor",
        ),
        ([*COSTS, "--seed", "-1"], "--seed"),
        ([], "running each of rules, small, large, in this order"),
        (
            [*COSTS, "--outputs", "output.rules,output.small,label"],
            "both the label and the output of an arm",
        ),
    ],
)
def test_usage_errors_are_reported_before_the_log_is_read(
    stopwise: Run, log: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    done = stopwise("replay", log.name, *words)
    assert done.returncode == 2
    assert message in flat(done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == [log]


def test_tenants_and_a_budget_appear_in_the_summary_and_the_file(
    stopwise: Run, tmp_path: Path
) -> None:
    clinics = [("north", "south", "east")[t % 3] for t in range(1500)]
    save(tmp_path / "visits.csv", rounds(1500) | {"clinic": clinics})
    words = ("--by", "clinic", "--policy", "uss-pd", "--cost-weights", "0.5,1,2", "--jobs", "2")
    done = stopwise("replay", "visits.csv", *COSTS, *words, "--budget", "0.2")
    assert done.returncode == 0, done.stderr
    assert "replaying" in done.stderr
    text = flat(done.stdout)
    result = json.loads((tmp_path / "visits-replay" / "replay.json").read_bytes())
    assert result["recommendation"]["cost"] <= 0.2
    assert result["recommendation"]["sentence"].replace("\xa0", " ") in text.replace("\xa0", " ")
    assert text.count("Recommended: ") == 1
    assert "3 values of clinic, each with separate policies." in text
    assert {name: tenant["rounds"] for name, tenant in result["tenants"].items()} == dict.fromkeys(
        ("north", "south", "east"), 500
    )
    assert [replay["weight"] for replay in result["grid"]] == [0.5, 1.0, 2.0]
    again = stopwise("replay", "visits.csv", *COSTS, *words, "--budget", "0.2", "--json")
    assert json.loads(again.stdout) == result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "ward"), "no column 'ward'"),
        (("--cost-weights", "1,x"), "numbers such as 0.01,0.24,0.25; got '1,x'"),
        (("--cost-weights", "0"), "weights must be"),
        (("--by", "label", "--address", "127.0.0.1:1"), "requires executor 'dask'"),
    ],
)
def test_invalid_tenants_and_weights_are_rejected(
    stopwise: Run, log: Path, words: tuple[str, ...], message: str
) -> None:
    done = stopwise("replay", log.name, *COSTS, *words)
    assert done.returncode == 2
    assert message in flat(done.stderr)


def test_categories_are_encoded_and_answers_normalised(stopwise: Run, tmp_path: Path) -> None:
    table = {name: column.tolist() for name, column in rounds(300).items()}
    table["context.site"] = ["north" if t % 3 else "south" for t in range(300)]
    table["output.large"] = ["yes" if y else "no" for y in table["output.large"]]
    save(tmp_path / "messy.csv", table)
    words = ("replay", "messy.csv", *COSTS, "--policy", "uss-laplace")
    done = stopwise(*words)
    assert done.returncode == 0, done.stderr
    before = flat(done.stdout.partition("stops at (%)")[0])
    assert "Warning: 'rules' and 'large' have no answer in common" in before
    assert "site: category: 0 or 1 for each of south, all other values; zeros for north" in before
    done = stopwise(*words, "--normalise-answers")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout


def test_columns_of_right_arms_replace_the_label(stopwise: Run, tmp_path: Path) -> None:
    table = {name: column.tolist() for name, column in rounds(600).items()}
    save(tmp_path / "labels.csv", table)
    answers = table.pop("label")
    names = [f"{arm} ok" for arm in ARMS]
    for arm, name in zip(ARMS, names, strict=True):
        table[name] = [a == y for a, y in zip(table[f"output.{arm}"], answers, strict=True)]
    save(tmp_path / "arms.csv", table)
    results: list[dict[str, object]] = []
    for log, options in (("labels.csv", ()), ("arms.csv", ("--right", ",".join(names)))):
        done = stopwise("replay", log, *COSTS, *options, "--labels", "50", "--json")
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    for result in results:
        del result["answers"], result["log"]
    assert results[0] == results[1]
    assert results[0]["judged_by"] == "total loss"
    both = stopwise("diagnose", "labels.csv", *COSTS, "--right", ",".join(names))
    assert both.returncode == 2
    assert "has no column 'rules ok'" in flat(both.stderr)
