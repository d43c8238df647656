"""A log that a runner wrote, replayed: the same decisions, the same policy, failures and all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.log import Log
from stopwise.logs.writer import LogWriter
from stopwise.running.runner import Runner
from stopwise.running.stage import Stage

CASCADE = sw.Cascade([0.02, 0.1, 0.2], names=["rule", "model", "expert"])
CASES = np.random.default_rng(8).uniform(-1, 1, (600, 3))


def whole(**settings: Any) -> sw.USSPD:
    return sw.USSPD(CASCADE, sw.Polynomial(degree=2), 3, forced_rounds=30, **settings)


def staged(**settings: Any) -> sw.USSPD:
    features = sw.PerStage([sw.Polynomial(degree=2)] * 2, sees=[2, 3])
    return sw.USSPD(CASCADE, features, 3, forced_rounds=30, **settings)


def flaky(weights: list[float], share: float) -> Any:
    random = np.random.default_rng(int(100 * share))

    def run(x: Any) -> str:
        if random.random() < share:
            raise ConnectionError("no answer\nat all")
        return "ill" if np.dot(weights, x) > 0 else "well"

    return run


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("make", [whole, staged])
@pytest.mark.parametrize("settings", [{}, {"full_depth_every": 10, "seed": 3}])
def test_replaying_the_log_of_a_run_is_the_run(
    make: Any, settings: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    live, again = make(**settings), make(**settings)
    revealing = make is staged
    seen: dict[str, Any] = {}
    stages: list[Any] = [
        flaky([1, 0, 0], 0.02),
        Stage(flaky([1, 0.5, 0], 0.05), reveals=lambda answer: [seen["x"][2]])
        if revealing
        else flaky([1, 0.5, 0], 0.05),
        flaky([1, 1, 0.3], 0.1),
    ]

    def context(x: Any) -> Any:
        seen["x"] = x
        return x[:2] if revealing else x

    names = ["a", "b"] if revealing else ["a", "b", "c"]
    added = {"model": ["c"]} if revealing else None
    path = tmp_path / f"log{suffix}"
    with LogWriter(path, CASCADE.names, names, added) as log:
        rounds = list(Runner(live, stages, context=context, log=log).run_many(CASES))
    assert {done.stop for done in rounds} == {None, 0, 1, 2}
    assert sum(done.failure is not None for done in rounds) > 30

    (chunk,) = Log(path).chunks()
    decided = again.run_recorded(chunk.rounds)
    answered = [done.failure is None for done in rounds]
    assert decided[answered].tolist() == [done.stop for done in rounds if done.failure is None]
    for i, j in CASCADE.pairs():
        assert live.observations(i, j) == again.observations(i, j)
        # exact both, but by other steps: a replay also judges arms that a failed round never met
        np.testing.assert_allclose(live.theta(i, j), again.theta(i, j), rtol=1e-9)
    for x in CASES[:50]:
        assert live.decide(x) == again.decide(x)
