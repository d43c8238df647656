"""``stopwise store`` on logs that a real service has written."""

import asyncio
import re
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.service.domain.spec import build
from stopwise.service.domain.state import State
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.tools.verification import verify
from tests.cli.conftest import Run
from tests.service.tools.sample_logs import COSTS, TRIAGE, change, lived, play, running, using


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "stopwise.db"
    lived(str(path))
    return path


def hash_in(text: str) -> str:
    return re.findall(r"State hash: ([0-9a-f]{64})", text)[0]


def rebuilt(store: Path) -> State:
    return asyncio.run(using(str(store), verify)).state


def test_what_is_not_there_is_reported_and_not_created(stopwise: Run, tmp_path: Path) -> None:
    export = ("export", "none.db", "--out", "a.csv")
    for words in (("verify", "none.db"), ("verify",), ("compact", "none.db"), export):
        done = stopwise("store", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert ("none.db" if words[1:] else "stopwise.db") in done.stderr
    assert not list(tmp_path.iterdir())


def test_verify_gives_the_policy_of_the_service(stopwise: Run, store: Path, tmp_path: Path) -> None:
    before = store.read_bytes()
    done = stopwise("store", "verify", "--cascade", "triage", "--save", "triage.stopwise")
    assert done.returncode == 0
    assert (tmp_path / "triage.stopwise").stat().st_mode & 0o777 == 0o600
    state = rebuilt(store)
    assert hash_in(done.stdout) == state_hash(state)
    assert "triage (uss-pd): 30 rounds, 28 learned, 2 open, 4 labelled" in done.stdout
    saved = sw.load(tmp_path / "triage.stopwise").state()
    for name, array in state.cascades["triage"].policy.state().items():
        assert saved[name].tobytes() == array.tobytes()
    assert store.read_bytes() == before
    assert stopwise("store", "verify", "--save", "any.stopwise").returncode == 2  # which cascade?
    assert stopwise("store", "verify", "--cascade", "triage").returncode == 2


def test_verify(stopwise: Run, process: Run, store: Path) -> None:
    done = stopwise("store", "verify")
    assert done.returncode == 0
    assert "equal to the state" in done.stdout
    assert hash_in(done.stdout) == state_hash(rebuilt(store))
    change(str(store), "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 7))
    done = process("store", "verify", STOPWISE_STORE=str(store))
    assert (done.returncode, done.stdout) == (1, "")
    assert "events 7 to 7" in done.stderr


def test_an_exported_run_is_replayed_decision_for_decision(stopwise: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(str(tmp_path / "stopwise.db")) as service:
            await service.create(TRIAGE, None)
            await play(service, 300)

    asyncio.run(scenario())
    done = stopwise("store", "export", "--out", "live.parquet")
    assert done.returncode == 0
    assert "300 rounds" in done.stdout
    assert f"stopwise diagnose live.parquet --costs {COSTS}" in done.stdout
    policy = build(TRIAGE)
    (chunk,) = sw.Log(tmp_path / "live.parquet").chunks()
    assert policy.run_recorded(chunk.rounds).tolist() == chunk.stops.tolist()
    done = stopwise("store", "export", "--contexts", "none", "--out", "bare.csv")
    assert f"Next: stopwise diagnose bare.csv --costs {COSTS} --context ''" in done.stdout


def test_export(stopwise: Run, store: Path, tmp_path: Path) -> None:
    done = stopwise("store", "export", "--cascade", "triage", "--out", "a.csv")
    assert done.returncode == 0
    assert "Next:" not in done.stdout  # too few rounds for a diagnosis
    assert "explore in the policy gives some" in done.stdout
    before = set(tmp_path.iterdir())
    for wrong in (
        *((), ("--out", "b.csv"), ("--out", "b.csv", "--cascade", "nobody")),  # where to? which?
        *(("--out", f"{name}", "--cascade", "triage") for name in ("t.xlsx", "none/t.csv")),
    ):
        assert stopwise("store", "export", *wrong).returncode == 2
    assert set(tmp_path.iterdir()) == before


def test_compact_asks_first(stopwise: Run, store: Path) -> None:
    state = rebuilt(store)
    end, hash_ = state.position, state_hash(state)
    assert stopwise("store", "compact").returncode == 0  # nothing is older than 30 days
    asked = stopwise("store", "compact", "--keep-days", "0")
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert "events, written until" in asked.stdout
    assert f"events 1 to {end}." in stopwise("store", "verify").stdout

    assert stopwise("store", "compact", "--keep-days", "0", "--yes").returncode == 0
    verified = stopwise("store", "verify")
    assert (verified.returncode, hash_in(verified.stdout)) == (0, hash_)
    assert "compacted away" in verified.stdout
    assert "a snapshot, and no events" in verified.stdout
