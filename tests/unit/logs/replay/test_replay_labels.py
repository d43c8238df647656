"""Labels of the log, as answers to the requests of policies."""

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
@pytest.mark.parametrize("every", [1, 2])
def test_requests_are_answered_if_the_log_has_the_label(
    tmp_path: Path, name: str, every: int
) -> None:
    drawn = arms(N)  # every round has a label, or every second one
    labels = [str(label) if t % every == 0 else None for t, label in enumerate(drawn.labels)]
    path = write(tmp_path / "log.csv", full(drawn), labels=labels)
    result = replay(Log(path), CASCADE, [POLICIES[name]()])

    policy, stops = POLICIES[name](), []
    for x, outputs, label in zip(drawn.contexts, drawn.outputs.tolist(), labels, strict=True):
        current = policy.start(x)
        while (arm := current.next()) is not None:
            current.give(outputs[arm])
        current.learn()
        stops.append(len(current.outputs) - 1)
        if current.wants_label and label is not None:
            policy.label(current, label)
    assert result.decisions[name].tolist() == stops
    assert (result.asked, result.answered) == (
        {name: policy.labels.requested},
        {name: policy.labels.received},
    )
    assert policy.labels.requested > 20
    assert (policy.labels.received == policy.labels.requested) == (every == 1)
    counts = f"{policy.labels.requested} ({policy.labels.received} received)"
    assert f"Labels requested: {name} {counts}; the cost of labels" in str(result.sentences)

    unlabelled = replay(Log(write(tmp_path / "none.csv", full(drawn))), CASCADE, [POLICIES[name]()])
    assert unlabelled.decisions[name].tolist() != stops


def test_labels_apply_to_policies_by_name_that_use_them(tmp_path: Path) -> None:
    drawn = arms(N)
    path = write(tmp_path / "log.csv", full(drawn), labels=drawn.labels.tolist())
    result = replay(Log(path), CASCADE, ["uss-laplace", "uss-pd:labels=7", "uss-anchor"], labels=40)
    assert result.asked.keys() == {"uss-laplace", "uss-pd:labels=7"}  # uss-anchor uses no labels
    assert 7 <= result.asked["uss-pd:labels=7"] < 40 <= result.asked["uss-laplace"] + 20
    assert replay(Log(path), CASCADE).asked == {}


def test_requests_need_labels_in_the_log(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", full(arms(20)))
    with pytest.raises(
        InvalidParameterError, match=r"labels=10 requires labels, but log\.csv has none"
    ):
        replay(Log(path), CASCADE, labels=10)
