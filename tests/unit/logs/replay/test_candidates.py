"""Policies for a replay, and the features they get."""

from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import (
    CascadeMismatchError,
    CorruptFileError,
    InvalidContextError,
    InvalidParameterError,
    UnknownPolicyError,
)
from stopwise.intervals import wilson
from stopwise.logs.log import Columns, Log
from stopwise.logs.replay.replay import candidates, context_options, replay, summarise
from tests.unit.logs.replay.live import CASCADE, NAMES, arms, full, play, write


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(write(tmp_path / "log.csv", full(arms(60))))


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        ("saved.stopwise", UnknownPolicyError, "is neither a policy nor"),
        ("oracle", UnknownPolicyError, "is neither a policy nor"),
        ("thompson:scael=1", InvalidParameterError, "no parameter 'scael'; did you mean 'scale'"),
        ("thompson:scale", InvalidParameterError, "scale has no value; write scale=VALUE"),
        ("thompson:scale=-1", InvalidParameterError, "scale must be a number"),
        ("uss-pd:context_dim=3", InvalidParameterError, "has no parameter 'context_dim'"),
    ],
)
def test_invalid_policies_are_rejected(
    log: Log, policy: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replay(log, CASCADE, [policy])


def test_parameters_and_the_seed_are_applied(tmp_path: Path) -> None:
    drawn = arms(60)
    log = Log(write(tmp_path / "log.csv", full(drawn), labels=drawn.labels.tolist()))
    names = ["uss-pd:forced_rounds=auto,sigma=0.3", "thompson", "thompson:seed=9"]
    chosen = candidates(names, log, CASCADE, 4, 0.5)
    policies = [c.prepared(summarise(log), answers=True).policy for c in chosen]
    assert policies[0].parameters()["forced_rounds"] == "auto"
    assert policies[0].parameters()["sigma"] == 0.3
    assert policies[0].parameters()["labels"] == 0.5
    assert [policy.reveals for policy in policies] == [(0, 0)] * 3
    assert [policy.parameters()["seed"] for policy in policies[1:]] == [4, 9]


def test_every_policy_can_be_replayed(log: Log) -> None:
    result = replay(log, CASCADE, list(sw.POLICIES))
    assert {row.name for row in result.policies} == set(sw.POLICIES)


def test_policies_of_the_same_name_are_numbered(log: Log) -> None:
    result = replay(log, CASCADE, [sw.USSUCB(CASCADE, a=0.1), sw.USSUCB(CASCADE, a=0.2)])
    assert {row.name for row in result.policies} == {"uss-ucb", "uss-ucb 2"}


def test_default_features_scale_contexts_to_the_range_of_the_log(log: Log) -> None:
    contexts = np.concatenate([chunk.rounds.contexts for chunk in log.chunks()])
    summary = summarise(log)
    # uss-laplace scales contexts itself
    assert context_options("uss-laplace", log, summary, False) == {"context_dim": 4}
    policy = sw.USSPD(CASCADE, **context_options("uss-pd", log, summary, False))
    phi = policy.features.transform(contexts)
    assert phi.shape == (60, 5)
    linear = phi[:, 1:5] / phi[0, 0]
    assert linear.max(axis=0) == pytest.approx(np.ones(4))
    assert linear.min(axis=0) == pytest.approx(-np.ones(4))


def test_a_log_without_contexts_gets_a_constant(tmp_path: Path) -> None:
    rounds = full(arms(400))
    path = write(tmp_path / "log.csv", rounds)
    log = Log(path, Columns(context=()))
    result = replay(log, CASCADE, ["uss-pd:sigma=0.05"])
    policy = sw.USSPD(CASCADE, sw.Identity(), 1, sigma=0.05)
    expected = policy.run(np.ones((400, 1)), np.array([done.outputs for done in rounds]))
    assert result.decisions["uss-pd:sigma=0.05"].tolist() == expected.tolist()


@pytest.mark.parametrize("base", [2, 0])
def test_revealed_context_is_seen_stage_by_stage(tmp_path: Path, base: int) -> None:
    drawn = arms(500)
    sees = (base + 1, base + 2)
    drawn = drawn._replace(contexts=drawn.contexts[:, : base + 2])
    policy = sw.USSLaplace(CASCADE, context_dim=base, reveals=1)
    path = tmp_path / "log.parquet"
    play(policy, drawn, path, available=(base, *sees))
    log = Log(path, Columns(context=())) if base == 0 else Log(path)
    seen = context_options("uss-pd", log, summarise(log), answers=False)
    assert (seen, log.sees) == ({"reveals": [1, 1], "context_dim": base}, sees)
    result = replay(log, CASCADE, ["uss-laplace", "uss-pd"])
    assert {row.name: row.as_played for row in result.policies}["uss-laplace"] == wilson(500, 500)


def test_a_policy_for_another_cascade_or_context_is_rejected(log: Log, tmp_path: Path) -> None:
    other, saved = sw.Cascade([0.1, 0.1, 0.1], names=NAMES), tmp_path / "saved"
    sw.USSPD(other, context_dim=4).save(saved)
    with pytest.raises(CascadeMismatchError, match=r"cost of 'rules': 0\.1 vs 0\.02"):
        replay(log, CASCADE, [saved])
    with pytest.raises(InvalidParameterError, match="for a different cascade"):
        replay(log, CASCADE, [sw.USSPD(other, context_dim=4)])
    sw.USSPD(CASCADE, context_dim=3).save(saved)
    with pytest.raises(InvalidParameterError, match=r"contexts of 3 numbers.*has 4 \(a, b, c, d\)"):
        replay(log, CASCADE, [saved])
    saved.write_bytes(b"STOPWISE and nothing more")
    with pytest.raises(CorruptFileError):
        replay(log, CASCADE, [str(saved)])


def test_a_context_outside_the_features_is_reported_with_its_row(tmp_path: Path) -> None:
    drawn = arms(100)
    drawn.contexts[70, 2] = 1.5
    log = Log(write(tmp_path / "log.csv", full(drawn)))
    policy = sw.USSPD(CASCADE, sw.Identity(), 4)
    with pytest.raises(InvalidContextError, match=r"log.csv, row 71, .*coordinate 2 is 1.5"):
        replay(log, CASCADE, [policy], chunk_rows=32)
