"""The selection effect of revealed contexts, and answers drawn: a case in which it matters."""

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw

CASCADE = sw.Cascade(costs=[0.01, 0.1, 0.2])
FEATURES = sw.Answers([0, 1], [sw.Polynomial(degree=1), sw.Polynomial(degree=1)])
ROUNDS = 20_000
TRUE = 0.35  # the paper's p_13: 0.1 if z = 0 and 0.6 if z = 1, which arm 1 reveals


def world(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, ROUNDS)
    z = random.integers(0, 2, ROUNDS)
    right = random.integers(0, 2, ROUNDS)

    def arm(often: float, seldom: float) -> NDArray[np.int64]:
        wrong = random.random(ROUNDS) < np.where(z == 1, often, seldom)
        return np.where(wrong, 1 - right, right)

    contexts = np.column_stack([x, z.astype(np.float64)])
    return contexts, np.column_stack([arm(0.6, 0.1), arm(0.5, 0.02), right])


@pytest.mark.parametrize("seed", range(4))
def test_answers_that_are_drawn_take_the_bias_away(seed: int) -> None:
    # At the end some 60 rounds that explore show p_23 where the rule stops at arm 1, which half of
    # all rounds' answers are drawn by: a standard error of 0.01, so 0.05 is five of them.
    policy = sw.USSPD(CASCADE, features=FEATURES, context_dim=1, seed=seed)
    contexts, outputs = world(seed)
    stops = policy.run(contexts, outputs)
    went_on = stops == 2
    seen = np.mean(outputs[went_on, 0] != outputs[went_on, 2])
    assert abs(seen - TRUE) > 0.1  # rounds that reached the last arm are no random ones
    grid = np.column_stack([np.ones(21), np.linspace(-1, 1, 21)]) / np.sqrt(2)
    found = float(np.mean(1 / (1 + np.exp(-grid @ policy.theta(0, 2)))))
    assert abs(found - TRUE) < 0.05
