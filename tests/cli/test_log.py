"""``stopwise log``, run for real, on logs that a real service has written."""

import asyncio
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

import stopwise as sw
from stopwise.cli.main import main
from stopwise.service.state import State
from stopwise.service.tools.checking import replay
from stopwise.service.tools.reading import existing
from tests.service.tools.making import COSTS, TRIAGE, lived, play, running

Program: TypeAlias = Callable[..., "Done"]
VERBS = ("info", "replay", "verify", "export", "compact", "backup", "restore")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def stopwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Program:
    """The program, in this process: a process of its own takes seconds to load it."""

    def run(*words: str, **environment: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.delenv("STOPWISE_STORE", raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["stopwise", *words])
        monkeypatch.setattr("sys.stdin", io.StringIO())
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    lived(str(tmp_path / "stopwise.db"))
    return tmp_path / "stopwise.db"


def flat(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def hash_in(text: str) -> str:
    return re.findall(r"State hash: ([0-9a-f]{64})", text)[0]


def damage(store: Path, base: int = 7) -> None:
    with sqlite3.connect(store) as sql:
        (payload,) = sql.execute("SELECT payload FROM block WHERE base = ?", (base,)).fetchone()
        broken = bytes([payload[0]]) + bytes([payload[1] ^ 1]) + payload[2:]
        sql.execute("UPDATE block SET payload = ? WHERE base = ?", (broken, base))
    sql.close()


def replayed(store: Path) -> State:
    async def scenario() -> State:
        async with existing(str(store)) as log:
            return (await replay(log))[0]

    return asyncio.run(scenario())


def test_help_teaches(stopwise: Program) -> None:
    done = stopwise("log", "--help")
    assert done.returncode == 0
    assert "stopwise log backup stopwise.db monday.db" in flat(done.stdout)
    for verb in VERBS:
        assert verb in done.stdout
        shown = stopwise("log", verb, "--help")
        assert shown.returncode == 0
        assert f"stopwise log {verb}" in flat(shown.stdout)


def test_what_is_not_there_is_reported_and_not_created(stopwise: Program, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for verb in ("info", "replay", "verify", "compact"):
        for name in ("none.db", "notes.txt"):
            done = stopwise("log", verb, name)
            assert (done.returncode, done.stdout) == (2, "")
            assert name in done.stderr
    assert stopwise("log", "info").returncode == 2  # stopwise.db, which is not there either
    assert stopwise("log", "backup", "none.db", "copy.db").returncode == 2
    assert stopwise("log", "export", "none.db", "--out", "a.csv").returncode == 2
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_info(stopwise: Program, store: Path) -> None:
    done = stopwise("log", "info")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 created, 34 opened" in done.stdout
    assert "triage (uss-pd): 30 rounds, 28 learned, 2 open, 4 labelled" in done.stdout
    assert "rules and model: both ran in" in done.stdout
    by_variable = stopwise("log", "info", STOPWISE_STORE=str(store))
    assert by_variable.stdout == done.stdout


def test_replay_gives_the_policy_of_the_service(
    stopwise: Program, store: Path, tmp_path: Path
) -> None:
    before = store.read_bytes()
    done = stopwise("log", "replay", "--cascade", "triage", "--save", "triage.stopwise")
    assert done.returncode == 0
    assert (tmp_path / "triage.stopwise").stat().st_mode & 0o777 == 0o600
    state = replayed(store)
    assert hash_in(done.stdout) == state.hash()
    saved = sw.load(tmp_path / "triage.stopwise").state()
    for name, array in state.cascades["triage"].policy.state().items():
        assert saved[name].tobytes() == array.tobytes()
    assert store.read_bytes() == before

    early = stopwise("log", "replay", "--upto", "10")
    assert early.returncode == 0
    assert "10 events" in early.stdout
    assert stopwise("log", "replay", "--upto", "100000").returncode == 2
    assert stopwise("log", "replay", "--save", "any.stopwise").returncode == 2  # which cascade?
    assert stopwise("log", "replay", "--cascade", "triage").returncode == 2


def test_verify(stopwise: Program, store: Path) -> None:
    done = stopwise("log", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert hash_in(done.stdout) == replayed(store).hash()
    damage(store)
    done = stopwise("log", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "events 7 to 7" in done.stderr


def changed(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as sql:
        assert sql.execute(statement).rowcount > 0
    sql.close()


def test_verify_finds_damaged_snapshots_and_missing_events(stopwise: Program, store: Path) -> None:
    changed(store, "UPDATE snapshot SET payload = zeroblob(length(payload))")
    assert stopwise("log", "verify").returncode == 1
    changed(store, "DELETE FROM snapshot")
    assert stopwise("log", "verify").returncode == 0
    changed(store, "DELETE FROM block WHERE base > 80")  # acknowledged, as the -owner file says
    assert stopwise("log", "verify").returncode == 1


def test_verify_notes_snapshots_of_another_version(
    stopwise: Program, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stopwise.service.state.FORMAT", 999)
    done = stopwise("log", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert "not compared" in done.stdout


@pytest.mark.full
def test_a_process_of_its_own(store: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "STOPWISE_STORE": str(store)}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    command = [sys.executable, "-m", "stopwise", "log", "verify"]
    for code in (0, 1):
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert bool(done.stdout) == (code == 0)
        damage(store)


def test_an_exported_run_is_replayed_decision_for_decision(
    stopwise: Program, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with running(str(tmp_path / "stopwise.db")) as service:
            await service.create(TRIAGE, None)
            await play(service, 300)

    asyncio.run(scenario())
    assert stopwise("log", "replay", "--upto", "1", "--save", "before.stopwise").returncode == 0
    for suffix in ("parquet", "csv", "jsonl"):
        done = stopwise("log", "export", "--out", f"live.{suffix}")
        assert done.returncode == 0
        assert "300 rounds" in done.stdout
        assert f"stopwise diagnose live.{suffix} --costs {COSTS}" in done.stdout
        arguments = ("--costs", COSTS, "--policy", "before.stopwise", "--json")
        replayed = stopwise("replay", f"live.{suffix}", *arguments)
        assert replayed.returncode == 0, replayed.stderr
        (played,) = json.loads(replayed.stdout)["policies"]
        assert played["rounds"] == 300
        assert played["as_played"]["value"] == 1.0
    done = stopwise("log", "export", "--contexts", "none", "--out", "bare.csv")
    assert f"Next: stopwise diagnose bare.csv --costs {COSTS} --context ''" in done.stdout
    diagnosed = stopwise("diagnose", "live.parquet", "--costs", COSTS)
    assert diagnosed.returncode == 0, diagnosed.stderr


def test_a_diagnosis_is_proposed_only_where_one_can_be_made(stopwise: Program, store: Path) -> None:
    done = stopwise("log", "export", "--cascade", "triage", "--out", "few.csv")
    assert done.returncode == 0
    assert "Next:" not in done.stdout
    assert "full_depth_every" in done.stdout
    assert stopwise("diagnose", "few.csv", "--costs", COSTS).returncode == 2


def test_of_a_damaged_log_nothing_is_exported(
    stopwise: Program, store: Path, tmp_path: Path
) -> None:
    damage(store)
    for words in (("--cascade", "triage", "--out", "x.csv"), ("--events", "--out", "x.jsonl")):
        done = stopwise("log", "export", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "events 7 to 7" in done.stderr
    assert not list(tmp_path.glob("*x.*"))


def test_an_export_needs_a_format(stopwise: Program, store: Path) -> None:
    done = stopwise("log", "export", "--cascade", "triage", "--out", "t.xlsx")
    assert done.returncode == 2
    assert "t.xlsx" in done.stderr


def test_keys_that_may_only_read(stopwise: Program, tmp_path: Path) -> None:
    from stopwise.service.keys import Keys
    from stopwise.service.refusals import Refusal

    for more in (("--scope", "read"), ()):
        made = stopwise("keys", "add", "--name", "prometheus", *more)
        assert made.returncode == 0, made.stderr
        keys, header = Keys(tmp_path / "keys.jsonl"), f"Bearer {made.stdout.strip()}"
        assert keys.check(header).scopes == ("read",)
        for scope in ("decide", "observe", "admin"):
            with pytest.raises(Refusal) as caught:
                keys.check(header, scope)
            assert caught.value.status == 403
    assert "read" in stopwise("keys", "list").stdout


def test_a_key_revoked_by_its_name_is_told_its_id(stopwise: Program) -> None:
    made = stopwise("keys", "add", "--name", "laptop", "--scope", "admin")
    id_ = made.stdout.split("_")[1]
    done = stopwise("keys", "revoke", "laptop")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"stopwise: that is a name; the id is {id_}: stopwise keys revoke {id_}\n"
    )
    assert stopwise("keys", "revoke", "desktop").stderr.startswith(
        "stopwise: keys.jsonl has no key"
    )
    assert stopwise("keys", "revoke", id_).stdout == f"Revoked {id_} (laptop).\n"


def test_export_without_contexts(stopwise: Program, store: Path, tmp_path: Path) -> None:
    done = stopwise("log", "export", "--cascade", "triage", "--contexts", "none", "--out", "a.csv")
    assert done.returncode == 0
    assert "context" not in (tmp_path / "a.csv").read_text().splitlines()[0]
    assert (
        stopwise(
            "log", "export", "--cascade", "triage", "--contexts", "hashed", "--out", "b.csv"
        ).returncode
        == 2
    )
    done = stopwise(
        "log",
        "export",
        "--events",
        "--contexts",
        "hashed",
        "--out",
        "events.jsonl",
        STOPWISE_LOG_SALT="sixteen characters at least",
    )
    assert done.returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["kind"] == "opened")
    assert re.fullmatch("[0-9a-f]{32}", first["rounds"][0]["context"])
    assert stopwise("log", "export").returncode == 2  # where to?
    assert stopwise("log", "export", "--out", "a.csv").returncode == 2  # which cascade?


def test_compact_asks_first(stopwise: Program, store: Path) -> None:
    hash_ = hash_in(stopwise("log", "verify").stdout)
    end = replayed(store).position
    assert stopwise("log", "compact").returncode == 0  # nothing is older than 30 days
    assert f"{end} events in" in stopwise("log", "info").stdout
    asked = stopwise("log", "compact", "--keep-days", "0")
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert "38 rounds" in asked.stdout
    assert f"{end} events in" in stopwise("log", "info").stdout

    done = stopwise("log", "compact", "--keep-days", "0", "--yes")
    assert done.returncode == 0
    verified = stopwise("log", "verify")
    assert (verified.returncode, hash_in(verified.stdout)) == (0, hash_)
    replay = stopwise("log", "replay")
    assert "compacted away" in replay.stdout
    assert hash_in(replay.stdout) == hash_
    assert "0 events in" in stopwise("log", "info").stdout


def test_nothing_is_deleted_of_a_damaged_log(stopwise: Program, store: Path) -> None:
    damage(store)
    done = stopwise("log", "compact", "--keep-days", "0", "--yes")
    assert done.returncode == 1
    assert "events 7 to 7" in done.stderr


def test_backup_and_restore(stopwise: Program, store: Path, tmp_path: Path) -> None:
    hash_ = hash_in(stopwise("log", "verify").stdout)
    done = stopwise("log", "backup", "stopwise.db", "monday.db")
    assert done.returncode == 0
    assert re.search("digest [0-9a-f]{32}", done.stdout)
    assert (tmp_path / "monday.db").stat().st_mode & 0o777 == 0o600
    assert stopwise("log", "backup", "stopwise.db", "monday.db").returncode == 2
    done = stopwise("log", "restore", "monday.db", "tuesday.db")
    assert done.returncode == 0
    assert hash_in(stopwise("log", "verify", "tuesday.db").stdout) == hash_
    assert stopwise("log", "restore", "monday.db", "tuesday.db").returncode == 2
    damage(store)
    done = stopwise("log", "backup", "stopwise.db", "wednesday.db")
    assert done.returncode == 1
    assert not (tmp_path / "wednesday.db").exists()
