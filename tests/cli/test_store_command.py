"""``stopwise store`` on the logs of a real service."""

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
from tests.service.tools.sample_logs import (
    COSTS,
    TRIAGE,
    change,
    play,
    running,
    using,
    write_sample,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "stopwise.db"
    write_sample(str(path))
    return path


def hash_in(text: str) -> str:
    return re.findall(r"State hash: ([0-9a-f]{64})", text)[0]


def rebuilt(store: Path) -> State:
    return asyncio.run(using(str(store), verify)).state


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("verify", "none.db"), "none.db"),
        (("verify",), "stopwise.db"),
        (("compact", "none.db"), "none.db"),
        (("export", "none.db", "--out", "a.csv"), "none.db"),
    ],
)
def test_a_missing_store_is_reported_and_not_created(
    stopwise: Run, tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    result = stopwise("store", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert name in result.stderr
    assert not list(tmp_path.iterdir())


def test_verify_saves_the_policy_of_the_service(stopwise: Run, store: Path, tmp_path: Path) -> None:
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
    assert stopwise("store", "verify", "--save", "any.stopwise").returncode == 2  # ambiguous
    assert stopwise("store", "verify", "--cascade", "triage").returncode == 2


def test_verify_reports_the_state_hash_or_the_damage(
    stopwise: Run, process: Run, store: Path
) -> None:
    done = stopwise("store", "verify")
    assert done.returncode == 0
    assert "identical to the recomputed state" in done.stdout
    assert hash_in(done.stdout) == state_hash(rebuilt(store))
    change(str(store), "UPDATE block SET payload = ? WHERE base = ?", (b"nonsense", 7))
    done = process("store", "verify", STOPWISE_STORE=str(store))
    assert (done.returncode, done.stdout) == (1, "")
    assert "events 7 to 7" in done.stderr


def test_an_export_replays_to_the_same_decisions(stopwise: Run, tmp_path: Path) -> None:
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


def test_export_suggests_a_diagnosis_only_with_enough_rounds(
    stopwise: Run, store: Path, tmp_path: Path
) -> None:
    done = stopwise("store", "export", "--cascade", "triage", "--out", "a.csv")
    assert done.returncode == 0
    assert "Next:" not in done.stdout
    assert "set the policy parameter explore to collect such rounds" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--out"),
        (("--out", "b.csv"), "the log has several cascades; choose one with --cascade"),
        (("--out", "b.csv", "--cascade", "tirage"), "did you mean 'triage'?"),
        (("--out", "t.xlsx", "--cascade", "triage"), "t.xlsx"),
        (("--out", "none/t.csv", "--cascade", "triage"), "none"),
    ],
)
def test_export_rejects_invalid_options(
    stopwise: Run, store: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    before = set(tmp_path.iterdir())
    result = stopwise("store", "export", *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert set(tmp_path.iterdir()) == before


def test_compact_requires_confirmation(stopwise: Run, store: Path) -> None:
    state = rebuilt(store)
    end, hash_ = state.position, state_hash(state)
    assert stopwise("store", "compact").returncode == 0  # nothing is older than 30 days
    unconfirmed = stopwise("store", "compact", "--keep-days", "0")
    assert unconfirmed.returncode == 2
    assert "--yes" in unconfirmed.stderr
    assert "events, written until" in unconfirmed.stdout
    assert f"events 1 to {end}." in stopwise("store", "verify").stdout

    assert stopwise("store", "compact", "--keep-days", "0", "--yes").returncode == 0
    verified = stopwise("store", "verify")
    assert (verified.returncode, hash_in(verified.stdout)) == (0, hash_)
    assert "compacted away" in verified.stdout
    assert "a snapshot and no events" in verified.stdout
