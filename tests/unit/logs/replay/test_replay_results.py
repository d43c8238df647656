"""The numbers of a replay, compared with loops over single rounds."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stopwise as sw
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.intervals import Interval
from stopwise.logs.log import Log
from stopwise.logs.replay.conclusions import sentences
from stopwise.logs.replay.replay import replay
from stopwise.logs.replay.results import CandidateResult
from stopwise.logs.writer import LogWriter
from tests.unit.logs.replay.live import CASCADE, NAMES, arms, full, truncate, write

N = 600
C = CASCADE.cumulative.tolist()


def check_mean(estimate: Interval | None, values: Sequence[float]) -> None:
    """Compare with the mean and its interval, Wilson's if the values are booleans."""
    if not values:
        assert estimate is None
        return
    assert estimate is not None
    mean, n = float(np.mean(values)), len(values)
    half = stats.norm.ppf(0.975) * np.std(values, ddof=1) / math.sqrt(n)
    limits = mean - half, mean + half
    if isinstance(values[0], bool):
        wilson = stats.binomtest(sum(values), n).proportion_ci(method="wilson")
        limits = wilson.low, wilson.high
    assert estimate.value == pytest.approx(mean, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx(limits, abs=1e-9)


def check_row(result: CandidateResult, decided: list[int], rows: list[dict[str, Any]]) -> None:
    """Count again, with plain loops."""
    evaluated: list[tuple[int, dict[str, Any]]] = []
    beyond = 0
    for stop, row in zip(decided, rows, strict=True):
        last = len(row["outputs"]) - 1
        if stop > last and not row["failed"]:
            beyond += 1
        elif last >= 0:
            evaluated.append((min(stop, last), row))  # after a failure, the round ends there too
    assert (result.beyond, result.rounds) == (beyond, len(evaluated))
    for arm in range(3):
        check_mean(result.depths[arm], [stop == arm for stop, _ in evaluated])
    check_mean(result.cost, [C[stop] for stop, _ in evaluated])
    compared = [(stop, row) for stop, row in evaluated if len(row["outputs"]) == 3]
    differs = [row["outputs"][stop] != row["outputs"][2] for stop, row in compared]
    assert result.compared == len(compared)
    check_mean(result.disagreement, differs)
    both = [C[stop] + d for (stop, _), d in zip(compared, differs, strict=True)]
    check_mean(result.cost_and_disagreement, both)
    labelled = [(stop, row) for stop, row in evaluated if row["label"] is not None]
    wrong = [row["outputs"][stop] != row["label"] for stop, row in labelled]
    assert result.labelled == len(labelled)
    check_mean(result.error, wrong)
    check_mean(result.loss, [C[stop] + w for (stop, _), w in zip(labelled, wrong, strict=True)])
    paid = [math.fsum(row["costs"][: stop + 1]) for stop, row in evaluated if row["costs"]]
    assert result.priced == len(paid)
    check_mean(result.money, paid)


def written(
    path: Path, seed: int, *, truncated: bool, fails: bool, labels: float = 0.7
) -> list[dict[str, Any]]:
    """Write a log with labels and costs, and optionally failures and early ends."""
    random, drawn = np.random.default_rng(seed), arms(N, seed)
    rows: list[dict[str, Any]] = []
    with LogWriter(path, NAMES, list("abcd"), labels=True, costs=True) as log:
        for t in range(N):
            n = int(random.integers(1, 4)) if truncated else 3
            failed = fails and random.random() < 0.1
            if failed:
                n = int(random.integers(0, 3))
            outputs = tuple(drawn.outputs[t, :n].tolist())
            label = str(drawn.labels[t]) if random.random() < labels else None
            costs = tuple(random.random(n).tolist()) if n and random.random() < 0.8 else ()
            failure = sw.Failure(n, "timeout", "too slow") if failed else None
            done = sw.Round(
                str(t),
                0.0,
                tuple(drawn.contexts[t].tolist()),
                outputs,
                outputs,
                stop=n - 1 if n else None,
                rule_stop=n - 1,
                costs=costs,
                failure=failure,
            )
            log.write(done, label)
            rows.append({"outputs": outputs, "label": label, "costs": costs, "failed": failed})
    return rows


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_every_number_matches_a_loop(tmp_path: Path, truncated: bool, fails: bool) -> None:
    rows = written(tmp_path / "log.parquet", 3, truncated=truncated, fails=fails)
    policies = ["uss-pd:sigma=0.05", "random-depth", "uss-ucb:a=0.01", "thompson:scale=0.3"]
    played = replay(Log(tmp_path / "log.parquet"), CASCADE, policies)
    assert {row.name for row in played.policies} == set(policies)
    for row in played.policies:
        check_row(row, played.decisions[row.name].tolist(), rows)
    for depth, row in enumerate(played.fixed):
        check_row(row, [depth] * N, rows)
    assert played.failed == sum(row["failed"] for row in rows)
    assert played.unanswered == sum(not row["outputs"] for row in rows)
    assert played.exact == (not truncated)


@pytest.mark.parametrize("by", ["total loss", "cost + disagreement"])
def test_differences_from_fixed_depths_are_paired(tmp_path: Path, by: str) -> None:
    labels = 0.7 if by == "total loss" else 0.0
    rows = written(tmp_path / "log.parquet", 4, truncated=False, fails=True, labels=labels)
    played = replay(Log(tmp_path / "log.parquet"), CASCADE, ["uss-pd:sigma=0.05"], chunk_rows=70)
    assert (played.judged_by, played.exact) == (by, True)

    def loss(row: dict[str, Any], stop: int) -> float | None:
        outputs = row["outputs"]
        last = min(stop, len(outputs) - 1)
        right = row["label"] if labels else outputs[2] if len(outputs) == 3 else None
        return C[last] + (outputs[last] != right) if outputs and right is not None else None

    (row,) = played.policies
    assert row.over_fixed is not None
    decided = played.decisions[row.name].tolist()
    values: list[float] = []
    for depth, difference in enumerate(row.over_fixed):
        pairs = [(loss(r, stop), loss(r, depth)) for stop, r in zip(decided, rows, strict=True)]
        check_mean(difference, [a - b for a, b in pairs if a is not None and b is not None])
        values.append(float(np.mean([b for _, b in pairs if b is not None])))
    assert played.best_fixed == int(np.argmin(values))
    assert any("not an error" in sentence for sentence in sentences(played)) == (not labels)


def test_policies_are_sorted_best_first(tmp_path: Path) -> None:
    log = Log(write(tmp_path / "log.csv", full(arms(2000))))
    policies = ["random-depth", "uss-pd:sigma=0.05", "fixed-depth:depth=rules"]
    played = replay(log, CASCADE, policies)
    values = [row.value(played.judged_by) for row in played.policies]
    assert values == sorted(values, key=lambda value: value.value if value else -1)
    assert None not in values


SLOW = "uss-anchor:forced_rounds=2000"  # clearly more expensive than the others


@pytest.mark.parametrize(
    ("policies", "labels", "chosen"),
    [
        (["uss-pd", "uss-anchor:z=0.7"], False, "uss-anchor:z=0.7"),
        (["uss-laplace", SLOW], False, "uss-laplace"),
        (["uss-laplace", SLOW], True, "uss-laplace"),  # by 0.019, ±0.012 for both together
        (["uss-anchor:seed=1"], False, "uss-anchor:seed=1"),
        ([SLOW], True, "always small"),
        (["random-depth"], False, "always small"),
    ],
)
def test_one_option_is_recommended(
    tmp_path: Path, policies: list[str], labels: bool, chosen: str
) -> None:
    drawn = arms(6000 if labels else 2000)
    known_labels = drawn.labels.tolist() if labels else None
    log = Log(write(tmp_path / "log.csv", full(drawn), labels=known_labels))
    played = replay(log, CASCADE, policies)
    recommended = [s for s in sentences(played) if s.startswith("Recommended: ")]
    assert played.recommendation is not None
    assert recommended == [played.recommendation.sentence]
    assert recommended[0].startswith(f"Recommended: {chosen}; ")
    plain = json.loads(played.to_json())
    assert plain["recommendation"]["sentence"] == recommended[0]
    assert plain["sentences"].count(recommended[0]) == 1
    fixed = chosen.startswith("always ")
    assert played.recommendation.kind == ("fixed depth" if fixed else "policy")
    assert ("no policy here is better" in recommended[0]) == fixed
    chosen_row = next(
        row
        for row in (played.fixed if fixed else played.policies)
        if row.name == played.recommendation.name
    )
    assert chosen_row.cost is not None
    assert played.recommendation.cost == chosen_row.cost.value


@pytest.mark.parametrize(
    ("labelled", "by"),
    [(1, "cost + disagreement"), (29, "cost + disagreement"), (30, "total loss")],
)
def test_losses_are_compared_from_30_labels_on(tmp_path: Path, labelled: int, by: str) -> None:
    drawn = arms(N)
    labels = [y if t < labelled else None for t, y in enumerate(drawn.labels.tolist())]
    played = replay(Log(write(tmp_path / "log.csv", full(drawn), labels=labels)), CASCADE)
    assert played.judged_by == by
    text = " ".join(sentences(played))
    assert ("29 labels, too few to compare losses" in text) == (labelled == 29)
    assert ("per round in 30 labelled rounds" in text) == (labelled == 30)
    for row in (*played.policies, *played.fixed):
        assert (row.loss is None) == (labelled == 1)  # a single round gives no interval


def test_a_log_of_one_round_is_too_short_for_a_conclusion(tmp_path: Path) -> None:
    played = replay(Log(write(tmp_path / "log.csv", full(arms(1)))), CASCADE)
    assert played.policies[0].cost is None
    assert "too few for a conclusion" in played.sentences[0]


@pytest.mark.parametrize("n", [29, 30])
def test_labels_unlike_the_outputs_cause_a_warning(tmp_path: Path, n: int) -> None:
    drawn = arms(n)
    labels = [label.upper() for label in drawn.labels.tolist()]
    log = Log(write(tmp_path / "log.csv", full(drawn), labels=labels))
    played = replay(log, CASCADE, chunk_rows=7)
    assert len(played.notes) == (n == 30)
    for note in played.notes:
        assert repr(labels[0]) in note
        assert repr(drawn.outputs[0, 0].item()) in note
        assert played.sentences[0] == note
        assert json.loads(played.to_json())["notes"] == [note]
    labels[-1] = drawn.outputs[-1, 1].item()  # an output of some arm
    matching = Log(write(tmp_path / "matching.csv", full(drawn), labels=labels))
    assert replay(matching, CASCADE, chunk_rows=7).notes == ()


def test_a_log_in_which_the_first_arm_always_failed_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path, NAMES, ["a"]) as log:
        for t in range(40):
            failure = sw.Failure(0, "error", "it broke")
            log.write(
                sw.Round(str(t), 0.0, (0.5,), (), (), stop=None, rule_stop=2, failure=failure)
            )
    with pytest.raises(InvalidLogError, match="'rules', failed in every round"):
        replay(Log(path), CASCADE, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]


def test_rounds_that_cannot_be_evaluated_are_counted_and_not_compared(tmp_path: Path) -> None:
    log = Log(write(tmp_path / "log.csv", truncate(full(arms(N)), lambda t: t % 3)))
    played = replay(log, CASCADE, ["fixed-depth:depth=1", "fixed-depth:depth=0"])
    partial, exact = played.policies
    assert (partial.beyond, partial.rounds) == (N // 3, N - N // 3)
    assert (played.exact, played.best_fixed, partial.over_fixed) == (False, None, None)
    assert played.truncated == 2 * N // 3
    assert [row.beyond for row in played.fixed] == [0, N // 3, 2 * N // 3]
    text = " ".join(sentences(played))
    assert exact.exact
    assert "its cost is exact; its disagreement is known for only 200 of 600 rounds" in text
    for claim in ("numbers are exact", "lower than", "less than"):
        assert claim not in text


def test_rounds_that_cannot_be_evaluated_are_not_learned(tmp_path: Path) -> None:
    """Later decisions are those of a policy that never saw these rounds."""
    rounds = full(arms(900))
    hidden = truncate(rounds, lambda t: 0 if t % 3 == 0 else 2)
    policy = sw.USSUCB(CASCADE, a=0.05)
    played = replay(Log(write(tmp_path / "log.csv", hidden)), CASCADE, [policy])
    seen = sw.USSUCB(CASCADE, a=0.05)
    for t, (decided, done) in enumerate(
        zip(played.decisions["uss-ucb"].tolist(), hidden, strict=True)
    ):
        stop = seen.decide([]).stop
        assert stop == decided, t
        if stop < len(done.outputs):
            seen.observe([], done.outputs[: stop + 1])


def test_the_result_does_not_depend_on_the_chunk_size(tmp_path: Path) -> None:
    drawn = arms(N)
    path = write(tmp_path / "log.parquet", full(drawn), labels=drawn.labels.tolist())
    policies = ["uss-pd:sigma=0.05", "uss-laplace", "uss-pd:explore=0.1", "thompson", "uss-ts"]
    seen: list[tuple[str, int, int]] = []
    expected = replay(
        Log(path), CASCADE, policies, labels=0.2, seed=4, progress=lambda *step: seen.append(step)
    )
    assert seen == [("reading", N, N), ("replaying", N, N)]
    for rows in (1, 250):
        chunked = replay(Log(path), CASCADE, policies, labels=0.2, seed=4, chunk_rows=rows)
        assert chunked.to_json() == expected.to_json()
        for name, decided in expected.decisions.items():
            assert np.array_equal(chunked.decisions[name], decided)


def test_the_json_has_all_results_with_intervals(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", full(arms(N)))
    played = replay(Log(path), CASCADE, ["uss-pd"], out=tmp_path / "out")
    content = (tmp_path / "out" / "replay.json").read_bytes()
    assert content == played.to_json()
    plain = json.loads(content)
    assert plain["policies"][0]["cost"].keys() == {"value", "low", "high"}
    assert (plain["log"], plain["exact"], plain["arms"]) == ("log.parquet", True, list(NAMES))
    assert (tmp_path / "out" / "replay.png").read_bytes().startswith(b"\x89PNG")


def test_the_cascade_must_match_the_log(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(arms(50)))
    with pytest.raises(InvalidParameterError, match=r"log\.csv has the arms rules, small, large"):
        replay(Log(path), sw.Cascade([0.1, 0.2, 0.3]))
