"""Rounds that continue at random: the weighted estimate, against scikit-learn and plain sums."""

import copy
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from tests.helpers import archive
from tests.oracles.test_theta import by_sklearn

CASCADE = sw.Cascade([0.05, 0.1, 0.1, 0.1])
EVERY = 7
RIDGE = 0.02


def trained(
    levels: int | None, features: sw.Polynomial | sw.PerStage
) -> tuple[sw.USSPD, NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A policy that saw more rounds than are stored once, some explored; old contexts come last."""
    rng = np.random.default_rng(3)
    n = 5500
    x = rng.uniform(-1, 1, (n, 2))
    if levels is not None:
        x = rng.integers(0, levels, (n, 2)) / levels
    x[5000:] = x[:500]
    outputs = (rng.random((n, 4)) < 0.3 + 0.2 * x[:, :1]).astype(np.int64)
    stops = rng.choice(4, n, p=[0.03, 0.03, 0.04, 0.9])
    rule_stop = np.where(rng.random(n) < 0.5, rng.integers(0, 1 + stops), stops)
    policy = sw.USSPD(
        CASCADE, features=features, context_dim=2, ridge=RIDGE, full_depth_every=EVERY
    )
    for t in range(n):
        policy.observe(x[t], outputs[t, : stops[t] + 1].tolist(), rule_stop=int(rule_stop[t]))
        if t == n // 2:
            policy.decide(x[t])  # anchors the models: what follows is learned by increments
            policy.theta(0, 3)
    return policy, x, outputs, stops, rule_stop


LINE, CURVE = sw.Polynomial(degree=1), sw.Polynomial(degree=2)
STAGED = sw.PerStage([LINE, CURVE, LINE], sees=[1, 2, 2])


@pytest.mark.parametrize("levels", [None, 4], ids=["single rows", "repeated rows"])
@pytest.mark.parametrize(
    "features", [CURVE, sw.PerStage([LINE, CURVE, LINE]), STAGED], ids=["shared", "known", "staged"]
)
def test_theta_and_gram_are_those_of_weighted_data(
    levels: int | None, features: sw.Polynomial | sw.PerStage
) -> None:
    policy, x, outputs, stops, rule_stop = trained(levels, features)
    single = Counter(row.stop for row in archive.rows(policy))[3] > archive.MAX_DISTINCT
    assert single == (levels is None)
    for i, j in CASCADE.pairs():
        seen = stops >= j
        hidden = (i < rule_stop) & (rule_stop < j) & (features is STAGED)
        weight = np.where(hidden, EVERY, 1.0)[seen]
        phi = policy.features.transform(x[seen], i, j)
        differ = outputs[seen, i] != outputs[seen, j]
        expected = by_sklearn(phi, differ, RIDGE, weight)
        np.testing.assert_allclose(policy.theta(i, j), expected, atol=1e-6)
        gram, inverse = policy.gram(i, j)
        np.testing.assert_allclose(gram, (phi.T * weight) @ phi, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(gram @ inverse, np.eye(len(gram)), atol=1e-6)
        assert policy.observations(i, j) == round(weight.sum())


def test_a_model_that_learns_row_by_row_decides_as_one_that_reads_its_history() -> None:
    rng = np.random.default_rng(5)
    x, grid = rng.uniform(-1, 1, (600, 2)), rng.uniform(-1, 1, (300, 2))
    asked, silent = (
        sw.USSPD(CASCADE, STAGED, 2, sigma=0.01, full_depth_every=EVERY, forced_rounds=5)
        for _ in range(2)
    )
    for t, outputs in enumerate((rng.random((600, 4)) < 0.1 + 0.1 * x[:, :1]).tolist()):
        for policy in (asked, silent):
            policy.observe(x[t], outputs, rule_stop=t % 4)
        asked.decide_many(x[:20])
        if t % 100 == 99:
            fresh = copy.deepcopy(silent)  # never asked before
            assert asked.decide_many(grid).tolist() == fresh.decide_many(grid).tolist()
    assert len(set(asked.decide_many(grid).tolist())) > 1


def test_the_radius_grows_with_the_root_of_the_weight_where_it_was_used() -> None:
    seen = sw.PerStage([sw.Identity()] * 3, sees=[2, 2, 2])
    plain, heavy = (
        sw.USSPD(CASCADE, features=seen, context_dim=2, full_depth_every=every, forced_rounds=0)
        for every in (None, 16)
    )
    for policy in (plain, heavy):
        policy.observe([0.5, 0.1], [0, 0, 0, 0])
        policy.observe([0.1, 0.5], [0, 0, 0, 0])
    bound = [e.disagreement_ucb for e in plain.decide([0.3, 0.3]).evidence]
    assert bound == [e.disagreement_ucb for e in heavy.decide([0.3, 0.3]).evidence]

    def bonus(policy: sw.USSPD) -> float:
        e = next(e for e in policy.decide([0.3, 0.3]).evidence if (e.first, e.second) == (0, 3))
        logits = [np.log(p / (1 - p)) for p in (e.disagreement, e.disagreement_ucb)]
        return float(logits[1] - logits[0])

    heavy.observe([0.3, 0.3], [0, 0, 0, 0], rule_stop=1)
    phi = heavy.features.transform([0.3, 0.3])[0]
    gram, _ = heavy.gram(0, 3)
    n = heavy.observations(0, 3)
    assert n == 18
    alpha = 2 * 0.1 / 0.25 * np.sqrt(2 / 2 * np.log(1 + 2 * n / 2) + np.log(16 / 0.1))
    expected = 4.0 * alpha * np.sqrt(phi @ np.linalg.solve(gram, phi))
    assert bonus(heavy) == pytest.approx(expected, rel=1e-6)


def test_rounds_are_explored_once_in_so_many_whatever_the_context() -> None:
    # 20,000 rounds at 1/10: the share is within ±4.5 standard errors (a false alarm in 10⁵)
    cascade = sw.Cascade([0.01, 0.9])
    policy = sw.USSPD(cascade, context_dim=1, forced_rounds=10, full_depth_every=10, seed=4)
    x = np.random.default_rng(0).uniform(0.2, 1, (20_000, 1))
    stops = policy.run(x, np.zeros((20_000, 2), dtype=np.int64))[1000:]
    assert abs(stops.mean() - 0.1) < 4.5 * np.sqrt(0.09 / len(stops))
    assert abs(np.corrcoef(stops, x[1000:, 0])[0, 1]) < 4.5 / np.sqrt(len(stops))
