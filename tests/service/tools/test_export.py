"""Exported rounds, compared with the service that wrote the log."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError
from stopwise.progress import no_progress
from stopwise.service.domain import messages as m
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.spec import build
from stopwise.service.labels import report_label
from stopwise.service.tools.export import Export, export_rounds
from tests.service.tools.conftest import SampleLog
from tests.service.tools.sample_logs import (
    ARMS,
    STAGED,
    TRIAGE,
    blocks_of,
    change,
    open_round,
    play,
    report,
    running,
    using,
)

DEFAULTS: Any = {"contexts": "plain", "progress": no_progress}


async def export(where: str, out: Path, cascade: str | None = None, **options: Any) -> Export:
    arguments = {**DEFAULTS, **options}
    return await using(where, lambda store: export_rounds(store, out, cascade, **arguments))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def test_rows_match_the_rounds_of_the_service(log: SampleLog, tmp_path: Path) -> None:
    where, out = log.where, tmp_path / "rounds.jsonl"
    done = await export(where, out, "triage")
    n, lines = done.counts, rows(out)
    assert (n["written"], n["labelled"], n["failed"], n["open"]) == (28, 4, 2, 2)
    assert (n["expired"], n["lost"], done.as_json, done.without_context) == (0, 0, False, False)
    assert done.costs == [0.05, 0.1, 0.3]
    assert n["complete"] == sum(None not in row["outputs"].values() for row in lines)
    assert 0 < n["complete"] < 28
    async with running(where) as service:
        await service.cascade("triage")  # loads it
        ledger = service.state.cascades["triage"].ledger
        ended = [ledger.ended_at[ledger.number(row["id"])] for row in lines]
        assert ended == sorted(ended)  # learning order
        for row in lines:
            view = await service.round("triage", row["id"])
            assert list(row["context"].values()) == view.context
            assert list(row["context"]) == ["age", "fever"]
            outputs = {arm: output for arm, output in row["outputs"].items() if output is not None}
            assert outputs == view.outputs
            assert (row["failed"] is None) == (len(outputs) == (view.stop or 0) + 1)
            assert (row["label"] is not None) == view.labelled
            rule_stop = ledger.rule_stops[ledger.number(row["id"])]
            assert row["rule_stop"] == ARMS[rule_stop].name


async def test_revealed_numbers_are_exported_by_arm(sqlite: SampleLog, tmp_path: Path) -> None:
    where, out = sqlite.where, tmp_path / "staged.jsonl"
    done = await export(where, out, "staged")
    assert (done.counts["written"], done.counts["failed"], done.without_context) == (8, 1, False)
    async with running(where) as service:
        for row in rows(out):
            view = await service.round("staged", row["id"])
            revealed = [row["revealed"].get(arm, {}) for arm in ("rules", "model")]
            context = [row["context"]["age"]]
            context += [x for numbers in revealed for x in numbers.values() if x is not None]
            assert context == (view.context or [])[: len(context)]
            answered = sum(output is not None for output in row["outputs"].values())
            assert len(context) == (1, 2, 3, 3)[answered]
    # The rounds were sequential, so a new policy replays them to the same stops.
    policy: Any = build(STAGED)
    (chunk,) = sw.Log(out).chunks()
    stops = policy.run_recorded(chunk.rounds)
    answered = ~chunk.rounds.failed
    assert stops[answered].tolist() == chunk.stops[answered].tolist()
    assert policy.rounds == 8


@pytest.mark.parametrize(
    ("outputs", "as_json"),
    [
        (["a", "b", "a"], False),
        ([-1, 2, -1.5], False),
        ([1, True, 1], True),
        ([{"a": 1}, [1], {"a": 1.0}], True),
        ([2**60, 2**60 + 1, 2**60], True),
        (["x" * 2000, "y" * 2000, "x" * 2000], True),  # stored as hashes
    ],
)
async def test_outputs_of_any_type_are_exported(
    outputs: list[Any], as_json: bool, tmp_path: Path
) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"
    async with running(where) as service:
        await service.create(CascadeSpec("any", ARMS, 1, keep_open=1), None)
        for _ in range(3):
            await report(
                service, await open_round(service, [0.5], "any"), outputs.__getitem__, "any"
            )
        for _ in range(3):
            await open_round(service, [0.25], "any")
        await service.retire("any")
    done = await export(where, out)
    assert done.as_json == as_json
    assert [done.counts[name] for name in ("written", "expired", "open", "lost")] == [3, 2, 1, 0]
    # Outputs differ in the exported log exactly if they differ for the service.
    await export(where, tmp_path / "rounds.csv")
    first = next(sw.Log(out).chunks()).rounds.differ[0].astype(bool).tolist()
    assert next(sw.Log(tmp_path / "rounds.csv").chunks()).rounds.differ[0].tolist() == first
    same = [json.dumps(y, sort_keys=True).replace("1.0", "1") for y in outputs]
    assert first == [same[0] != same[1], same[0] != same[2], same[1] != same[2]]


async def test_labels_by_arm_convert_all_labels_to_columns_of_arms(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"
    answers = ["yes", "no", "it depends"]
    async with running(where) as service:
        await service.create(CascadeSpec("any", ARMS, 1), None)
        opened = [await open_round(service, [0.5], "any") for _ in range(3)]
        for round_ in opened:
            await report(service, round_, answers.__getitem__, "any")
        names = [arm.name for arm in ARMS]
        right = dict(zip(names, [True, False, True], strict=True))
        await report_label(service, "any", opened[0].id, m.LabelReport("no"))
        await report_label(service, "any", opened[1].id, m.LabelReport(right=right))
    done = await export(where, out)
    assert (done.counts["written"], done.counts["labelled"]) == (3, 2)
    log = sw.Log(out)
    rounds = next(log.chunks()).rounds
    assert rounds.labelled is not None
    assert rounds.labelled.tolist() == [True, True, False]
    assert rounds.right is not None
    assert rounds.right[:2].tolist() == [[False, True, False], [True, False, True]]


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-1", "@sum", "\tx", "\rx", "'=1", "''=1", "=1"]
HARMLESS = ["'quoted'", "a=1", "", " =1", "'", "é"]


async def test_csv_cells_are_never_formulas(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.csv"
    texts = [*FORMULAS, *HARMLESS]
    spec = CascadeSpec("any", [Arm("=a", 0.1), Arm("-b", 0.1), Arm("c", 0.1)], 1)

    async with running(where) as service:
        await service.create(spec, None)
        for k, text in enumerate(texts):
            opened = await open_round(service, [-0.5], "any")
            await report(service, opened, [text, texts[k - 1], "c"].__getitem__, "any")
    await export(where, out)
    with out.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        for column, cell in line.items():
            if column == "context.x0":
                assert cell == "-0.5"  # numbers are not escaped
            else:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), column
    cells = [line["output.'=a"] for line in lines]
    assert cells[-len(HARMLESS) :] == HARMLESS
    assert cells[: len(FORMULAS)] == [f"'{text}" for text in FORMULAS]
    assert sw.Log(out).arms == ("'=a", "'-b", "c")
    assert next(sw.Log(out).chunks()).stops.tolist() == [2] * len(texts)
    await export(where, tmp_path / "plain.jsonl")
    assert {row["outputs"]["=a"] for row in rows(tmp_path / "plain.jsonl")} == set(texts)


async def test_contexts_can_be_omitted(sqlite: SampleLog, tmp_path: Path) -> None:
    async with running(sqlite.where) as service:
        secrets = {
            repr(number)
            for name, cascade in service.state.cascades.items()
            for k in range(len(cascade.ledger))
            for number in (await service.round(name, cascade.ledger.id(k))).context or []
        }
    assert len(secrets) > 60
    for name in ("triage", "staged"):
        out = tmp_path / f"{name}.csv"
        await export(sqlite.where, out, name)
        assert any(secret in out.read_text("utf-8") for secret in secrets)
        await export(sqlite.where, out, name, contexts="none")
        text = out.read_text("utf-8")
        assert "output.rules" in text
        assert not any(secret in text for secret in [*secrets, "fever"])
        assert out.stat().st_mode & 0o777 == 0o600


async def test_a_compacted_log_exports_the_remaining_rounds(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"
    async with running(where) as service:
        await service.create(TRIAGE, None)
        await play(service, 10)
        early = await open_round(service, [0.125, 0.5])
        lost = await open_round(service, [0.25, 0.5])
        cut = service.state.position
        await report(service, lost, lambda arm: "ill")
        await play(service, 3)
    await using(where, lambda store: store.drop_before(cut))  # stopping wrote a snapshot
    async with running(where) as service:
        await report(service, early, lambda arm: "healthy")
    done = await export(where, out)
    assert (done.counts["written"], done.counts["lost"]) == (4, 1)
    assert rows(out)[-1]["id"] == early.id
    assert list(rows(out)[-1]["context"].values()) == [0.125, 0.5]


async def test_a_damaged_log_writes_no_export(sqlite: SampleLog, tmp_path: Path) -> None:
    where = sqlite.where  # a service would start from its snapshot and miss the damage
    victim = [b for b in await using(where, blocks_of) if b"ill" in b.payload][4]
    changed = victim.payload.replace(b"ill", b"ilk")
    folder = tmp_path / "out"
    folder.mkdir()
    for damage, values in (
        ("UPDATE block SET payload = ? WHERE base = ?", (changed, victim.base)),
        ("DELETE FROM block WHERE base = ?", (victim.base,)),
        ("DELETE FROM block WHERE base > ?", (victim.base,)),
    ):
        change(where, damage, values)
        with pytest.raises(CorruptLogError):
            await export(where, folder / "rounds.csv", "triage")
        assert list(folder.iterdir()) == []


async def test_compaction_during_an_export_is_not_reported_as_damage(
    sqlite: SampleLog, tmp_path: Path
) -> None:
    where, stages = sqlite.where, ["reading outputs"]

    def compact(stage: str, done: int, of: int) -> None:
        if stage in stages and done == of:
            stages.clear()
            change(where, "DELETE FROM block WHERE base <= ?", (20,))

    with pytest.raises(CorruptLogError, match="compacted while it was read; try again"):
        await export(where, tmp_path / "out.csv", "triage", progress=compact)
    assert not (tmp_path / "out.csv").exists()
    assert (await export(where, tmp_path / "out.csv", "triage")).counts["written"] > 0
