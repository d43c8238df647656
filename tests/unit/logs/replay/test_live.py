"""Replaying the log of a live run repeats every decision."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay
from tests.unit.logs.replay.live import CASCADE, NO_REVEALS, arms, play

REVEALS = (2, 3, 4)  # two context numbers at the start; each of the first two arms reveals one


def degree_one() -> sw.Polynomial:
    return sw.Polynomial(degree=1)


def staged() -> sw.PerStage:
    # shifted, so that a zero in place of a missing value would be out of range
    centers = [[3.0] * 3, [3.0] * 4 + [0.0]]  # the second arm also sees whether it agrees
    maps = [sw.Scaled(degree_one(), center, [1.0] * len(center)) for center in centers]
    return sw.PerStage(maps)


POLICIES: dict[str, Callable[[], sw.Policy]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, degree_one(), 4, sigma=0.05),
    "chance": lambda: sw.USSPD(CASCADE, degree_one(), 4, sigma=0.05, explore=0.1, seed=3),
    "ridge": lambda: sw.USSPDRidge(CASCADE, degree_one(), 4, sigma=0.05, lam=0.5, S=2.0),
    "thompson": lambda: sw.Thompson(CASCADE, degree_one(), 4, seed=5),
    "uss-ucb": lambda: sw.USSUCB(CASCADE, a=0.01),
    "uss-ts": lambda: sw.USSTS(CASCADE, seed=2),
    "random": lambda: sw.RandomDepth(CASCADE, seed=2),
    "laplace": lambda: sw.USSLaplace(CASCADE, context_dim=4),
    "anchor": lambda: sw.USSAnchor(CASCADE, context_dim=4, explore=0.1, seed=3),
    "staged uss-pd": lambda: sw.USSPD(CASCADE, staged(), 2, reveals=1, sigma=0.05, explore=0.0),
    "staged chance": lambda: sw.USSPD(
        CASCADE, staged(), 2, reveals=1, sigma=0.05, explore=0.1, seed=3
    ),
    "staged thompson": lambda: sw.Thompson(CASCADE, staged(), 2, reveals=1, seed=5),
    "staged laplace": lambda: sw.USSLaplace(CASCADE, None, 2, reveals=1, seed=4),
    "staged anchor": lambda: sw.USSAnchor(CASCADE, None, 2, reveals=1, seed=4),
}


# Every policy, with and without failures; JSON lines with and without revealed numbers.
RUNS = [(name, *how) for name in POLICIES for how in ((0.0, "parquet"), (0.05, "csv"))]
RUNS += [("uss-pd", 0.05, "jsonl"), ("staged laplace", 0.05, "jsonl")]


@pytest.mark.parametrize(("name", "fails", "suffix"), RUNS)
def test_replay_repeats_the_decisions_of_a_live_run(
    tmp_path: Path, name: str, fails: float, suffix: str
) -> None:
    policy, drawn = POLICIES[name](), arms(1200 if name == "uss-ucb" else 600)
    if name.startswith("staged"):
        drawn = drawn._replace(contexts=drawn.contexts + 3.0)
    available = REVEALS if name.startswith("staged") else NO_REVEALS
    first_half = drawn._replace(contexts=drawn.contexts[:300])
    play(policy, first_half, tmp_path / f"before.{suffix}", available=available)
    policy.save(tmp_path / "before.stopwise")
    rounds = play(policy, drawn, tmp_path / f"live.{suffix}", fails=fails, available=available)

    result = replay(Log(tmp_path / f"live.{suffix}"), CASCADE, [tmp_path / "before.stopwise"])
    decided = result.decisions["before.stopwise"].astype(np.int64)
    stops = np.array([-1 if done.stop is None else done.stop for done in rounds])
    failed = np.array([done.failure is not None for done in rounds])
    assert failed.any() == (fails > 0)
    assert len(set(stops.tolist())) > 1  # otherwise the test would be trivial
    assert np.array_equal(decided[~failed], stops[~failed])
    assert (decided[failed] > stops[failed]).all()  # the decision was to continue
    (row,) = result.policies
    assert row.beyond == 0
    assert row.as_played is not None
    assert row.as_played.value == 1.0


def test_replay_does_not_change_a_policy_in_memory(tmp_path: Path) -> None:
    policy, other = POLICIES["thompson"](), POLICIES["random"]()
    play(POLICIES["thompson"](), arms(400), tmp_path / "live.parquet")
    log = Log(tmp_path / "live.parquet")
    first, again = (replay(log, CASCADE, [policy, other]) for _ in range(2))
    assert isinstance(policy, sw.Thompson)
    assert policy.rounds == 0
    assert first.to_json() == again.to_json()
    played = {row.name: row.as_played.value for row in first.policies if row.as_played is not None}
    assert played["thompson"] == 1.0
    assert played["random-depth"] < 0.9
