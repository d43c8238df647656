"""Replay by tenants and weights: each part as if it were alone, totals as sums, targets."""

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
from tests.unit.logs.test_log import save as save_lists

N = 1500
CLINICS = np.array(["north", "south", "east"])
POLICIES = ("uss-pd:sigma=0.05", "thompson:scale=0.5", "random-depth")


def save(path: Path, columns: dict[str, Any]) -> Path:
    """Write columns, whether lists or arrays."""
    return save_lists(path, {name: np.asarray(c, object).tolist() for name, c in columns.items()})


def table(n: int = N) -> dict[str, Any]:
    """Return the columns of a log of three clinics, in no order."""
    return rounds(n) | {"clinic": CLINICS[np.random.default_rng(1).integers(0, 3, n)]}


def costs(*numbers: float) -> sw.Cascade:
    return sw.Cascade(numbers or (0.02, 0.1, 0.25), names=ARMS)


def value(estimate: Interval | None) -> float:
    assert estimate is not None
    return estimate.value


def alone(folder: Path, suffix: str, clinic: str) -> sw.Log:
    """Return a log of the rows of one clinic only."""
    whole = table()
    mine = {name: column[whole["clinic"] == clinic] for name, column in whole.items()}
    return sw.Log(save(folder / f"{clinic}{suffix}", mine))


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several tasks of a short log, and several batches."""
    monkeypatch.setattr(partitions, "MAX_TASK_ROWS", 300)
    monkeypatch.setattr(partitions, "BATCH_ROWS", 200)


@pytest.mark.usefixtures("small_tasks")
def test_a_tenant_is_replayed_as_if_it_were_alone(path: Path, tmp_path: Path) -> None:
    found = sw.replay(sw.Log(save(path, table())), costs(), POLICIES, by="clinic", labels=0)
    assert sorted(found.tenants) == sorted(CLINICS)
    for clinic, mine in found.tenants.items():
        expected = sw.replay(alone(tmp_path, path.suffix, clinic), costs(), POLICIES)
        assert mine.policies == expected.policies
        assert mine.fixed == expected.fixed
        for name, stops in expected.decisions.items():
            assert np.array_equal(mine.decisions[name], stops)


def test_totals_are_those_of_all_decisions(tmp_path: Path) -> None:
    whole = table()
    found = sw.replay(sw.Log(save(tmp_path / "log.csv", whole)), costs(), POLICIES, by="clinic")
    outputs = np.stack([whole[f"output.{arm}"] for arm in ARMS], axis=1)
    assert found.rounds == found.labelled == N
    for one in found.policies:
        stops = np.empty(N, dtype=np.int64)
        for clinic, mine in found.tenants.items():
            stops[whole["clinic"] == clinic] = mine.decisions[one.name]
        answers = outputs[np.arange(N), stops]
        spent = costs().cumulative[stops]
        losses = spent + (answers != whole["label"])
        always = costs().cumulative[2] + (outputs[:, 2] != whole["label"])
        assert value(one.cost) == pytest.approx(spent.mean(), abs=1e-12)
        assert value(one.error) == pytest.approx((answers != whole["label"]).mean(), abs=1e-12)
        assert value(one.disagreement) == pytest.approx(
            (answers != outputs[:, 2]).mean(), abs=1e-12
        )
        assert value(one.loss) == pytest.approx(losses.mean(), abs=1e-12)
        assert one.over_fixed
        more = one.over_fixed[2]
        assert more.value == pytest.approx((losses - always).mean(), abs=1e-12)
        half = 1.959963984540054 * (losses - always).std(ddof=1) / np.sqrt(N)
        assert more.high - more.value == pytest.approx(half, rel=1e-9)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("by", ["clinic", None])
def test_the_result_does_not_depend_on_the_workers(by: str | None, tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.parquet", table()))
    given: dict[str, Any] = {"by": by, "weights": (0.5, 1, 2), "labels": 20}
    policies = ("uss-laplace", "thompson:scale=0.5")
    first, *others = (
        sw.replay(log, costs(), policies, jobs=jobs, **given).to_json() for jobs in (1, 2, 5)
    )
    assert others == [first, first]


def test_money_labels_and_rounds_without_answers_add_up(tmp_path: Path) -> None:
    whole: dict[str, list[Any]] = {k: column.tolist() for k, column in table(600).items()}
    whole["failed"] = [None] * 600
    for t, clinic in enumerate(whole["clinic"]):
        if clinic == "east":  # nothing of it can be evaluated
            whole["failed"][t] = ARMS[0]
            for arm in ARMS:
                whole[f"output.{arm}"][t] = None
    whole |= {f"cost.{arm}": [0.5 * t for t in range(600)] for arm in ARMS}
    log = sw.Log(save(tmp_path / "log.jsonl", whole))
    found = sw.replay(log, costs(), ["uss-laplace"], by="clinic", labels=10)
    assert sorted(found.tenants) == ["north", "south"]
    assert found.unanswered == found.failed == whole["clinic"].count("east")
    assert found.rounds == 600
    asked = [of.asked["uss-laplace"] for of in found.tenants.values()]
    assert found.asked["uss-laplace"] == sum(asked) > max(asked)
    always = found.fixed[0].money
    paid = [0.5 * t for t, clinic in enumerate(whole["clinic"]) if clinic != "east"]
    assert value(always) == pytest.approx(np.mean(paid))


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
    whole = {name: column.tolist() for name, column in rounds(400).items()} | {"who": values * 100}
    mixed = len({type(value) for value in values} - {type(None)}) > 1
    suffixes = ("jsonl",) if mixed else ("parquet", "jsonl")
    for suffix in suffixes:
        log = sw.Log(save(tmp_path / f"log.{suffix}", whole))
        sizes = Partition.sizes(log, "who")
        assert sorted(sizes) == names
        assert sum(sizes.values()) == 400
        each = Partition.read(log, "who", names)
        assert {name: sum(chunk.n for chunk in part.chunks()) for name, part in each} == sizes


def test_in_csv_text_is_not_taken_for_a_number(tmp_path: Path) -> None:
    whole = rounds(200) | {"who": ["007", "7"] * 100}
    log = sw.Log(save(tmp_path / "log.csv", whole))
    assert Partition.sizes(log, "who") == {"007": 100, "7": 100}


def test_a_wrong_cell_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    whole = {name: column.tolist() for name, column in table(300).items()}
    whole["context.hard"][200] = float("nan")
    log = sw.Log(save(tmp_path / "log.parquet", whole))
    with pytest.raises(InvalidLogError, match=r"^log\.parquet, row 201, column 'context\.hard'"):
        sw.replay(log, costs(), ["uss-pd"], by="clinic")


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(100)))
    with pytest.raises(InvalidParameterError, match=r"no column 'ward'.*'clinic'"):
        sw.replay(log, costs(), ["uss-pd"], by="ward")


def test_a_weight_is_for_the_policies_and_results_are_at_the_costs_as_given(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table()))
    found = sw.replay(log, costs(), POLICIES, weights=(2, 0.5))
    assert list(found.grid) == [0.5, 2.0]
    for weight, one in found.grid.items():
        expected = sw.replay(log, costs(*(weight * c for c in (0.02, 0.1, 0.25))), POLICIES)
        depths = {p.name: p.depths for p in expected.policies}
        assert {p.name: p.depths for p in one.policies} == depths
        assert one.costs == pytest.approx(costs().cumulative)
        for line in one.policies:
            spent = sum(share.value * c for share, c in zip(line.depths, one.costs, strict=True))
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
    """With prices in a currency, the budget is one too, and so is every amount."""
    log = sw.Log(save(tmp_path / "log.csv", table()))
    prices = [error * c for c in (0.02, 0.1, 0.25)]
    cascade = sw.Cascade.from_prices(prices, error, ARMS)
    given: dict[str, Any] = limits | (
        {"budget": error * limits["budget"]} if "budget" in limits else {}
    )
    found = sw.replay(log, cascade, POLICIES[:2], **given)
    chosen, plain = found.recommendation, json.loads(found.to_json())
    assert chosen is not None
    assert len([one for one in found.sentences if one.startswith("Recommended: ")]) == 1
    assert found.error_cost == plain["error_cost"] == error
    assert found.costs == pytest.approx(np.cumsum(prices))
    assert chosen.cost <= given.get("budget", math.inf) * (1 + 1e-9)
    assert value(chosen.error) <= given.get("target_error", 1.0)
    assert (chosen.within_budget, chosen.reaches_target) == (
        True if "budget" in given else None,
        True if "target_error" in given else None,
    )
    lines = [*found.fixed, *(p for one in found.grid.values() for p in one.policies)]
    kept = [
        value(line.loss)
        for line in lines
        if value(line.cost) <= given.get("budget", math.inf)
        and value(line.error) <= given.get("target_error", 1.0)
    ]
    assert len(kept) < len(lines) or "target_error" not in given
    if chosen.kind == "policy":
        assert value(chosen.loss) == min(kept)
        assert found.weight == chosen.weight
    same = sw.replay(log, costs(), POLICIES[:2], **limits).recommendation
    assert same is not None
    assert (same.kind, same.name, same.weight) == (chosen.kind, chosen.name, chosen.weight)
    assert error * same.cost == pytest.approx(chosen.cost)


def test_limits_that_nothing_keeps_are_said_to_be_out_of_reach(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    found = sw.replay(log, costs(), ["uss-pd"], target_error=0).recommendation
    assert found is not None
    assert found.reaches_target is False
    assert "; nothing here is wrong in at most 0\xa0%, and it is wrong least, in " in found.sentence
    found = sw.replay(log, costs(), ["uss-pd"], budget=0.01).recommendation
    assert found is not None
    expected = "nothing here costs at most 0.01 a round, and it costs least, 0.02."
    assert found.sentence == f"Recommended: always rules; {expected}"
    assert (found.within_budget, found.name) == (False, "rules")


def test_a_saved_policy_has_the_weight_it_was_saved_with(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    policy = sw.USSLaplace(costs(), context_dim=2)
    found = sw.replay(log, costs(), [policy], budget=0.1)
    assert (found.weight, dict(found.grid)) == (1.0, {})
    assert found.recommendation is not None


def test_limits_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    whole = table(100)
    log = sw.Log(save(tmp_path / "log.csv", whole))
    few = whole | {"label": [y if t < 5 else None for t, y in enumerate(whole["label"].tolist())]}
    found = sw.replay(
        sw.Log(save(tmp_path / "few.csv", few)), costs(), ["uss-pd"], target_error=0.1
    )
    assert found.notes[0].startswith("Warning: the target is not used: the log has 5 labels")
    del whole["label"]
    bare = sw.Log(save(tmp_path / "bare.csv", whole))
    cases: list[tuple[sw.Log, dict[str, Any]]] = [
        (bare, {"target_error": 0.1}),
        (log, {"target_error": 1.5}),
        (log, {"budget": -1.0}),
        (log, {"weights": (0.0,)}),
    ]
    for refused, given in cases:
        with pytest.raises(InvalidParameterError):
            sw.replay(refused, costs(), ["uss-pd"], **given)


def test_many_parts_share_a_task_and_large_ones_have_their_own() -> None:
    sizes = {str(k): 1 + k % 7 for k in range(5000)} | {"large": 3 * partitions.MAX_TASK_ROWS}
    groups = group_partitions(sizes, workers=2)
    assert [value for group in groups for value in group] == list(sizes)
    assert ["large"] in groups or groups[-1][-1] == "large"
    assert len(groups) <= 5


def test_closing_early_drops_the_work_under_way(tmp_path: Path) -> None:
    log = sw.Log(save(tmp_path / "log.csv", table(300)))
    with ThreadExecutor(jobs=1) as executor:
        results = map_partitions(executor, log, None, [_name, _endless], "working")
        assert next(results) == ("", "log.csv")
        assert BEGUN.wait(60)
        results.close()
    assert DROPPED.is_set()


BEGUN, DROPPED = threading.Event(), threading.Event()


def _name(log: sw.Log, progress: Any) -> str:
    return log.path.name


def _endless(log: sw.Log, progress: Any) -> None:
    BEGUN.set()
    try:
        while True:
            progress("working", 1, 2)
    except CancelledError:
        DROPPED.set()
        raise
