"""A regression that forgets: its certificate holds, and rows without weight are dropped."""

import numpy as np
import pytest

from stopwise.engine import native
from tests.oracles.test_forgetting import fit


@pytest.mark.parametrize(("d", "half_life", "ridge"), [(2, 5, 1e-3), (3, 40, 0.05), (8, 300, 0.5)])
def test_the_bound_covers_the_weighted_estimate(d: int, half_life: float, ridge: float) -> None:
    """After every row, wherever the anchor was left; also for rows that come back."""
    random = np.random.default_rng(d)
    n = 250
    x = random.uniform(-1, 1, (n, d)) / np.sqrt(d)
    x[random.random(n) < 0.3] = x[0]
    answers = random.random(n) < 0.3 + 0.3 * (np.arange(n) > n // 2)
    model = native.Regression(d, ridge, half_life)
    theta, bounds = np.zeros(d), []
    for t in range(n):
        model.learn(x[t], bool(answers[t]))
        if t % 20 == 3:
            model.refine(t % 40 == 3)
        weight = 2.0 ** (-(t - np.arange(t + 1)) / half_life)
        theta = fit(x[: t + 1], answers[: t + 1].astype(float), weight, ridge, theta)
        phi = random.uniform(-1, 1, d) / np.sqrt(d)
        logit, bound = model.logit(phi)
        assert abs(logit - phi @ theta) <= bound + 1e-9
        assert abs(phi @ theta) <= model.prior_bound * np.linalg.norm(phi) + 1e-9
        bounds.append(bound)
    assert model.solve(True)
    assert model.estimate() == pytest.approx(theta, abs=1e-7)
    weighted = weight * np.exp(-np.abs(x @ theta)) / (1 + np.exp(-np.abs(x @ theta))) ** 2
    assert model.hessian() == pytest.approx((x.T * weighted) @ x + ridge * np.eye(d), abs=1e-6)
    assert min(bounds) < 1  # the bound says something, too


def test_without_rows_that_matter_what_the_prior_lacks_is_in_the_bound() -> None:
    """All rows are zero, so the estimate is 0, wherever the anchor was."""
    model = native.Regression(8, 1.0, 4.0)
    model.learn(np.zeros(8), True)
    model.anchor_at(np.full(8, 5.0))
    for _ in range(3):
        model.learn(np.zeros(8), True)
        logit, bound = model.logit(np.full(8, 8**-0.5))
        assert abs(logit) <= bound + 1e-9
