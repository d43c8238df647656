"""The numbers of a replay, against loops that count one round after the other."""

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
from tests.unit.logs.replay.live import CASCADE, NAMES, arms, cut, full, write

N = 600
C = CASCADE.cumulative.tolist()


def mean(estimate: Interval | None, values: Sequence[float]) -> None:
    """Compare with the mean and its interval, Wilson's if the values are events."""
    if not values:
        assert estimate is None
        return
    assert estimate is not None
    middle, n = float(np.mean(values)), len(values)
    half = stats.norm.ppf(0.975) * np.std(values, ddof=1) / math.sqrt(n)
    ends = middle - half, middle + half
    if isinstance(values[0], bool):
        wilson = stats.binomtest(sum(values), n).proportion_ci(method="wilson")
        ends = wilson.low, wilson.high
    assert estimate.value == pytest.approx(middle, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx(ends, abs=1e-9)


def check(one: CandidateResult, decided: list[int], rows: list[dict[str, Any]]) -> None:
    """Count again, in the plainest way."""
    known, beyond = [], 0
    for stop, row in zip(decided, rows, strict=True):
        last = len(row["outputs"]) - 1
        if stop > last and not row["failed"]:
            beyond += 1
        elif last >= 0:
            known.append((min(stop, last), row))  # one that failed would have ended there too
    assert (one.beyond, one.rounds) == (beyond, len(known))
    for arm in range(3):
        mean(one.depths[arm], [stop == arm for stop, _ in known])
    mean(one.cost, [C[stop] for stop, _ in known])
    compared = [(stop, row) for stop, row in known if len(row["outputs"]) == 3]
    differs = [row["outputs"][stop] != row["outputs"][2] for stop, row in compared]
    assert one.compared == len(compared)
    mean(one.disagreement, differs)
    both = [C[stop] + d for (stop, _), d in zip(compared, differs, strict=True)]
    mean(one.cost_and_disagreement, both)
    labelled = [(stop, row) for stop, row in known if row["label"] is not None]
    wrong = [row["outputs"][stop] != row["label"] for stop, row in labelled]
    assert one.labelled == len(labelled)
    mean(one.error, wrong)
    mean(one.loss, [C[stop] + w for (stop, _), w in zip(labelled, wrong, strict=True)])
    paid = [math.fsum(row["costs"][: stop + 1]) for stop, row in known if row["costs"]]
    assert one.priced == len(paid)
    mean(one.money, paid)


def written(
    path: Path, seed: int, *, truncated: bool, fails: bool, labels: float = 0.7
) -> list[dict[str, Any]]:
    """Write a log with everything in it; return its rows."""
    random, said = np.random.default_rng(seed), arms(N, seed)
    rows: list[dict[str, Any]] = []
    with LogWriter(path, NAMES, list("abcd"), labels=True, costs=True) as log:
        for t in range(N):
            n = int(random.integers(1, 4)) if truncated else 3
            failed = fails and random.random() < 0.1
            if failed:
                n = int(random.integers(0, 3))
            outputs = tuple(said.outputs[t, :n].tolist())
            label = str(said.labels[t]) if random.random() < labels else None
            costs = tuple(random.random(n).tolist()) if n and random.random() < 0.8 else ()
            failure = sw.Failure(n, "timeout", "too slow") if failed else None
            done = sw.Round(
                str(t),
                0.0,
                tuple(said.contexts[t].tolist()),
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
def test_every_number_is_what_a_loop_counts(tmp_path: Path, truncated: bool, fails: bool) -> None:
    rows = written(tmp_path / "log.parquet", 3, truncated=truncated, fails=fails)
    asked = ["uss-pd:sigma=0.05", "random-depth", "uss-ucb:a=0.01", "thompson:scale=0.3"]
    found = replay(Log(tmp_path / "log.parquet"), CASCADE, asked)
    assert {one.name for one in found.policies} == set(asked)
    for one in found.policies:
        check(one, found.decisions[one.name].tolist(), rows)
    for depth, one in enumerate(found.fixed):
        check(one, [depth] * N, rows)
    assert found.failed == sum(row["failed"] for row in rows)
    assert found.unanswered == sum(not row["outputs"] for row in rows)
    assert found.exact == (not truncated)


@pytest.mark.parametrize("by", ["total loss", "cost + disagreement"])
def test_what_it_is_compared_by_is_paired(tmp_path: Path, by: str) -> None:
    labels = 0.7 if by == "total loss" else 0.0
    rows = written(tmp_path / "log.parquet", 4, truncated=False, fails=True, labels=labels)
    found = replay(Log(tmp_path / "log.parquet"), CASCADE, ["uss-pd:sigma=0.05"], chunk_rows=70)
    assert (found.judged_by, found.exact) == (by, True)

    def loss(row: dict[str, Any], stop: int) -> float | None:
        outputs, end = row["outputs"], min(stop, len(row["outputs"]) - 1)
        right = row["label"] if labels else outputs[2] if len(outputs) == 3 else None
        return C[end] + (outputs[end] != right) if outputs and right is not None else None

    (one,) = found.policies
    assert one.over_fixed is not None
    decided = found.decisions[one.name].tolist()
    values: list[float] = []
    for depth, difference in enumerate(one.over_fixed):
        pairs = [(loss(r, stop), loss(r, depth)) for stop, r in zip(decided, rows, strict=True)]
        mean(difference, [a - b for a, b in pairs if a is not None and b is not None])
        values.append(float(np.mean([b for _, b in pairs if b is not None])))
    assert found.best_fixed == int(np.argmin(values))
    assert any("not an error" in sentence for sentence in sentences(found)) == (not labels)


def test_policies_come_best_first(tmp_path: Path) -> None:
    log = Log(write(tmp_path / "log.csv", full(arms(2000))))
    asked = ["random-depth", "uss-pd:sigma=0.05", "fixed-depth:depth=rules"]
    found = replay(log, CASCADE, asked)
    values = [one.value(found.judged_by) for one in found.policies]
    assert values == sorted(values, key=lambda value: value.value if value else -1)
    assert None not in values


SLOW = "uss-anchor:forced_rounds=2000"  # it costs more than others, clearly


@pytest.mark.parametrize(
    ("asked", "labels", "chosen"),
    [
        (["uss-pd", "uss-anchor:z=0.7"], False, "uss-anchor:z=0.7"),
        (["uss-laplace", SLOW], False, "uss-laplace"),
        (["uss-laplace", SLOW], True, "uss-laplace"),  # by 0.019, ±0.012 for both together
        (["uss-anchor:seed=1"], False, "uss-anchor:seed=1"),
        ([SLOW], True, "always small"),
        (["random-depth"], False, "always small"),
    ],
)
def test_one_is_recommended(tmp_path: Path, asked: list[str], labels: bool, chosen: str) -> None:
    said = arms(6000 if labels else 2000)
    told = said.labels.tolist() if labels else None
    found = replay(Log(write(tmp_path / "log.csv", full(said), labels=told)), CASCADE, asked)
    recommended = [one for one in sentences(found) if one.startswith("Recommended: ")]
    assert found.recommendation is not None
    assert recommended == [found.recommendation.sentence]
    assert recommended[0].startswith(f"Recommended: {chosen}; ")
    plain = json.loads(found.to_json())
    assert plain["recommendation"]["sentence"] == recommended[0]
    assert plain["sentences"].count(recommended[0]) == 1
    fixed = chosen.startswith("always ")
    assert found.recommendation.kind == ("fixed depth" if fixed else "policy")
    assert ("no policy here is better" in recommended[0]) == fixed
    line = next(
        one
        for one in (found.fixed if fixed else found.policies)
        if one.name == found.recommendation.name
    )
    assert line.cost is not None
    assert found.recommendation.cost == line.cost.value


@pytest.mark.parametrize(
    ("labelled", "by"),
    [(1, "cost + disagreement"), (29, "cost + disagreement"), (30, "total loss")],
)
def test_a_few_labels_are_not_judged_by(tmp_path: Path, labelled: int, by: str) -> None:
    said = arms(N)
    labels = [y if t < labelled else None for t, y in enumerate(said.labels.tolist())]
    found = replay(Log(write(tmp_path / "log.csv", full(said), labels=labels)), CASCADE)
    assert found.judged_by == by
    words = " ".join(sentences(found))
    assert ("29 labels, too few to compare losses" in words) == (labelled == 29)
    assert ("a round in 30 labelled rounds" in words) == (labelled == 30)
    for one in (*found.policies, *found.fixed):
        assert (one.loss is None) == (labelled == 1)  # one gives no interval


def test_a_log_of_one_round_proves_nothing(tmp_path: Path) -> None:
    found = replay(Log(write(tmp_path / "log.csv", full(arms(1)))), CASCADE)
    assert found.policies[0].cost is None
    assert "too few to conclude anything" in found.sentences[0]


@pytest.mark.parametrize("n", [29, 30])
def test_labels_in_other_words_are_warned_of(tmp_path: Path, n: int) -> None:
    said = arms(n)
    labels = [label.upper() for label in said.labels.tolist()]
    log = Log(write(tmp_path / "log.csv", full(said), labels=labels))
    found = replay(log, CASCADE, chunk_rows=7)
    assert len(found.notes) == (n == 30)
    for note in found.notes:
        assert repr(labels[0]) in note
        assert repr(said.outputs[0, 0].item()) in note
        assert found.sentences[0] == note
        assert json.loads(found.to_json())["notes"] == [note]
    labels[-1] = said.outputs[-1, 1].item()  # one that some arm said
    alike = Log(write(tmp_path / "alike.csv", full(said), labels=labels))
    assert replay(alike, CASCADE, chunk_rows=7).notes == ()


def test_where_the_first_arm_always_failed_there_is_nothing_to_say(tmp_path: Path) -> None:
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


def test_what_the_log_does_not_have_is_counted_and_not_claimed(tmp_path: Path) -> None:
    log = Log(write(tmp_path / "log.csv", cut(full(arms(N)), lambda t: t % 3)))
    found = replay(log, CASCADE, ["fixed-depth:depth=1", "fixed-depth:depth=0"])
    one, exact = found.policies
    assert (one.beyond, one.rounds) == (N // 3, N - N // 3)
    assert (found.exact, found.best_fixed, one.over_fixed) == (False, None, None)
    assert found.truncated == 2 * N // 3
    assert [one.beyond for one in found.fixed] == [0, N // 3, 2 * N // 3]
    words = " ".join(sentences(found))
    assert exact.exact
    assert "its cost is exact; its disagreement is known for 200 of 600 rounds only" in words
    for claim in ("numbers are exact", "lower than", "less than"):
        assert claim not in words


def test_a_round_that_cannot_be_evaluated_teaches_nothing(tmp_path: Path) -> None:
    """The policy's later decisions are those of one that never met these rounds."""
    rounds = full(arms(900))
    hidden = cut(rounds, lambda t: 0 if t % 3 == 0 else 2)
    policy = sw.USSUCB(CASCADE, a=0.05)
    found = replay(Log(write(tmp_path / "log.csv", hidden)), CASCADE, [policy])
    seen = sw.USSUCB(CASCADE, a=0.05)
    for t, (decided, done) in enumerate(
        zip(found.decisions["uss-ucb"].tolist(), hidden, strict=True)
    ):
        stop = seen.decide([]).stop
        assert stop == decided, t
        if stop < len(done.outputs):
            seen.observe([], done.outputs[: stop + 1])


def test_it_makes_no_difference_how_many_rows_are_read_at_a_time(tmp_path: Path) -> None:
    said = arms(N)
    path = write(tmp_path / "log.parquet", full(said), labels=said.labels.tolist())
    asked = ["uss-pd:sigma=0.05", "uss-laplace", "uss-pd:explore=0.1", "thompson", "uss-ts"]
    seen: list[tuple[str, int, int]] = []
    whole = replay(
        Log(path), CASCADE, asked, labels=0.2, seed=4, progress=lambda *step: seen.append(step)
    )
    assert seen == [("reading", N, N), ("replaying", N, N)]
    for rows in (1, 250):
        pieces = replay(Log(path), CASCADE, asked, labels=0.2, seed=4, chunk_rows=rows)
        assert pieces.to_json() == whole.to_json()
        for name, decided in whole.decisions.items():
            assert np.array_equal(pieces.decisions[name], decided)


def test_the_json_has_everything_with_intervals(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", full(arms(N)))
    found = replay(Log(path), CASCADE, ["uss-pd"], out=tmp_path / "out")
    content = (tmp_path / "out" / "replay.json").read_bytes()
    assert content == found.to_json()
    plain = json.loads(content)
    assert plain["policies"][0]["cost"].keys() == {"value", "low", "high"}
    assert (plain["log"], plain["exact"], plain["arms"]) == ("log.parquet", True, list(NAMES))
    assert (tmp_path / "out" / "replay.png").read_bytes().startswith(b"\x89PNG")


def test_the_cascade_must_be_the_logs(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(arms(50)))
    with pytest.raises(InvalidParameterError, match=r"arms of log\.csv are rules, small, large"):
        replay(Log(path), sw.Cascade([0.1, 0.2, 0.3]))
