"""The replay of a live run's log is the live run, decision for decision."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay
from stopwise.logs.replay.words import sentences
from tests.unit.replay.live import CASCADE, Live, arms, play, write

SEES = (3, 4)  # two numbers are known from the start, each of the first two arms adds one


def degree_one() -> sw.Polynomial:
    return sw.Polynomial(degree=1)


POLICIES: dict[str, Callable[[], sw.Policy]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, degree_one(), 4, sigma=0.05),
    "chance": lambda: sw.USSPD(CASCADE, degree_one(), 4, sigma=0.05, full_depth_every=20, seed=3),
    "ridge": lambda: sw.USSPDRidge(CASCADE, degree_one(), 4, sigma=0.05, lam=0.5, S=2.0),
    "thompson": lambda: sw.Thompson(CASCADE, degree_one(), 4, scale=0.5, seed=5),
    "uss-ucb": lambda: sw.USSUCB(CASCADE, a=0.05),
    "uss-ts": lambda: sw.USSTS(CASCADE, seed=2),
    "random": lambda: sw.RandomDepth(CASCADE, seed=2),
}
STAGED: dict[str, Callable[[], sw.Policy]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, staged(), 4, sigma=0.05),
    "chance": lambda: sw.USSPD(CASCADE, staged(), 4, sigma=0.05, full_depth_every=20, seed=3),
    "thompson": lambda: sw.Thompson(CASCADE, staged(), 4, scale=0.5, seed=5),
}


def staged() -> sw.PerStage:
    # shifted, so that a zero where nothing was revealed would be outside of what is promised
    maps = [sw.Scaled(degree_one(), [3.0] * n, [1.0] * n) for n in SEES]
    return sw.PerStage(maps, sees=SEES)


def check_same(path: Path, saved: Path, live: Live) -> None:
    log = Log(path)
    found = replay(log, CASCADE, [saved])
    (one,) = found.policies
    decided = found.decisions[saved.name].astype(np.int64)
    assert np.array_equal(decided[~live.failed], live.stops[~live.failed])
    # where an arm failed, the decision was to go on
    assert (decided[live.failed] > live.stops[live.failed]).all()
    assert one.beyond == 0
    assert one.as_played is not None
    assert one.as_played.value == 1.0
    assert any("repeats the run" in sentence for sentence in sentences(found))
    assert len(set(live.stops.tolist())) > 1  # or there was nothing to repeat


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("fails", [0.0, 0.05])
def test_a_live_run_is_repeated(tmp_path: Path, name: str, fails: float) -> None:
    policy, said = POLICIES[name](), arms(1500)
    policy.save(tmp_path / "before.stopwise")
    live = play(policy, said, fails=fails)
    assert live.failed.any() == (fails > 0)
    path = write(tmp_path / "live.parquet", live.rounds)
    check_same(path, tmp_path / "before.stopwise", live)


@pytest.mark.parametrize("name", STAGED)
@pytest.mark.parametrize("fails", [0.0, 0.05])
def test_a_live_run_with_revealed_context_is_repeated(
    tmp_path: Path, name: str, fails: float
) -> None:
    policy, said = STAGED[name](), arms(1500)
    said = said._replace(contexts=said.contexts + 3.0)
    policy.save(tmp_path / "before.stopwise")
    live = play(policy, said, fails=fails, sees=SEES)
    path = write(tmp_path / "live.parquet", live.rounds, sees=SEES)
    check_same(path, tmp_path / "before.stopwise", live)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_whatever_the_format(tmp_path: Path, suffix: str) -> None:
    policy, said = STAGED["chance"](), arms(800)
    said = said._replace(contexts=said.contexts + 3.0)
    policy.save(tmp_path / "before.stopwise")
    live = play(policy, said, fails=0.05, sees=SEES)
    path = write(tmp_path / f"live.{suffix}", live.rounds, sees=SEES)
    check_same(path, tmp_path / "before.stopwise", live)


def test_from_the_middle_of_a_run(tmp_path: Path) -> None:
    policy, said = POLICIES["thompson"](), arms(1500)
    play(policy, said)
    policy.save(tmp_path / "middle.stopwise")
    live = play(policy, arms(700, seed=9))
    path = write(tmp_path / "live.parquet", live.rounds)
    check_same(path, tmp_path / "middle.stopwise", live)


def test_a_policy_at_hand_is_not_changed_by_it(tmp_path: Path) -> None:
    policy, said = POLICIES["thompson"](), arms(400)
    path = write(tmp_path / "live.parquet", play(POLICIES["thompson"](), said).rounds)
    first = replay(Log(path), CASCADE, [policy])
    again = replay(Log(path), CASCADE, [policy])
    assert policy.rounds == 0
    assert first.to_json() == again.to_json()
    assert first.policies[0].as_played is not None
    assert first.policies[0].as_played.value == 1.0


def test_another_policy_is_not_said_to_repeat_it(tmp_path: Path) -> None:
    live = play(POLICIES["uss-pd"](), arms(800))
    path = write(tmp_path / "live.parquet", live.rounds)
    found = replay(Log(path), CASCADE, [POLICIES["random"]()])
    assert found.policies[0].as_played is not None
    assert found.policies[0].as_played.value < 0.9
    assert not any("repeats the run" in sentence for sentence in sentences(found))
