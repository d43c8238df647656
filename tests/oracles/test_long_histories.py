"""Estimates of long histories, compared with scikit-learn and plain sums."""

import copy
from collections import Counter

import numpy as np
import pytest

import stopwise as sw
from tests.helpers import archive
from tests.oracles.test_theta import by_sklearn

CASCADE = sw.Cascade([0.05, 0.1, 0.1, 0.1])
RIDGE = 0.02
LINE, CURVE = sw.Polynomial(degree=1), sw.Polynomial(degree=2)
STAGES = sw.PerStage([LINE, CURVE, LINE])


@pytest.mark.parametrize("levels", [None, 4], ids=["single rows", "repeated rows"])
@pytest.mark.parametrize("features", [CURVE, STAGES], ids=["shared", "by stage"])
def test_theta_and_gram_equal_those_computed_from_the_data(
    levels: int | None, features: sw.Polynomial | sw.PerStage
) -> None:
    rng, n = np.random.default_rng(3), 5500
    x = rng.uniform(-1, 1, (n, 2))
    if levels is not None:
        x = rng.integers(0, levels, (n, 2)) / levels
    x[5000:] = x[:500]  # old contexts come last
    outputs = (rng.random((n, 4)) < 0.3 + 0.2 * x[:, :1]).astype(np.int64)
    stops = rng.choice(4, n, p=[0.03, 0.03, 0.04, 0.9])
    policy = sw.USSPD(CASCADE, features=features, context_dim=2, ridge=RIDGE)
    for t in range(n):
        policy.observe(x[t], outputs[t, : stops[t] + 1].tolist())
        if t == n // 2:
            policy.decide(x[t])  # creates the models, which then learn incrementally
            policy.theta(0, 3)
    single = Counter(row.stop for row in archive.rows(policy))[3] > archive.MAX_DISTINCT
    assert single == (levels is None)
    for i, j in CASCADE.pairs():
        observed = stops >= j
        phi = policy.features.transform(x[observed], i, j)
        expected = by_sklearn(phi, outputs[observed, i] != outputs[observed, j], RIDGE)
        np.testing.assert_allclose(policy.theta(i, j), expected, atol=1e-6)
        gram, inverse = policy.gram(i, j)
        np.testing.assert_allclose(gram, phi.T @ phi, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gram @ inverse, np.eye(len(gram)), atol=1e-6)
        assert policy.observations(i, j) == observed.sum()


def test_incremental_models_decide_like_models_fitted_to_the_history() -> None:
    rng = np.random.default_rng(5)
    x, grid = rng.uniform(-1, 1, (600, 2)), rng.uniform(-1, 1, (300, 2))
    incremental, untouched = (
        sw.USSPD(CASCADE, STAGES, 2, sigma=0.01, forced_rounds=5) for _ in range(2)
    )
    for t, outputs in enumerate((rng.random((600, 4)) < 0.1 + 0.1 * x[:, :1]).tolist()):
        for policy in (incremental, untouched):
            policy.observe(x[t], outputs[: 1 + t % 4])
        incremental.decide_many(x[:20])
        if t % 100 == 99:
            fresh = copy.deepcopy(untouched)  # has not decided before
            assert incremental.decide_many(grid).tolist() == fresh.decide_many(grid).tolist()
    assert len(set(incremental.decide_many(grid).tolist())) > 1


@pytest.mark.parametrize("floor", [1 / 30, 1 / 10], ids=["complete context", "revealed"])
def test_exploration_decays_independently_of_the_context(floor: float) -> None:
    # limits of ±4.5 standard deviations: a false alarm in 10⁵
    cascade, n = sw.Cascade([0.01, 0.9, 0.1]), 20_000
    reveals = 0 if floor == 1 / 10 else None  # drawn answers need more exploration
    policy = sw.USSPD(
        cascade, context_dim=1, reveals=reveals, forced_rounds=10, explore=0.9, seed=4
    )
    x = np.random.default_rng(0).uniform(0.2, 1, (n, 1))
    stops = policy.run(x, np.zeros((n, 3), dtype=np.int64)) / 2
    rate = 0.9 * np.maximum(1 / (1 + np.arange(n) / 200), floor)
    for part in (slice(1000, 5800), slice(5800, n)):
        expected, variance = rate[part].sum(), (rate * (1 - rate))[part].sum()
        assert abs(stops[part].sum() - expected) < 4.5 * np.sqrt(variance)
    assert abs(np.corrcoef(stops[5800:], x[5800:, 0])[0, 1]) < 4.5 / np.sqrt(n - 5800)
