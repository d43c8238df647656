"""What every environment promises: shapes, seeds, and outputs that follow the stated truth."""

from collections.abc import Callable

import numpy as np
import pytest

import stopwise as sw

CASCADE = sw.Cascade([0.05, 0.15, 0.2])
ENVIRONMENTS: dict[str, Callable[[], sw.Environment]] = {
    "logistic arms": lambda: sw.LogisticArms(
        CASCADE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]
    ),
    "realizable": lambda: sw.Realizable(
        CASCADE, {(0, 1): [-2.0, 2.0], (0, 2): [-1.0, 3.0], (1, 2): [-4.0, 1.0]}
    ),
}


def draw(name: str, rounds: int = 400, seed: int = 0) -> sw.Batch:
    return ENVIRONMENTS[name]().sample(rounds, np.random.default_rng(seed))


def differ(batch: sw.Batch) -> np.ndarray:
    if batch.differ is not None:
        return batch.differ
    assert batch.outputs is not None
    return np.stack(
        [batch.outputs[:, i] != batch.outputs[:, j] for i, j in CASCADE.pairs()], axis=1
    )


def check_shapes(name: str) -> None:
    environment, batch = ENVIRONMENTS[name](), draw(name)
    n, k = 400, CASCADE.n_arms
    assert environment.cascade == CASCADE
    assert batch.contexts.shape == (n, environment.context_dim)
    assert batch.disagreement.shape == (n, k, k)
    assert batch.optimal.shape == (n,)
    assert batch.optimal.dtype == np.int64
    assert (batch.outputs is None) != (batch.differ is None)
    for part, shape in {
        "outputs": (n, k),
        "differ": (n, k * (k - 1) // 2),
        "labels": (n,),
        "error_rates": (n, k),
    }.items():
        value = getattr(batch, part)
        assert value is None or value.shape == shape


def check_a_seed_says_it_all(name: str) -> None:
    one, same, other = draw(name), draw(name), draw(name, seed=1)
    for part in sw.Batch.__struct_fields__:
        np.testing.assert_array_equal(getattr(one, part), getattr(same, part), err_msg=part)
    assert not np.array_equal(one.contexts, other.contexts)
    assert not np.array_equal(differ(one), differ(other))


def check_values_are_in_range(name: str) -> None:
    batch = draw(name)
    assert (np.abs(batch.contexts) <= 1).all()
    assert (batch.disagreement >= 0).all()
    assert (batch.disagreement <= 1).all()
    assert ((batch.optimal >= 0) & (batch.optimal < CASCADE.n_arms)).all()
    assert len(set(batch.optimal.tolist())) > 1  # a world in which depth matters
    if batch.error_rates is not None:
        assert ((batch.error_rates >= 0) & (batch.error_rates <= 1)).all()


def check_disagreement_is_as_stated(name: str) -> None:
    """Hoeffding: |mean(d − p)| > 0.0125 for a pair has chance ≤ 2·exp(−2·n·0.0125²) < 1e-13."""
    n = 100_000
    batch = draw(name, n, seed=2)
    stated = np.stack([batch.disagreement[:, i, j] for i, j in CASCADE.pairs()], axis=1)
    off = (differ(batch) - stated).mean(axis=0)
    assert np.abs(off).max() < 0.0125
    # … and in the half of the contexts where it is stated to be likely (4 chances at 2·exp(−15.6))
    likely = stated > np.median(stated, axis=0)
    for pair in range(stated.shape[1]):
        here = likely[:, pair]
        assert abs((differ(batch) - stated)[here, pair].mean()) < 0.0125


CHECKS = [
    check_shapes,
    check_a_seed_says_it_all,
    check_values_are_in_range,
    check_disagreement_is_as_stated,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment(name: str, check: Callable[[str], None]) -> None:
    check(name)


def test_the_optimal_arm_of_logistic_arms_is_that_of_a_brute_force_search() -> None:
    batch = draw("logistic arms")
    assert batch.error_rates is not None
    for errors, optimal in zip(batch.error_rates, batch.optimal, strict=True):
        losses = [errors[i] + sum(CASCADE.costs[: i + 1]) for i in range(3)]
        best = max(i for i in range(3) if losses[i] <= min(losses) + 1e-12)
        assert optimal == best


def test_the_optimal_arm_of_realizable_is_that_of_lemma_2() -> None:
    batch = draw("realizable")
    for p, optimal in zip(batch.disagreement, batch.optimal, strict=True):
        passing = [
            i for i in range(3) if all(CASCADE.gaps[i, j] > p[i, j] for j in range(i + 1, 3))
        ]
        assert optimal == passing[0]


def test_errors_of_logistic_arms_are_as_often_as_stated() -> None:
    """Hoeffding, three arms: chance of a false alarm ≤ 6·exp(−2·n·0.0125²) < 1e-12."""
    batch = draw("logistic arms", 100_000, seed=3)
    assert batch.outputs is not None
    assert batch.labels is not None
    assert batch.error_rates is not None
    wrong = batch.outputs != batch.labels[:, None]
    assert np.abs((wrong - batch.error_rates).mean(axis=0)).max() < 0.0125
