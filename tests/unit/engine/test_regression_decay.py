"""The certificate of a regression with a half-life."""

import numpy as np
import pytest

from stopwise.engine import internals
from tests.oracles.solve_every_round import weighted_mle


@pytest.mark.parametrize(("d", "half_life", "ridge"), [(2, 5, 1e-3), (3, 40, 0.05), (8, 300, 0.5)])
def test_the_bound_covers_the_weighted_estimate(d: int, half_life: float, ridge: float) -> None:
    """After every row, for any anchor point, and with repeated rows."""
    random = np.random.default_rng(d)
    n = 250
    x = random.uniform(-1, 1, (n, d)) / np.sqrt(d)
    x[random.random(n) < 0.3] = x[0]
    answers = random.random(n) < 0.3 + 0.3 * (np.arange(n) > n // 2)
    model = internals.Regression(d, ridge, half_life)
    theta, bounds = np.zeros(d), []
    for t in range(n):
        model.learn(x[t], bool(answers[t]))
        if t % 20 == 3:
            model.refine(t % 40 == 3)
        weight = 2.0 ** (-(t - np.arange(t + 1)) / half_life)
        theta = weighted_mle(x[: t + 1], answers[: t + 1].astype(float), weight, ridge, theta)
        phi = random.uniform(-1, 1, d) / np.sqrt(d)
        logit, bound = model.logit(phi)
        assert abs(logit - phi @ theta) <= bound + 1e-9
        assert abs(phi @ theta) <= model.prior_bound * np.linalg.norm(phi) + 1e-9
        bounds.append(bound)
    assert model.solve(True)
    assert model.estimate() == pytest.approx(theta, abs=1e-7)
    weighted = weight * np.exp(-np.abs(x @ theta)) / (1 + np.exp(-np.abs(x @ theta))) ** 2
    assert model.hessian() == pytest.approx((x.T * weighted) @ x + ridge * np.eye(d), abs=1e-6)
    assert min(bounds) < 1  # the bound is not vacuous


def test_the_bound_includes_the_decay_of_the_prior() -> None:
    """All rows are zero, so the estimate is 0 for any anchor point."""
    model = internals.Regression(8, 1.0, 4.0)
    model.learn(np.zeros(8), True)
    model.anchor_at(np.full(8, 5.0))
    for _ in range(3):
        model.learn(np.zeros(8), True)
        logit, bound = model.logit(np.full(8, 8**-0.5))
        assert abs(logit) <= bound + 1e-9


@pytest.mark.parametrize("fresh", [True, False])
def test_the_bound_covers_the_error_of_summarised_old_rows(fresh: bool) -> None:
    """With a half-life of 1,200, the first rows are old after 4,800 rounds.

    The arms change twice, so that the estimate moves away from the points of the quadratics and
    back.
    """
    random = np.random.default_rng(4)
    n, d, half_life, ridge = 15_000, 3, 1200, 0.05
    x = np.column_stack([np.ones(n), random.uniform(-1, 1, (n, d - 1))]) / np.sqrt(d)
    reversed_slope = (np.arange(n) // 6000 % 2 == 1)[:, None]
    slope = np.where(reversed_slope, [[-1.0, 3.0, -2.0]], [[-2.0, -3.0, 1.0]])
    answers = random.random(n) < 1 / (1 + np.exp(-(x * slope).sum(axis=1)))
    model = internals.Regression(d, ridge, half_life)
    theta, bounds = np.zeros(d), []
    for t in range(n):
        model.learn(x[t], bool(answers[t]))
        if t % 90 == 50:
            model.refine(fresh)
        if t > 4000 and t % 311 == 0:
            weight = 2.0 ** (-(t - np.arange(t + 1)) / half_life)
            theta = weighted_mle(x[: t + 1], answers[: t + 1].astype(float), weight, ridge, theta)
            phi = random.uniform(-1, 1, d) / np.sqrt(d)
            logit, bound = model.logit(phi)
            assert abs(logit - phi @ theta) <= bound + 1e-7
            bounds.append(bound)
    assert np.median(bounds) < 0.01
    assert model.rows_visited < 0.5 * model.passes * n
    assert model.solve(True)  # reads the old rows again
    theta = weighted_mle(
        x, answers.astype(float), 2.0 ** (-np.arange(n)[::-1] / half_life), ridge, theta
    )
    assert model.estimate() == pytest.approx(theta, abs=1e-7)


def exact_estimate(x: list[float], answers: list[bool], half_life: float, ridge: float) -> float:
    """The weighted estimate of one feature, by Newton's method."""
    features, answer = np.array(x), np.array(answers, dtype=float)
    weight, theta = 2.0 ** (-np.arange(len(x))[::-1] / half_life), 0.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-features * theta))
        slope = (weight * (p - answer)) @ features + ridge * theta
        theta -= slope / ((weight * p * (1 - p)) @ features**2 + ridge)
    return float(theta)


@pytest.mark.parametrize("seed", range(24, 28))
def test_the_bound_holds_if_recent_rows_do_not_reveal_the_shift(seed: int) -> None:
    """Recent rows are zero, so that a pass over them measures no shift although θ_g has moved."""
    random = np.random.default_rng(seed)
    model, x, answers = internals.Regression(1, 1.0, 400.0), list[float](), list[bool]()

    def learn(n: int, value: float, answer: list[bool]) -> None:
        for k in range(n):
            model.learn(np.array([value]), answer[k % len(answer)])
            x.append(value)
            answers.append(answer[k % len(answer)])

    learn(int(random.integers(20, 60)), 1.0, [True])
    learn(1680, 0.0, [True])
    for _ in range(5):
        model.refine(True)
    learn(int(random.uniform(80, 240)), 0.0, [True])
    model.refine(False)
    learn(15, 1.0, [True, True, False])
    for _ in range(4):
        logit, bound = model.logit(np.ones(1))
        assert abs(logit - exact_estimate(x, answers, 400.0, 1.0)) <= bound + 1e-12
        model.refine(False)


def test_empty_parts_and_distant_estimates_give_no_nan() -> None:
    model, x = internals.Regression(1, 1e-3, 3000.0), np.array([0.003])
    for rounds, phi, answer in ((11_968, x, True), (4800, 0 * x, True), (12_000, x, True)):
        for k in range(rounds):
            model.learn(phi, answer)
            if k % 97 == 0:
                model.refine(True)
    for k in range(3600):
        model.learn(x, False)
        if k % 97 == 0:
            model.refine(True)
            assert np.isfinite(model.logit(np.ones(1))[0])
            assert not np.isnan(model.logit(np.ones(1))[1])
    assert model.solve(True)
