"""What was exported says what the service knows, and nothing that was to be left out."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import CorruptLogError, InvalidParameterError
from stopwise.logs.diagnosis.sampling import survey
from stopwise.service.journal import Journal
from stopwise.service.messages import CascadeSpec, DecisionRequest, OutputsRequest
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.service.spec import build
from stopwise.service.tools.exporting import Exported, export_rounds
from stopwise.service.tools.opening import existing
from stopwise.service.tools.telling import export_events
from stopwise.service.tools.words import of_export
from tests.service.tools.making import (
    ARMS,
    STAGED,
    TRIAGE,
    blocks_of,
    change,
    live,
    lived,
    opened,
    play,
    running,
)


def exported(where: str, out: Path, cascade: str | None = None, **how: Any) -> Exported:
    async def scenario() -> Exported:
        async with existing(where) as store:
            return await export_rounds(store, out, cascade, **how)

    return asyncio.run(scenario())


def told(where: str, out: Path, **how: Any) -> list[dict[str, Any]]:
    async def scenario() -> int:
        async with existing(where) as store:
            return await export_events(store, out, **how)

    count = asyncio.run(scenario())
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(lines) == count
    return lines


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_row_is_what_the_service_says_of_the_round(where: str, tmp_path: Path) -> None:
    lived(where)
    out = tmp_path / "rounds.jsonl"
    done = exported(where, out, "triage")
    assert (done.rounds, done.labelled, done.failed, done.open) == (28, 4, 2, 2)
    assert (done.expired, done.lost, done.as_json) == (0, 0, "")
    assert done.costs == [0.05, 0.1, 0.3]
    assert done.complete == sum(None not in row["outputs"].values() for row in rows(out))
    assert 0 < done.complete < done.rounds
    seen = survey(sw.Log(out).chunks(), 3, 2, sample=1000, seed=0)
    assert (done.complete, done.balanced) == (seen.full_depth, seen.sample.n)

    async def look_up(service: Service) -> None:
        ledger = service.state.cascades["triage"].ledger
        lines = rows(out)
        ended = [ledger.ended_at[ledger.number(row["id"])] for row in lines]
        assert ended == sorted(ended)  # the order in which they were learned
        for row in lines:
            view = await service.decision("triage", row["id"])
            assert list(row["context"].values()) == view.context
            assert list(row["context"]) == ["age", "fever"]
            said = {arm: output for arm, output in row["outputs"].items() if output is not None}
            assert said == view.outputs
            assert (row["failed"] is None) == (len(said) == (view.stop or 0) + 1)
            assert (row["label"] is not None) == view.audited
            wanted = ledger.wanted[ledger.number(row["id"])]
            assert row["wanted"] == ARMS[wanted].name

    async def scenario() -> None:
        async with running(where) as service:
            await look_up(service)

    asyncio.run(scenario())


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_formats_hold_the_same(suffix: str, tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    exported(where, tmp_path / "plain.jsonl", "triage")
    exported(where, tmp_path / f"rounds{suffix}", "triage")
    expected = next(sw.Log(tmp_path / "plain.jsonl").chunks())
    log = sw.Log(tmp_path / f"rounds{suffix}")
    found = next(log.chunks())
    assert log.arms == ("rules", "model", "person")
    assert log.has_labels
    np.testing.assert_array_equal(found.rounds.contexts, expected.rounds.contexts)
    np.testing.assert_array_equal(found.rounds.differ, expected.rounds.differ)
    np.testing.assert_array_equal(found.stops, expected.stops)
    assert len(found.stops) == 28


def test_what_stages_revealed(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "staged.jsonl"
    lived(where)
    done = exported(where, out, "staged")
    assert (done.rounds, done.failed, done.bare) == (8, 1, True)

    async def scenario() -> None:
        async with running(where) as service:
            for row in rows(out):
                view = await service.decision("staged", row["id"])
                known = [
                    number
                    for arm in ("rules", "model")
                    for number in row["revealed"].get(arm, {}).values()
                    if number is not None
                ]
                assert known == (view.context or [])[: len(known)]
                said = sum(output is not None for output in row["outputs"].values())
                assert len(known) == (0, 2, 3, 3)[said]

    asyncio.run(scenario())
    # rounds came one after the other, so that a new policy that replays them does the same
    policy = build(STAGED)
    (chunk,) = sw.Log(out, sw.Columns(context=())).chunks()
    stops = policy.replay(chunk.rounds)
    answered = ~chunk.rounds.failed
    assert stops[answered].tolist() == chunk.stops[answered].tolist()
    assert policy.rounds == 8


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (["a", "b", "a"], ""),
        ([1, 2, 1.5], ""),
        ([True, False, True], ""),
        ([1, True, 1], "several kinds"),
        (["a", 1, "a"], "several kinds"),
        ([{"a": 1}, [1], {"a": 1.0}], "lists or objects"),
        ([2**60, 2**60 + 1, 2**60], "large numbers"),
    ],
)
def test_outputs_of_any_kind(outputs: list[Any], reason: str, tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"

    async def scenario() -> None:
        async with running(where) as service:
            await service.create(CascadeSpec("any", ARMS, 1), None)
            for _ in range(3):
                decision, _ = await service.decide("any", DecisionRequest([0.5]), None)
                assert decision.stop == 2
                await service.outputs("any", decision.id, OutputsRequest(list(outputs)))
            await service.decide("any", DecisionRequest([0.25]), None)

    asyncio.run(scenario())
    done = exported(where, out)
    assert reason in done.as_json
    assert bool(done.as_json) == bool(reason)
    assert ("JSON" in " ".join(of_export(done))) == bool(reason)
    assert "1 decision still open" in " ".join(of_export(done))
    # whatever they are, outputs that differ for the service differ in the log too
    first = next(sw.Log(out).chunks()).rounds.differ[0].astype(bool).tolist()
    same = [json.dumps(y, sort_keys=True).replace("1.0", "1") for y in outputs]
    assert first == [same[0] != same[1], same[0] != same[2], same[1] != same[2]]


def contexts_of(where: str) -> set[str]:
    """Return every number of a context that the log holds, as text."""

    async def scenario() -> set[str]:
        numbers: set[float] = set()
        async with running(where) as service:
            for name, learner in service.state.cascades.items():
                for number in range(len(learner.ledger)):
                    view = await service.decision(name, learner.ledger.id(number))
                    numbers |= set(view.context or [])
        return {repr(number) for number in numbers}

    return asyncio.run(scenario())


@pytest.mark.parametrize("contexts", ["hashed", "none"])
def test_contexts_that_are_not_to_be_shown_are_not(contexts: Any, tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "events.jsonl"
    lived(where)
    secrets = contexts_of(where)
    assert len(secrets) > 60
    found: dict[Any, set[str]] = {}
    for how in ("plain", contexts):
        told(where, out, contexts=how)
        text = out.read_text("utf-8")
        found[how] = {secret for secret in secrets if secret in text}
        numbers = {float(n) for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)}
        assert bool(numbers & set(map(float, secrets))) == (how == "plain")
    assert found["plain"] == secrets
    assert found[contexts] == set()


def test_rounds_without_contexts(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    secrets = contexts_of(where)
    for name in ("triage", "staged"):
        out = tmp_path / f"{name}.csv"
        exported(where, out, name, contexts="none")
        text = out.read_text("utf-8")
        assert "output.rules" in text
        assert not any(secret in text for secret in secrets)
        assert "fever" not in text
    with pytest.raises(InvalidParameterError, match="hashes are no contexts"):
        exported(where, tmp_path / "hashed.csv", "triage", contexts="hashed")
    assert not (tmp_path / "hashed.csv").exists()


def test_events_for_people(where: str, tmp_path: Path) -> None:
    lived(where)
    lines = told(where, tmp_path / "events.jsonl")
    assert [line["event"] for line in lines] == list(range(1, len(lines) + 1))
    kinds = {line["kind"] for line in lines}
    assert kinds == {"created", "decided", "told", "started", "stepped", "ended", "labelled"}
    first, *_, batch = [line for line in lines if line["kind"] == "decided"]
    assert first["cascade"] == "triage"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["time"])
    (decision,) = first["decisions"]
    assert set(decision) == {"id", "context", "stop", "wanted"}
    assert decision["stop"] == "person"
    assert len(batch["decisions"]) == 5
    assert batch["key"] == "a batch"
    assert lines[0]["spec"]["arms"][0] == {"name": "rules", "cost": 0.05}
    label = next(line for line in lines if line["kind"] == "labelled")
    assert (label["id"], label["label"]) == (decision["id"], "ill")
    some = told(where, tmp_path / "some.jsonl", cascade="staged")
    assert {line["cascade"] for line in some} == {"staged"}
    assert len(some) < len(lines)


def test_hashes_are_those_of_a_service_with_the_same_salt(tmp_path: Path) -> None:
    where, salt = str(tmp_path / "log.db"), "sixteen characters at least"
    lived(where)
    plain = told(where, tmp_path / "plain.jsonl", cascade="triage")
    hashed = told(where, tmp_path / "hashed.jsonl", cascade="triage", contexts="hashed", salt=salt)
    shown = Journal(Settings(log_contexts="hashed", log_salt=salt)).shown
    for line, secret in zip(plain, hashed, strict=True):
        for one, other in zip(line.get("decisions", ()), secret.get("decisions", ()), strict=True):
            assert other["context"] == shown(one["context"])
    again = told(where, tmp_path / "again.jsonl", cascade="triage", contexts="hashed")
    assert again != hashed  # another salt, which nobody knows


def test_of_a_compacted_log_what_is_left(tmp_path: Path) -> None:
    where, out = str(tmp_path / "log.db"), tmp_path / "rounds.jsonl"

    async def scenario() -> tuple[str, int]:
        async with running(where) as service:
            await service.create(TRIAGE, None)
            await play(service, 10)
            early, _ = await service.decide("triage", DecisionRequest([0.125, 0.5]), None)
            lost, _ = await service.decide("triage", DecisionRequest([0.25, 0.5]), None)
            cut = service.state.position
            answers = OutputsRequest(["ill"] * (lost.stop + 1))
            await service.outputs("triage", lost.id, answers)
            await play(service, 3)
        async with opened(where) as store:  # stopping has written a snapshot
            await store.drop_before(cut)
        async with running(where) as service:
            await service.outputs("triage", early.id, OutputsRequest(["well"] * (early.stop + 1)))
        return early.id, cut

    early, _ = asyncio.run(scenario())
    done = exported(where, out)
    assert (done.rounds, done.lost) == (4, 1)
    assert rows(out)[-1]["id"] == early
    assert list(rows(out)[-1]["context"].values()) == [0.125, 0.5]
    assert "1 decision whose beginning was compacted away" in " ".join(of_export(done))


def test_which_cascade_must_be_clear(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    with pytest.raises(InvalidParameterError, match=r"say which cascade.*triage, staged"):
        exported(where, tmp_path / "out.csv")
    with pytest.raises(InvalidParameterError, match="no cascade is called 'nobody'"):
        exported(where, tmp_path / "out.csv", "nobody")
    with pytest.raises(InvalidParameterError, match="does not tell its format"):
        exported(where, tmp_path / "out.xls", "triage")
    with pytest.raises(InvalidParameterError, match="no folder"):
        exported(where, tmp_path / "none" / "out.csv", "triage")
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".db-owner"}


@pytest.mark.parametrize("damage", ["flipped", "deleted", "end deleted"])
def test_of_a_damaged_log_nothing_is_written(damage: str, where: str, tmp_path: Path) -> None:
    lived(where)  # the snapshot it ends with keeps a service from noticing

    async def find() -> Any:
        async with opened(where) as store:
            return [b for b in await blocks_of(store) if b"ill" in b.payload]

    found = asyncio.run(find())
    if damage == "flipped":
        victim, said = found[4], "is not what was written"
        other = victim.payload.replace(b"ill", b"ilk")
        change(where, "UPDATE block SET payload = ? WHERE base = ?", (other, victim.base))
    else:
        whole = damage == "deleted"
        victim, said = found[4], "goes on at event" if whole else "its end is missing"
        which = "=" if whole else ">="
        change(where, f"DELETE FROM block WHERE base {which} ?", (victim.base,))
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(CorruptLogError, match=said):
        exported(where, folder / "rounds.csv", "triage")
    with pytest.raises(CorruptLogError, match=said):
        told(where, folder / "events.jsonl")
    assert list(folder.iterdir()) == []


def test_a_log_that_is_compacted_meanwhile_is_told_from_damage(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    once: list[str] = []

    def report(stage: str, done: int, of: int) -> None:
        if stage == "looking" and done == of and not once:
            once.append(stage)
            change(where, "DELETE FROM block WHERE base <= ?", (20,))

    with pytest.raises(CorruptLogError, match="compacted while it was read: try again"):
        exported(where, tmp_path / "out.csv", "triage", progress=report)
    assert not (tmp_path / "out.csv").exists()
    assert exported(where, tmp_path / "out.csv", "triage").rounds > 0


def test_while_a_service_is_running(where: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(where) as service:
            await live(service)
            async with existing(where) as store:
                done = await export_rounds(store, tmp_path / "rounds.csv", "triage")
            assert done.rounds == service.cascade("triage").learned

    asyncio.run(scenario())
