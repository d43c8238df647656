"""Labels of the log, given to policies that ask for them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import stopwise as sw
from stopwise.errors import InvalidParameterError
from stopwise.logs.log import Log
from stopwise.logs.replay.replay import replay
from tests.unit.logs.replay.live import CASCADE, arms, full, write

N = 1200
POLICIES: dict[str, Callable[[], sw.USSPD | sw.USSLaplace]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, sw.Polynomial(degree=1), 4, sigma=0.02, labels=60),
    "uss-laplace": lambda: sw.USSLaplace(CASCADE, None, 4, reveals=0, labels=0.1, seed=3),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("known", [1, 2])
def test_each_round_that_asks_is_labelled(tmp_path: Path, name: str, known: int) -> None:
    said = arms(N)  # every label is known, or every second one
    labels = [str(label) if t % known == 0 else None for t, label in enumerate(said.labels)]
    path = write(tmp_path / "log.csv", full(said), labels=labels)
    found = replay(Log(path), CASCADE, [POLICIES[name]()])

    policy, stops = POLICIES[name](), []
    for x, outputs, label in zip(said.contexts, said.outputs.tolist(), labels, strict=True):
        current = policy.start(x)
        while (arm := current.next()) is not None:
            current.give(outputs[arm])
        current.learn()
        stops.append(len(current.outputs) - 1)
        if current.wants_label and label is not None:
            policy.label(current, label)
    assert found.decisions[name].tolist() == stops
    assert (found.asked, found.answered) == (
        {name: policy.labels.asked},
        {name: policy.labels.came},
    )
    assert policy.labels.asked > 20
    assert (policy.labels.came == policy.labels.asked) == (known == 1)
    got = f"{policy.labels.asked} (got {policy.labels.came})"
    assert f"Labels asked for: {name} {got}; what labels cost" in str(found.sentences)

    silent = replay(Log(write(tmp_path / "none.csv", full(said))), CASCADE, [POLICIES[name]()])
    assert silent.decisions[name].tolist() != stops


def test_labels_are_for_policies_by_name_that_ask(tmp_path: Path) -> None:
    said = arms(N)
    path = write(tmp_path / "log.csv", full(said), labels=said.labels.tolist())
    found = replay(Log(path), CASCADE, ["uss-laplace", "uss-pd:labels=7", "uss-anchor"], labels=40)
    assert found.asked.keys() == {"uss-laplace", "uss-pd:labels=7"}  # uss-anchor has no use for any
    assert 7 <= found.asked["uss-pd:labels=7"] < 40 <= found.asked["uss-laplace"] + 20
    assert replay(Log(path), CASCADE).asked == {}


def test_labels_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(arms(20)))
    with pytest.raises(InvalidParameterError, match="no labels to answer with"):
        replay(Log(path), CASCADE, labels=10)
