"""``stopwise log`` on logs that a real service has written."""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.service.state import State
from stopwise.service.tools.checking import rebuild
from tests.cli.conftest import Run
from tests.service.tools.making import COSTS, TRIAGE, lived, play, running, with_store


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "stopwise.db"
    lived(str(path))
    return path


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    for end in ("", "-owner"):
        shutil.copy(f"{original}{end}", tmp_path)
    return tmp_path / "stopwise.db"


def hash_in(text: str) -> str:
    return re.findall(r"State hash: ([0-9a-f]{64})", text)[0]


def changed(store: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(store) as sql:
        assert sql.execute(statement, values).rowcount > 0
    sql.close()


def damage(store: Path) -> None:
    changed(store, "UPDATE block SET payload = zeroblob(length(payload)) WHERE base = 7")


def rebuilt(store: Path) -> State:
    return with_store(str(store), rebuild)[0]


def test_what_is_not_there_is_reported_and_not_created(stopwise: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for verb in ("info", "rebuild", "verify", "compact"):
        done = stopwise("log", verb, "notes.txt")
        assert (done.returncode, done.stdout) == (2, "")
        assert "notes.txt" in done.stderr
    assert stopwise("log", "info").returncode == 2  # stopwise.db, which is not there either
    assert stopwise("log", "export", "none.db", "--out", "a.csv").returncode == 2
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_info(stopwise: Run, store: Path) -> None:
    done = stopwise("log", "info")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 created, 34 opened" in done.stdout
    assert "triage (uss-pd): 30 rounds, 28 learned, 2 open, 4 labelled" in done.stdout
    assert "rules and model: both ran in" in done.stdout
    by_variable = stopwise("log", "info", STOPWISE_STORE=str(store))
    assert by_variable.stdout == done.stdout


def test_rebuild_gives_the_policy_of_the_service(
    stopwise: Run, store: Path, tmp_path: Path
) -> None:
    before = store.read_bytes()
    done = stopwise("log", "rebuild", "--cascade", "triage", "--save", "triage.stopwise")
    assert done.returncode == 0
    assert (tmp_path / "triage.stopwise").stat().st_mode & 0o777 == 0o600
    state = rebuilt(store)
    assert hash_in(done.stdout) == state.hash()
    saved = sw.load(tmp_path / "triage.stopwise").state()
    for name, array in state.cascades["triage"].policy.state().items():
        assert saved[name].tobytes() == array.tobytes()
    assert store.read_bytes() == before
    assert "10 events" in stopwise("log", "rebuild", "--upto", "10").stdout
    assert stopwise("log", "rebuild", "--upto", "100000").returncode == 2
    assert stopwise("log", "rebuild", "--save", "any.stopwise").returncode == 2  # which cascade?
    assert stopwise("log", "rebuild", "--cascade", "triage").returncode == 2


def test_verify(stopwise: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = stopwise("log", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert hash_in(done.stdout) == rebuilt(store).hash()
    with monkeypatch.context() as other:
        other.setattr("stopwise.service.state.FORMAT", 999)
        assert "not compared" in stopwise("log", "verify").stdout
    changed(store, "UPDATE snapshot SET payload = zeroblob(length(payload))")
    assert stopwise("log", "verify").returncode == 1


def test_a_process_of_its_own(store: Path, tmp_path: Path) -> None:
    damage(store)
    environment = {**os.environ, "STOPWISE_STORE": str(store)}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    command = [sys.executable, "-m", "stopwise", "log", "verify"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "events 7 to 7" in done.stderr


def test_an_exported_run_is_replayed_decision_for_decision(stopwise: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(str(tmp_path / "stopwise.db")) as service:
            await service.create(TRIAGE, None)
            await play(service, 300)

    asyncio.run(scenario())
    assert stopwise("log", "rebuild", "--upto", "1", "--save", "before.stopwise").returncode == 0
    done = stopwise("log", "export", "--out", "live.parquet")
    assert done.returncode == 0
    assert "300 rounds" in done.stdout
    assert f"stopwise diagnose live.parquet --costs {COSTS}" in done.stdout
    policy = sw.load(tmp_path / "before.stopwise")
    (chunk,) = sw.Log(tmp_path / "live.parquet").chunks()
    assert policy.run_recorded(chunk.rounds).tolist() == chunk.stops.tolist()
    done = stopwise("log", "export", "--contexts", "none", "--out", "bare.csv")
    assert f"Next: stopwise diagnose bare.csv --costs {COSTS} --context ''" in done.stdout


def test_export(stopwise: Run, store: Path, tmp_path: Path) -> None:
    done = stopwise("log", "export", "--cascade", "triage", "--contexts", "none", "--out", "a.csv")
    assert done.returncode == 0
    assert "Next:" not in done.stdout  # too few rounds for a diagnosis
    assert "full_depth_every" in done.stdout
    assert "context" not in (tmp_path / "a.csv").read_text().splitlines()[0]
    assert stopwise("log", "export", "--events", "--out", "events.jsonl").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert next(line for line in lines if line["kind"] == "opened")["rounds"][0]["context"]
    assert stopwise("log", "export").returncode == 2  # where to?
    assert stopwise("log", "export", "--out", "b.csv").returncode == 2  # which cascade?
    done = stopwise("log", "export", "--cascade", "triage", "--out", "t.xlsx")
    assert done.returncode == 2
    assert "t.xlsx" in done.stderr


def test_compact_asks_first(stopwise: Run, store: Path) -> None:
    state = rebuilt(store)
    end, hash_ = state.position, state.hash()
    assert stopwise("log", "compact").returncode == 0  # nothing is older than 30 days
    asked = stopwise("log", "compact", "--keep-days", "0")
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert "38 rounds" in asked.stdout
    assert f"{end} events in" in stopwise("log", "info").stdout

    assert stopwise("log", "compact", "--keep-days", "0", "--yes").returncode == 0
    verified = stopwise("log", "verify")
    assert (verified.returncode, hash_in(verified.stdout)) == (0, hash_)
    rebuilding = stopwise("log", "rebuild")
    assert "compacted away" in rebuilding.stdout
    assert hash_in(rebuilding.stdout) == hash_
    assert "0 events in" in stopwise("log", "info").stdout


def test_keys(stopwise: Run, tmp_path: Path) -> None:
    from stopwise.service.keys import read_keys

    made = stopwise("keys", "add", "--name", "dash[board]")
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}\n", made.stdout)
    assert made.stdout.strip() not in made.stderr
    id_ = made.stdout.split("_")[1]
    words = ("--scope", "decide", "--cascade", "triage", "--rate", "5", "--expires", "90d")
    assert stopwise("keys", "add", "--name", "ward", *words).returncode == 0
    first, second = read_keys(tmp_path / "keys.jsonl")
    assert first.scopes == ("read",)
    assert (second.scopes, second.cascades, second.rate) == (("decide",), ("triage",), 5.0)
    assert (second.expires or 0) - second.created == pytest.approx(90 * 86_400, abs=60)
    listed = stopwise("keys", "list", COLUMNS="200").stdout
    assert all(word in listed for word in (id_, "dash[board]", "triage", "5/s", "never"))
    assert made.stdout.split("_", 2)[2].strip() not in listed
    done = stopwise("keys", "revoke", "dash[board]")
    assert (done.returncode, done.stdout) == (2, "")
    assert id_ in done.stderr  # that is a name; the id is …
    assert stopwise("keys", "revoke", "desktop").returncode == 2
    assert stopwise("keys", "revoke", id_).stdout == f"Revoked {id_} (dash[board]).\n"
    before = (tmp_path / "keys.jsonl").read_bytes()
    for wrong in (("--scope", "root"), ("--expires", "soon"), ("--name", "")):
        done = stopwise("keys", "add", "--name", "x", *wrong)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert (tmp_path / "keys.jsonl").read_bytes() == before
