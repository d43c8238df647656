"""Who may play, and what of the log they are shown."""

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
from stopwise.logs.replay.replay import candidates, replay, summarise, what_is_seen
from tests.unit.logs.replay.live import CASCADE, NAMES, arms, full, play, write


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(write(tmp_path / "log.csv", full(arms(60))))


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ("saved.stopwise", UnknownPolicyError, "there is no such file"),
        ("oracle", UnknownPolicyError, "there is no such file"),
        ("thompson:scael=1", InvalidParameterError, "scale, forced_rounds, ridge, seed"),
        ("thompson:scale", InvalidParameterError, "key=value"),
        ("thompson:scale=-1", InvalidParameterError, "scale must be a number"),
        ("uss-pd:context_dim=3", InvalidParameterError, "no parameter"),
    ],
)
def test_what_is_not_understood_is_said(
    log: Log, asked: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        replay(log, CASCADE, [asked])


def test_parameters_and_the_seed_arrive(tmp_path: Path) -> None:
    said = arms(60)
    log = Log(write(tmp_path / "log.csv", full(said), labels=said.labels.tolist()))
    asked = ["uss-pd:forced_rounds=auto,sigma=0.3", "thompson", "thompson:seed=9"]
    chosen = candidates(asked, log, CASCADE, 4, 0.5)
    policies = [one.prepared(summarise(log), answers=True).policy for one in chosen]
    assert policies[0].parameters()["forced_rounds"] == "auto"
    assert policies[0].parameters()["sigma"] == 0.3
    assert policies[0].parameters()["labels"] == 0.5
    assert [policy.reveals for policy in policies] == [(0, 0)] * 3
    assert [policy.parameters()["seed"] for policy in policies[1:]] == [4, 9]


def test_every_policy_can_play(log: Log) -> None:
    found = replay(log, CASCADE, list(sw.POLICIES))
    assert {one.name for one in found.policies} == set(sw.POLICIES)


def test_two_of_a_name_are_told_apart(log: Log) -> None:
    found = replay(log, CASCADE, [sw.USSUCB(CASCADE, a=0.1), sw.USSUCB(CASCADE, a=0.2)])
    assert {one.name for one in found.policies} == {"uss-ucb", "uss-ucb 2"}


def test_features_fill_the_box_and_all_rows_keep_to_it(log: Log) -> None:
    contexts = np.concatenate([chunk.rounds.contexts for chunk in log.chunks()])
    found = summarise(log)
    assert what_is_seen("uss-laplace", log, found, False) == {"context_dim": 4}  # scales itself
    policy = sw.USSPD(CASCADE, **what_is_seen("uss-pd", log, found, False))
    phi = policy.features.transform(contexts)
    assert phi.shape == (60, 5)
    linear = phi[:, 1:5] / phi[0, 0]
    assert linear.max(axis=0) == pytest.approx(np.ones(4))
    assert linear.min(axis=0) == pytest.approx(-np.ones(4))


def test_without_contexts_there_is_a_constant_one(tmp_path: Path) -> None:
    rounds = full(arms(400))
    path = write(tmp_path / "log.csv", rounds)
    log = Log(path, Columns(context=()))
    found = replay(log, CASCADE, ["uss-pd:sigma=0.05"])
    policy = sw.USSPD(CASCADE, sw.Identity(), 1, sigma=0.05)
    expected = policy.run(np.ones((400, 1)), np.array([one.outputs for one in rounds]))
    assert found.decisions["uss-pd:sigma=0.05"].tolist() == expected.tolist()


@pytest.mark.parametrize("base", [2, 0])
def test_revealed_context_is_seen_stage_by_stage(tmp_path: Path, base: int) -> None:
    said = arms(500)
    sees = (base + 1, base + 2)
    said = said._replace(contexts=said.contexts[:, : base + 2])
    policy = sw.USSLaplace(CASCADE, context_dim=base, reveals=1)
    path = tmp_path / "log.parquet"
    play(policy, said, path, known=(base, *sees))
    log = Log(path, Columns(context=())) if base == 0 else Log(path)
    seen = what_is_seen("uss-pd", log, summarise(log), answers=False)
    assert (seen, log.sees) == ({"reveals": [1, 1], "context_dim": base}, sees)
    found = replay(log, CASCADE, ["uss-laplace", "uss-pd"])
    assert {one.name: one.as_played for one in found.policies}["uss-laplace"] == wilson(500, 500)


def test_a_policy_for_something_else_is_refused(log: Log, tmp_path: Path) -> None:
    other, saved = sw.Cascade([0.1, 0.1, 0.1], names=NAMES), tmp_path / "saved"
    sw.USSPD(other, context_dim=4).save(saved)
    with pytest.raises(CascadeMismatchError, match=r"'rules' cost 0\.1, now 0\.02"):
        replay(log, CASCADE, [saved])
    with pytest.raises(InvalidParameterError, match="another cascade"):
        replay(log, CASCADE, [sw.USSPD(other, context_dim=4)])
    sw.USSPD(CASCADE, context_dim=3).save(saved)
    with pytest.raises(InvalidParameterError, match=r"contexts of 3 numbers.*has 4 \(a, b, c, d\)"):
        replay(log, CASCADE, [saved])
    saved.write_bytes(b"STOPWISE and nothing more")
    with pytest.raises(CorruptFileError):
        replay(log, CASCADE, [str(saved)])


def test_a_context_that_a_policy_refuses_is_named_by_its_row(tmp_path: Path) -> None:
    said = arms(100)
    said.contexts[70, 2] = 1.5
    log = Log(write(tmp_path / "log.csv", full(said)))
    policy = sw.USSPD(CASCADE, sw.Identity(), 4)
    with pytest.raises(InvalidContextError, match=r"log.csv, row 71, .*coordinate 2 is 1.5"):
        replay(log, CASCADE, [policy], chunk_rows=32)
