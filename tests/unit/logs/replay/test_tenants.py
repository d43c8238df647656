"""Replay by tenants and weights, totals, and limits."""

import json
import math
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.executors import ThreadExecutor
from stopwise.intervals import Interval
from stopwise.logs import partitions
from stopwise.logs.partitions import Partition, group_partitions, map_partitions
from tests.cli.conftest import ARMS, rounds
from tests.helpers.log_files import save as save_lists

N = 1500
CLINICS = np.array(["north", "south", "east"])
POLICIES = ("uss-pd:sigma=0.05", "thompson:scale=0.5", "random-depth")


def save(path: Path, columns: dict[str, Any]) -> Path:
    """Write columns, whether lists or arrays."""
    return save_lists(path, {name: np.asarray(c, object).tolist() for name, c in columns.items()})


def table(n: int = N) -> dict[str, Any]:
    """Return the columns of a log of three clinics, in random order."""
    return rounds(n) | {"clinic": CLINICS[np.random.default_rng(1).integers(0, 3, n)]}


def costs(*numbers: float) -> sw.Cascade:
    return sw.Cascade(numbers or (0.02, 0.1, 0.25), names=ARMS)


def value(estimate: Interval | None) -> float:
    assert estimate is not None
    return estimate.value


def alone(folder: Path, suffix: str, clinic: str) -> sw.Log:
    """Return a log with the rows of one clinic."""
    columns = table()
    mine = {name: column[columns["clinic"] == clinic] for name, column in columns.items()}
    return sw.Log(save(folder / f"{clinic}{suffix}", mine))


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split a short log into several tasks and batches."""
    monkeypatch.setattr(partitions, "MAX_TASK_ROWS", 300)
    monkeypatch.setattr(partitions, "BATCH_ROWS", 200)


@pytest.mark.usefixtures("small_tasks")
def test_a_tenant_is_replayed_as_if_it_were_alone(path: Path, tmp_path: Path) -> None:
    result = sw.replay(sw.Log(save(path, table())), costs(), POLICIES, by="clinic", labels=0)
    assert sorted(result.tenants) == sorted(CLINICS)
    for clinic, mine in result.tenants.items():
        expected = sw.replay(alone(tmp_path, path.suffix, clinic), costs(), POLICIES)
        assert mine.policies == expected.policies
        assert mine.fixed == expected.fixed
        for name, stops in expected.decisions.items():
            assert np.array_equal(mine.decisions[name], stops)


def test_totals_match_all_decisions(tmp_path: Path) -> None:
    columns = table()
    result = sw.replay(sw.Log(save(tmp_path / "log.csv", columns)), costs(), POLICIES, by="clinic")
    outputs = np.stack([columns[f"output.{arm}"] for arm in ARMS], axis=1)
    assert result.rounds == result.labelled == N
    for row in result.policies:
        stops = np.empty(N, dtype=np.int64)
        for clinic, mine in result.tenants.items():
            stops[columns["clinic"] == clinic] = mine.decisions[row.name]
        answers = outputs[np.arange(N), stops]
        spent = costs().cumulative[stops]
        losses = spent + (answers != columns["label"])
        always = costs().cumulative[2] + (outputs[:, 2] != columns["label"])
        assert value(row.cost) == pytest.approx(spent.mean(), abs=1e-12)
        assert value(row.error) == pytest.approx((answers != columns["label"]).mean(), abs=1e-12)
        assert value(row.disagreement) == pytest.approx(
            (answers != outputs[:, 2]).mean(), abs=1e-12
        )
        assert value(row.loss) == pytest.approx(losses.mean(), abs=1e-12)
        assert row.over_fixed
        extra = row.over_fixed[2]
        assert extra.value == pytest.approx((losses - always).mean(), abs=1e-12)
        half = 1.959963984540054 * (losses - always).std(ddof=1) / np.sqrt(N)
        assert extra.high - extra.value == pytest.approx(half, rel=1e-9)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("by", ["clinic", None])
def test_the_result_does_not_depend_on_the_workers(by: str | None, tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.parquet", table()))
    options: dict[str, Any] = {"by": by, "weights": (0.5, 1, 2), "labels": 20}
    policies = ("uss-laplace", "thompson:scale=0.5")
    first, *others = (
        sw.replay(log, costs(), policies, jobs=jobs, **options).to_json() for jobs in (1, 2, 5)
    )
    assert others == [first, first]


def test_costs_labels_and_rounds_without_answers_add_up(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {k: column.tolist() for k, column in table(600).items()}
    columns["failed"] = [None] * 600
    for t, clinic in enumerate(columns["clinic"]):
        if clinic == "east":  # none of its rounds can be evaluated
            columns["failed"][t] = ARMS[0]
            for arm in ARMS:
                columns[f"output.{arm}"][t] = None
    columns |= {f"cost.{arm}": [0.5 * t for t in range(600)] for arm in ARMS}
    log = sw.Log(save(tmp_path / "log.jsonl", columns))
    result = sw.replay(log, costs(), ["uss-laplace"], by="clinic", labels=10)
    assert sorted(result.tenants) == ["north", "south"]
    assert result.unanswered == result.failed == columns["clinic"].count("east")
    assert result.rounds == 600
    asked = [tenant.asked["uss-laplace"] for tenant in result.tenants.values()]
    assert result.asked["uss-laplace"] == sum(asked) > max(asked)
    always = result.fixed[0].money
    spent = [0.5 * t for t, clinic in enumerate(columns["clinic"]) if clinic != "east"]
    assert value(always) == pytest.approx(np.mean(spent))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([7, 12, 7, None], ["", "12", "7"]),
        ([None, None, None, None], [""]),
        ([True, False, True, None], ["", "False", "True"]),
        ([0.5, 2.0, 0.5, 2.0], ["0.5", "2.0"]),
        (["a", None, "", "a"], ["", "a"]),
        (["1", 1, "x", True], ["1", "True", "x"]),
    ],
)
def test_any_value_names_a_tenant(values: list[Any], names: list[str], tmp_path: Path) -> None:
    columns = {name: column.tolist() for name, column in rounds(400).items()} | {
        "who": values * 100
    }
    mixed = len({type(value) for value in values} - {type(None)}) > 1
    suffixes = ("jsonl",) if mixed else ("parquet", "jsonl")
    for suffix in suffixes:
        log = sw.Log(save(tmp_path / f"log.{suffix}", columns))
        sizes = Partition.sizes(log, "who")
        assert sorted(sizes) == names
        assert sum(sizes.values()) == 400
        each = Partition.read(log, "who", names)
        assert {name: sum(chunk.n for chunk in part.chunks()) for name, part in each} == sizes


def test_in_csv_text_is_not_taken_for_a_number(tmp_path: Path) -> None:
    columns = rounds(200) | {"who": ["007", "7"] * 100}
    log = sw.Log(save(tmp_path / "log.csv", columns))
    assert Partition.sizes(log, "who") == {"007": 100, "7": 100}


def test_an_invalid_cell_is_reported_with_its_row_in_the_file(tmp_path: Path) -> None:
    columns = {name: column.tolist() for name, column in table(300).items()}
    columns["context.hard"][200] = float("nan")
    log = sw.Log(save(tmp_path / "log.parquet", columns))
    with pytest.raises(InvalidLogError, match=r"^log\.parquet, row 201, column 'context\.hard'"):
        sw.replay(log, costs(), ["uss-pd"], by="clinic")


def test_an_unknown_column_is_rejected(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(100)))
    with pytest.raises(InvalidParameterError, match=r"no column 'ward'.*'clinic'"):
        sw.replay(log, costs(), ["uss-pd"], by="ward")


def test_weights_apply_to_policies_but_not_to_results(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table()))
    result = sw.replay(log, costs(), POLICIES, weights=(2, 0.5))
    assert list(result.grid) == [0.5, 2.0]
    for weight, weighted in result.grid.items():
        expected = sw.replay(log, costs(*(weight * c for c in (0.02, 0.1, 0.25))), POLICIES)
        depths = {p.name: p.depths for p in expected.policies}
        assert {p.name: p.depths for p in weighted.policies} == depths
        assert weighted.costs == pytest.approx(costs().cumulative)
        for line in weighted.policies:
            shares = zip(line.depths, weighted.costs, strict=True)
            spent = sum(share.value * c for share, c in shares)
            assert value(line.cost) == pytest.approx(spent)
            assert value(line.loss) == pytest.approx(spent + value(line.error))


LIMITS: list[dict[str, Any]] = [
    {"target_error": 0.1},
    {"target_error": 0.16},
    {"budget": 0.03},
    {"budget": 0.1},
    {"budget": 0.3},
    {"budget": 0.15, "target_error": 0.2},
]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("error", [1.0, 49.0])
def test_the_recommendation_keeps_the_limits_in_the_unit_of_the_costs(
    limits: dict[str, Any], error: float, tmp_path: Path
) -> None:
    """With prices, the budget and every amount are in the currency."""
    log = sw.Log(save(tmp_path / "log.csv", table()))
    prices = [error * c for c in (0.02, 0.1, 0.25)]
    cascade = sw.Cascade.from_prices(prices, error, ARMS)
    scaled = dict(limits)
    if "budget" in limits:
        scaled["budget"] = error * limits["budget"]
    result = sw.replay(log, cascade, POLICIES[:2], **scaled)
    chosen, plain = result.recommendation, json.loads(result.to_json())
    assert chosen is not None
    assert len([s for s in result.sentences if s.startswith("Recommended: ")]) == 1
    assert result.error_cost == plain["error_cost"] == error
    assert result.costs == pytest.approx(np.cumsum(prices))
    assert chosen.cost <= scaled.get("budget", math.inf) * (1 + 1e-9)
    assert value(chosen.error) <= scaled.get("target_error", 1.0)
    assert (chosen.within_budget, chosen.reaches_target) == (
        True if "budget" in scaled else None,
        True if "target_error" in scaled else None,
    )
    lines = [*result.fixed, *(p for weighted in result.grid.values() for p in weighted.policies)]
    kept = [
        value(line.loss)
        for line in lines
        if value(line.cost) <= scaled.get("budget", math.inf)
        and value(line.error) <= scaled.get("target_error", 1.0)
    ]
    assert len(kept) < len(lines) or "target_error" not in scaled
    if chosen.kind == "policy":
        assert value(chosen.loss) == min(kept)
        assert result.weight == chosen.weight
    same = sw.replay(log, costs(), POLICIES[:2], **limits).recommendation
    assert same is not None
    assert (same.kind, same.name, same.weight) == (chosen.kind, chosen.name, chosen.weight)
    assert error * same.cost == pytest.approx(chosen.cost)


def test_the_closest_option_is_recommended_if_none_meets_a_limit(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    result = sw.replay(log, costs(), ["uss-pd"], target_error=0).recommendation
    assert result is not None
    assert result.reaches_target is False
    assert (
        "; no option is wrong in at most 0\xa0%, and this one has the lowest error rate, "
        in result.sentence
    )
    result = sw.replay(log, costs(), ["uss-pd"], budget=0.01).recommendation
    assert result is not None
    expected = "no option costs at most 0.01 per round, and this one is the cheapest, at 0.02."
    assert result.sentence == f"Recommended: always rules; {expected}"
    assert (result.within_budget, result.name) == (False, "rules")


def test_a_saved_policy_is_replayed_only_at_its_own_weight(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    policy = sw.USSLaplace(costs(), context_dim=2)
    result = sw.replay(log, costs(), [policy], budget=0.1)
    assert (result.weight, dict(result.grid)) == (1.0, {})
    assert result.recommendation is not None


def test_a_target_is_ignored_with_few_labels(tmp_path: Path) -> None:
    columns = table(100)
    columns["label"] = [y if t < 5 else None for t, y in enumerate(columns["label"].tolist())]
    log = sw.Log(save(tmp_path / "few.csv", columns))
    result = sw.replay(log, costs(), ["uss-pd"], target_error=0.1)
    assert result.notes[0].startswith("Warning: the target is ignored: the log has 5 labels")


@pytest.mark.parametrize(
    ("labelled", "options"),
    [
        (False, {"target_error": 0.1}),
        (True, {"target_error": 1.5}),
        (True, {"budget": -1.0}),
        (True, {"weights": (0.0,)}),
    ],
)
def test_invalid_limits_are_rejected(
    tmp_path: Path, labelled: bool, options: dict[str, Any]
) -> None:
    columns = table(100)
    if not labelled:
        del columns["label"]
    log = sw.Log(save(tmp_path / "log.csv", columns))
    with pytest.raises(InvalidParameterError):
        sw.replay(log, costs(), ["uss-pd"], **options)


def test_small_partitions_share_a_task_and_large_ones_do_not() -> None:
    sizes = {str(k): 1 + k % 7 for k in range(5000)} | {"large": 3 * partitions.MAX_TASK_ROWS}
    groups = group_partitions(sizes, workers=2)
    assert [value for group in groups for value in group] == list(sizes)
    assert ["large"] in groups or groups[-1][-1] == "large"
    assert len(groups) <= 5


def test_closing_early_cancels_running_work(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    with ThreadExecutor(jobs=1) as executor:
        results = map_partitions(executor, log, None, [_name, _endless], "working")
        assert next(results) == ("", "log.csv")
        assert STARTED.wait(60)
        results.close()
    assert CANCELLED.is_set()


STARTED, CANCELLED = threading.Event(), threading.Event()


def _name(log: sw.Log, progress: Any) -> str:
    return log.path.name


def _endless(log: sw.Log, progress: Any) -> None:
    STARTED.set()
    try:
        while True:
            progress("working", 1, 2)
    except CancelledError:
        CANCELLED.set()
        raise
