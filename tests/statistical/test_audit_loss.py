"""What a few labels save on a cascade whose dearest arm is the worst."""

import numpy as np
import pytest

import stopwise as sw
from tests.cascades import bad_cascade

ROUNDS = 50_000
SHARE = 0.02


def ratio(seed: int, share: float) -> float:
    """Total loss of USS-PD with default settings, over that of the best fixed depth."""
    made = bad_cascade(ROUNDS, seed)
    wrong = (made.outputs != made.labels[:, None]).astype(np.uint8)
    pairs = made.cascade.pairs()
    differ = np.array([made.outputs[:, i] != made.outputs[:, j] for i, j in pairs]).T
    last = made.cascade.n_arms - 1
    policy = sw.USSPD(made.cascade, features=sw.Polynomial(degree=1), context_dim=4)
    stops = policy.replay(
        sw.Rounds(
            made.contexts,
            differ.astype(np.uint8),
            np.full(ROUNDS, last),
            np.zeros(ROUNDS, dtype=np.bool_),
            wrong,
            np.random.default_rng(seed + 100).random(ROUNDS) < share,
        )
    )
    loss = made.cascade.cumulative[None, :] + wrong
    return float(loss[np.arange(ROUNDS), stops].mean() / loss.mean(axis=0).min())


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(20), marks=pytest.mark.full)], ids=["few", "many"]
)
def test_two_percent_of_labels_bring_the_loss_within_a_tenth_of_the_best_depth(
    seeds: range,
) -> None:
    # single seeds lie between 0.98 and 1.19, with a standard deviation of 0.06
    audited = np.array([ratio(seed, SHARE) for seed in seeds])
    without = np.array([ratio(seed, 0.0) for seed in seeds])
    assert audited.mean() < 1.10
    assert without.min() > 2.0
