"""Labels told to a share of rounds, chosen by their number alone."""

from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay, uniform
from tests.unit.replay.live import CASCADE, arms, full, write

N = 800


def test_an_audit_is_what_telling_each_label_after_its_round_would_be(tmp_path: Path) -> None:
    said = arms(N)
    path = write(tmp_path / "log.csv", full(said), labels=said.labels.tolist())

    def make() -> sw.USSPD:
        return sw.USSPD(CASCADE, sw.Polynomial(degree=1), 4, sigma=0.02)

    found = replay(Log(path), CASCADE, [make()], audit=0.5, seed=7)

    policy, audited = make(), uniform(np.arange(N, dtype=np.uint64), 7) < 0.5
    stops = []
    for t, (x, outputs) in enumerate(zip(said.contexts, said.outputs.tolist(), strict=True)):
        stop = policy.decide(x).stop
        stops.append(stop)
        policy.observe(x, outputs[: stop + 1])
        if audited[t]:
            heard = tuple(outputs[: stop + 1])
            done = sw.Round(str(t), 0.0, tuple(x.tolist()), heard, heard, stop=stop, rule_stop=stop)
            policy.audit(done, str(said.labels[t]))
    assert found.decisions["uss-pd"].tolist() == stops
    assert found.audited == int(audited.sum()) == policy.audits

    plain = replay(Log(path), CASCADE, [make()])
    assert plain.audited == 0
    assert plain.decisions["uss-pd"].tolist() != stops


def test_only_labels_that_are_there_are_told(tmp_path: Path) -> None:
    said = arms(N)
    labels = [str(label) if t % 2 else None for t, label in enumerate(said.labels)]
    path = write(tmp_path / "log.csv", full(said), labels=labels)
    assert replay(Log(path), CASCADE, audit=1.0).audited == N // 2
    assert replay(Log(path), CASCADE, ["thompson"], audit=1.0).audited == 0  # it has no use for any


def test_labels_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(arms(20)))
    with pytest.raises(InvalidParameterError, match="no labels to audit with"):
        replay(Log(path), CASCADE, audit=0.1)
    with pytest.raises(InvalidParameterError, match="from 0 to 1"):
        replay(Log(path), CASCADE, audit=1.5)


def test_the_draws_are_even_and_independent_of_each_other() -> None:
    """False alarms: |z| > 5 has a chance below 1e-6 for each of the six statistics."""
    rows = np.arange(200_000, dtype=np.uint64)
    for seed in (0, 1, 2**62):
        draws = uniform(rows, seed)
        assert ((draws >= 0) & (draws < 1)).all()
        centred = (draws - 0.5) * np.sqrt(12)
        assert abs(centred.mean()) * np.sqrt(len(rows)) < 5
        assert abs((centred[1:] * centred[:-1]).mean()) * np.sqrt(len(rows)) < 5
    assert not np.array_equal(uniform(rows, 0), uniform(rows, 1))
