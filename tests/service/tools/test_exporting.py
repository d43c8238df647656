"""An export has what the service knows, and nothing that was to be left out."""

import asyncio
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.service.messages import Arm, CascadeSpec, OutputsRequest
from stopwise.service.service import Service
from stopwise.service.spec import build
from stopwise.service.tools.exporting import Exported, export_events, export_rounds
from stopwise.service.tools.reading import existing, no_progress
from tests.service.tools.conftest import Lived
from tests.service.tools.making import (
    ARMS,
    STAGED,
    TRIAGE,
    blocks_of,
    change,
    open_round,
    play,
    running,
    with_store,
)

USUAL: Any = {"contexts": "plain", "progress": no_progress}


def exported(where: str, out: Path, cascade: str | None = None, **how: Any) -> Exported:
    return with_store(where, lambda store: export_rounds(store, out, cascade, **{**USUAL, **how}))


def events(where: str, out: Path, **how: Any) -> list[dict[str, Any]]:
    count = with_store(where, lambda store: export_events(store, out, **how))
    assert len(rows(out)) == count
    return rows(out)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_row_is_what_the_service_has_of_the_round(log: Lived, tmp_path: Path) -> None:
    where, out = log.where, tmp_path / "rounds.jsonl"
    done = exported(where, out, "triage")
    n = done.counts
    assert (n["written"], n["labelled"], n["failed"], n["open"]) == (28, 4, 2, 2)
    assert (n["expired"], n["lost"], done.as_json, done.bare) == (0, 0, False, False)
    assert done.costs == [0.05, 0.1, 0.3]
    assert n["complete"] == sum(None not in row["outputs"].values() for row in rows(out))
    assert 0 < n["complete"] < 28

    async def look_up(service: Service) -> None:
        ledger = service.state.cascades["triage"].ledger
        lines = rows(out)
        ended = [ledger.ended_at[ledger.number(row["id"])] for row in lines]
        assert ended == sorted(ended)  # the order in which they were learned
        for row in lines:
            view = await service.round("triage", row["id"])
            assert list(row["context"].values()) == view.context
            assert list(row["context"]) == ["age", "fever"]
            found = {arm: output for arm, output in row["outputs"].items() if output is not None}
            assert found == view.outputs
            assert (row["failed"] is None) == (len(found) == (view.stop or 0) + 1)
            assert (row["label"] is not None) == view.audited
            rule_stop = ledger.rule_stops[ledger.number(row["id"])]
            assert row["rule_stop"] == ARMS[rule_stop].name

    async def scenario() -> None:
        async with running(where) as service:
            await look_up(service)

    asyncio.run(scenario())


def test_what_stages_revealed(sqlite: Lived, tmp_path: Path) -> None:
    where, out = sqlite.where, tmp_path / "staged.jsonl"
    done = exported(where, out, "staged")
    assert (done.counts["written"], done.counts["failed"], done.bare) == (8, 1, True)

    async def scenario() -> None:
        async with running(where) as service:
            for row in rows(out):
                view = await service.round("staged", row["id"])
                known = [
                    number
                    for arm in ("rules", "model")
                    for number in row["revealed"].get(arm, {}).values()
                    if number is not None
                ]
                assert known == (view.context or [])[: len(known)]
                answered = sum(output is not None for output in row["outputs"].values())
                assert len(known) == (0, 2, 3, 3)[answered]

    asyncio.run(scenario())
    # rounds came one after the other, so that a new policy that replays them does the same
    policy = build(STAGED)
    (chunk,) = sw.Log(out, sw.Columns(context=())).chunks()
    stops = policy.run_recorded(chunk.rounds)
    answered = ~chunk.rounds.failed
    assert stops[answered].tolist() == chunk.stops[answered].tolist()
    assert policy.rounds == 8


async def reported(service: Service, outputs: list[Any], rounds: int = 3) -> None:
    """Create a cascade of one context number, and report the same outputs of some rounds."""
    await service.create(CascadeSpec("any", ARMS, 1), None)
    for _ in range(rounds):
        answer = await open_round(service, [0.5], "any")
        assert answer.stop == 2
        await service.report("any", answer.id, OutputsRequest(list(outputs)))


@pytest.mark.parametrize(
    ("outputs", "as_json"),
    [
        (["a", "b", "a"], False),
        ([-1, 2, -1.5], False),
        ([1, True, 1], True),
        ([{"a": 1}, [1], {"a": 1.0}], True),
        ([2**60, 2**60 + 1, 2**60], True),
        (["x" * 2000, "y" * 2000, "x" * 2000], True),  # of which the log has hashes
    ],
)
def test_outputs_of_any_kind(outputs: list[Any], as_json: bool, tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"

    async def scenario() -> None:
        async with running(where) as service:
            await reported(service, outputs)
            await open_round(service, [0.25], "any")

    asyncio.run(scenario())
    done = exported(where, out)
    assert done.as_json == as_json
    assert done.counts["open"] == 1
    # whatever they are, outputs that differ for the service differ in the log too
    exported(where, tmp_path / "rounds.csv")
    first = next(sw.Log(out).chunks()).rounds.differ[0].astype(bool).tolist()
    assert next(sw.Log(tmp_path / "rounds.csv").chunks()).rounds.differ[0].tolist() == first
    same = [json.dumps(y, sort_keys=True).replace("1.0", "1") for y in outputs]
    assert first == [same[0] != same[1], same[0] != same[2], same[1] != same[2]]


# -- files ----------------------------------------------------------------------------------------


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-1", "@sum", "\tx", "\rx", "'=1", "''=1", "=1"]
HARMLESS = ["'quoted'", "a=1", "", " =1", "'", "é"]


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.csv"
    texts = [*FORMULAS, *HARMLESS]
    spec = CascadeSpec("any", [Arm("=a", 0.1), Arm("-b", 0.1), Arm("c", 0.1)], 1)

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(spec, None)
            for k, text in enumerate(texts):
                answer = await open_round(service, [-0.5], "any")
                outputs: list[Any] = [text, texts[k - 1], "c"]
                await service.report("any", answer.id, OutputsRequest(outputs))

    asyncio.run(scenario())
    exported(where, out)
    with out.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        for column, cell in line.items():
            if column == "context.x0":
                assert cell == "-0.5"  # a number is written as it is
            else:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), column
    found = [line["output.'=a"] for line in lines]
    assert found[-len(HARMLESS) :] == HARMLESS
    assert found[: len(FORMULAS)] == [f"'{text}" for text in FORMULAS]
    assert len(set(found)) == len(set(texts))  # different outputs stay different
    # Read back, equal outputs are those that were equal, and arms are found by their names.
    log = sw.Log(out)
    assert log.arms == ("'=a", "'-b", "c")
    exported(where, tmp_path / "plain.jsonl")
    plain = next(sw.Log(tmp_path / "plain.jsonl").chunks())
    assert next(log.chunks()).rounds.differ.tolist() == plain.rounds.differ.tolist()
    assert next(log.chunks()).stops.tolist() == plain.stops.tolist()
    assert {row["outputs"]["=a"] for row in rows(tmp_path / "plain.jsonl")} == set(texts)


# -- contexts -------------------------------------------------------------------------------------


def contexts_of(where: str) -> set[str]:
    """Return every number of a context that the log holds, as text."""

    async def scenario() -> set[str]:
        numbers: set[float] = set()
        async with running(where) as service:
            for name, learner in service.state.cascades.items():
                for number in range(len(learner.ledger)):
                    view = await service.round(name, learner.ledger.id(number))
                    numbers |= set(view.context or [])
        return {repr(number) for number in numbers}

    return asyncio.run(scenario())


def test_contexts_that_are_left_out(sqlite: Lived, tmp_path: Path) -> None:
    secrets = contexts_of(sqlite.where)
    assert len(secrets) > 60
    out = tmp_path / "events.jsonl"
    events(sqlite.where, out)
    assert all(secret in out.read_text("utf-8") for secret in secrets)
    events(sqlite.where, out, contexts="none")
    for name in ("triage", "staged"):
        exported(sqlite.where, tmp_path / f"{name}.csv", name, contexts="none")
        assert "output.rules" in (tmp_path / f"{name}.csv").read_text("utf-8")
        assert "fever" not in (tmp_path / f"{name}.csv").read_text("utf-8")
    for path in (out, tmp_path / "triage.csv", tmp_path / "staged.csv"):
        assert not any(secret in path.read_text("utf-8") for secret in secrets)
        assert path.stat().st_mode & 0o777 == 0o600


def test_every_event_as_a_line(sqlite: Lived, tmp_path: Path) -> None:
    where = sqlite.where
    lines = events(where, tmp_path / "events.jsonl")
    assert [line["event"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["kind"] for line in lines} == {"created", "opened", "reported", "labelled"}
    assert lines[0]["spec"]["arms"][0] == {"name": "rules", "cost": 0.05}
    assert lines[0]["key"] == "create it"
    first, *_, batch = [
        line for line in lines if line["kind"] == "opened" and line["cascade"] == "triage"
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["time"])
    (one,) = first["rounds"]
    assert set(one) == {"id", "context", "stop", "rule_stop"}
    assert one["stop"] == "person"
    assert len(batch["rounds"]) == 5
    assert batch["key"] == "a batch"
    label = next(line for line in lines if line["kind"] == "labelled")
    assert (label["id"], label["label"]) == (one["id"], "ill")
    outputs = next(line for line in lines if line["kind"] == "reported")
    assert (outputs["id"], outputs["ended"], outputs["early"]) == (one["id"], True, False)
    assert list(outputs["outputs"]) == ["rules", "model", "person"]
    staged = events(where, tmp_path / "staged.jsonl", cascade="staged")
    assert {line["cascade"] for line in staged} == {"staged"}
    assert len(staged) < len(lines)
    begun = [line["rounds"][0] for line in staged if line["kind"] == "opened"]
    assert [len(one.get("context", ())) for one in begun] == [k % 3 for k in range(8)]
    assert not any("stop" in one for one in begun)
    last = [line for line in staged if line["kind"] == "reported" and line["id"] == begun[7]["id"]]
    assert [(line["ended"], line["early"]) for line in last] == [(False, False), (True, True)]
    assert len(last[0]["revealed"]) == 1


def test_a_retired_cascade(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await service.retire("triage")

    asyncio.run(scenario())
    lines = events(where, tmp_path / "events.jsonl")
    assert [(line["kind"], line["cascade"]) for line in lines] == [
        ("created", "triage"),
        ("retired", "triage"),
    ]
    assert exported(where, tmp_path / "rounds.csv").counts["written"] == 0


def test_what_is_left_of_a_compacted_log(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"

    async def scenario() -> str:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await play(service, 10)
            early = await open_round(service, [0.125, 0.5])
            lost = await open_round(service, [0.25, 0.5])
            cut = service.state.position
            outputs: list[Any] = ["ill"] * 3
            await service.report("triage", lost.id, OutputsRequest(outputs[: (lost.stop or 0) + 1]))
            await play(service, 3)
        async with existing(where) as store:  # stopping has written a snapshot
            await store.drop_before(cut)
        async with running(where) as service:
            outputs = ["well"] * ((early.stop or 0) + 1)
            await service.report("triage", early.id, OutputsRequest(outputs))
        return early.id

    early = asyncio.run(scenario())
    done = exported(where, out)
    assert (done.counts["written"], done.counts["lost"]) == (4, 1)
    assert rows(out)[-1]["id"] == early
    assert list(rows(out)[-1]["context"].values()) == [0.125, 0.5]


def test_rounds_that_were_given_up(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(CascadeSpec("any", ARMS, 1, keep_open=2), None)
            answers = [await open_round(service, [0.1 * k], "any") for k in range(5)]
            await service.report("any", answers[3].id, OutputsRequest(["a", "b", "c"]))

    asyncio.run(scenario())
    done = exported(where, out)
    counts = [done.counts[name] for name in ("written", "expired", "open", "lost")]
    assert counts == [1, 3, 1, 0]
    assert list(rows(out)[0]["context"].values()) == [0.1 * 3]


def test_which_cascade_must_be_clear(sqlite: Lived, tmp_path: Path) -> None:
    where = sqlite.where
    for name, cascade in (
        ("out.csv", None),
        ("out.csv", "nobody"),
        ("out.xls", "triage"),
        ("none/out.csv", "triage"),
    ):
        with pytest.raises(InvalidParameterError):
            exported(where, tmp_path / name, cascade)
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".db-owner"}


@pytest.mark.parametrize("damage", ["flipped", "deleted", "end deleted"])
def test_of_a_damaged_log_nothing_is_written(damage: str, sqlite: Lived, tmp_path: Path) -> None:
    where = sqlite.where  # the snapshot it ends with keeps a service from noticing
    found = [b for b in with_store(where, blocks_of) if b"ill" in b.payload]
    if damage == "flipped":
        victim = found[4]
        other = victim.payload.replace(b"ill", b"ilk")
        change(where, "UPDATE block SET payload = ? WHERE base = ?", (other, victim.base))
    else:
        which = "=" if damage == "deleted" else ">="
        change(where, f"DELETE FROM block WHERE base {which} ?", (found[4].base,))
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(CorruptLogError):
        exported(where, folder / "rounds.csv", "triage")
    with pytest.raises(CorruptLogError):
        events(where, folder / "events.jsonl")
    assert list(folder.iterdir()) == []


def test_a_log_that_is_compacted_meanwhile_is_told_from_damage(
    sqlite: Lived, tmp_path: Path
) -> None:
    where = sqlite.where
    once: list[str] = []

    def report(stage: str, done: int, of: int) -> None:
        if stage == "reading outputs" and done == of and not once:
            once.append(stage)
            change(where, "DELETE FROM block WHERE base <= ?", (20,))

    with pytest.raises(CorruptLogError, match="compacted while it was read: try again"):
        exported(where, tmp_path / "out.csv", "triage", progress=report)
    assert not (tmp_path / "out.csv").exists()
    assert exported(where, tmp_path / "out.csv", "triage").counts["written"] > 0
