"""Statistical tests of the loss with few labels."""

from functools import partial

import numpy as np
import pytest

import stopwise as sw
from tests.helpers.cascades import Simulated, bad_cascade, simulated

ROUNDS = 20_000
LABELS = 300


def ratio(drawn: Simulated, labels: int, name: str = "uss-laplace") -> float:
    """Return the loss with default options, divided by that of the best fixed depth."""
    policy = sw.make(name, drawn.cascade, context_dim=4, labels=labels)
    run = partial(policy.run, drawn.contexts, drawn.outputs)
    stops = run(labels=drawn.labels) if labels else run()
    loss = drawn.cascade.cumulative[None, :] + (drawn.outputs != drawn.labels[:, None])
    return float(loss[np.arange(ROUNDS), stops].mean() / loss.mean(axis=0).min())


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(20), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_few_labels_bring_the_loss_within_a_tenth_of_the_best_depth(seeds: range) -> None:
    bad = [bad_cascade(ROUNDS, seed) for seed in seeds]
    labelled = np.array([ratio(drawn, LABELS) for drawn in bad])
    assert labelled.mean() < 1.10
    assert labelled.max() < 1.15
    assert min(ratio(drawn, 0, "uss-pd") for drawn in bad) > 2.0


@pytest.mark.parametrize(
    ("costs", "errors"), [((0.01, 0.05), (0.3, 0.02)), ((0.01, 0.03, 0.05), (0.3, 0.15, 0.02))]
)
def test_labels_do_not_increase_the_loss_if_the_deepest_arm_is_best(
    costs: tuple[float, ...], errors: tuple[float, ...]
) -> None:
    # A few unlucky labels must not lock in a shallow arm, which would never be corrected.
    ratios = [ratio(simulated(ROUNDS, seed, costs, errors), LABELS) for seed in range(4)]
    assert max(ratios) < 1.02
