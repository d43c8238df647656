"""With late, reordered or missing labels, decisions equal those of a referee.

No comparison of these seeds is a tie to 1e-7.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from tests.helpers.labels import label_of
from tests.oracles.solve_every_round import Array, Referee
from tests.oracles.test_laplace import Ints, world

TIE = 1e-7
Answers = Callable[[int, int, int], int | None]  # round, output of arm 0, label → round of arrival


def adversary(t: int, output: int, label: int) -> int | None:
    """Label only rounds in which the first arm was right."""
    return t if output == label else None


def late(t: int, output: int, label: int) -> int | None:
    return t + 25


def out_of_order(t: int, output: int, label: int) -> int | None:
    return t + (40 if t % 3 == 0 else 3)


def some(t: int, output: int, label: int) -> int | None:
    return t + t % 7 if t % 4 else None


def batches(t: int, output: int, label: int) -> int | None:
    return 60 * (t // 60 + 1)


PATTERNS: list[Answers] = [adversary, late, out_of_order, some, batches]


def play(
    policy: sw.USSLaplace, referee: Referee, world: tuple[Array, Ints, Ints], answers: Answers
) -> dict[str, int]:
    """Play rounds one by one in both, and count the effects of missing labels."""
    x, outputs, labels = world
    waiting: list[tuple[int, sw.Label, tuple[Any, ...]]] = []
    limited = early = 0
    for t in range(len(x)):
        arrived = [pending for pending in waiting if pending[0] <= t]
        waiting = [pending for pending in waiting if pending[0] > t]
        for _, label, more in arrived:
            policy.learn_label(label)
            referee.label(*more)
        stop = referee.decide(t)
        decision = policy.decide(x[t])
        assert decision.stop == stop, t
        for e in decision.evidence:
            if e.response < 1:
                assert e.gain == pytest.approx(referee.gain(t, e.first, e.second), rel=1e-9)
                limited += 1
        early += stop < referee.last
        ran = tuple(outputs[t, : stop + 1].tolist())
        request = policy.observe(x[t], ran)
        expected = referee.learn(t, stop, stop)
        assert (request is None) == (expected is None), t
        when = answers(t, int(outputs[t, 0]), int(labels[t]))
        if request is not None and when is not None:
            answer = int(labels[t])
            label = label_of(x[t], ran, answer, request=request)
            waiting.append((when, label, (t, stop, stop, answer, expected)))
            waiting.sort(key=lambda pending: pending[0])
        assert policy.labels.missing == sum(pending.missing for pending in referee.waiting)
    return {"limited": limited, "early": early}


@pytest.mark.parametrize("half_life", [None, 80.0], ids=["all rounds count", "forgetting"])
@pytest.mark.parametrize("transitive", [False, True], ids=["direct", "transitive"])
@pytest.mark.parametrize("answers", PATTERNS)
def test_decisions_with_missing_labels_equal_those_of_the_referee(
    answers: Answers, transitive: bool, half_life: float | None
) -> None:
    n, k, cascade = 220, 4, sw.Cascade([0.02, 0.06, 0.05, 0.05])
    drawn = world(k, n, 2, best=1)
    settings: dict[str, Any] = {"labels": 0.6, "explore": 0.0, "ridge": 0.05}
    policy = sw.USSLaplace(
        cascade, sw.Polynomial(1), 2, transitive=transitive, half_life=half_life, **settings
    )
    phi = np.column_stack([np.ones(n), drawn[0]]) / np.sqrt(3)
    referee = Referee(
        [phi] * (k - 1), drawn[1], cascade.cumulative, 0.05, z=0.5, transitive=transitive,
        labels=0.6, linear=3, half_life=half_life,
    )  # fmt: skip
    effects = play(policy, referee, drawn, answers)
    assert referee.closest > TIE
    assert policy.effort["settled"] == 0
    assert effects["early"] > 5
    assert effects["limited"] > 5
