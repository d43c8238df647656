"""Labels told to a share of rounds, chosen by their number alone."""

from pathlib import Path

import numpy as np
import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay
from tests.unit.logs.replay.live import CASCADE, arms, full, write

N = 800


def test_an_audit_is_what_telling_each_label_after_its_round_would_be(tmp_path: Path) -> None:
    said = arms(N)
    path = write(tmp_path / "log.csv", full(said), labels=said.labels.tolist())

    def make() -> sw.USSPD:
        return sw.USSPD(CASCADE, sw.Polynomial(degree=1), 4, sigma=0.02)

    found = replay(Log(path), CASCADE, [make()], audit=0.5, seed=7)

    policy, audited = make(), np.random.Generator(np.random.PCG64(7)).random(N) < 0.5
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
    with pytest.raises(
        InvalidParameterError, match="audit must be a number at least 0 and at most 1"
    ):
        replay(Log(path), CASCADE, audit=1.5)
