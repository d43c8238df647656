"""The certified bound on |φᵀ(θ̃ − θ̂)| holds, and is of use."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from stopwise.engine.native import Regression, certificate
from tests.oracles.solve_every_round import ridge_mle

Array = NDArray[np.float64]

EXACT = 1e-12  # logits closer than this are one, for the engine


class Problem:
    """A pair's data in a regression, its anchor put where we like, and the exact estimate."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.d = int(rng.integers(1, 9))
        self.ridge = float(10.0 ** rng.uniform(-6, 0))
        self.regression = Regression(self.d, self.ridge)
        self.truth = rng.normal(size=self.d) * rng.uniform(0, 6)
        self.phi = np.zeros((0, self.d))
        self.differ = np.zeros(0)
        self.theta_g = self.theta_h = np.zeros(self.d)  # where g and H are, once anchored
        self.learn(int(rng.integers(1, 400)))

    def learn(self, n: int) -> None:
        contexts = self.rng.uniform(-1, 1, (n, self.d))
        if self.rng.random() < 0.3:
            contexts = np.round(contexts)
        phi = contexts / math.sqrt(self.d)
        differ = self.rng.random(n) < expit(phi @ self.truth)
        for x, told in zip(phi, differ, strict=True):
            self.regression.learn(x, bool(told))
        self.phi = np.vstack([self.phi, phi])
        self.differ = np.concatenate([self.differ, differ])

    def refine(self, *, fresh_hessian: bool) -> None:
        """Move the gradient's point along the step and visit the history once.

        Far from the minimum a step is damped, by how far it would move the logits of history.
        """
        step = self.regression.estimate - self.theta_g
        moved = max(float(np.abs(self.phi @ step).max()), 1e-300)
        self.regression.refine(fresh_hessian)
        ends = [self.theta_g + share * step for share in (1.0, math.log1p(moved) / moved)]
        self.theta_g = min(ends, key=lambda end: float(np.abs(self.left(end)).max()))
        if self.regression.shift == 0.0:  # H was made anew, at the gradient's point
            self.theta_h = self.theta_g

    def left(self, theta_g: Array) -> Array:
        """Return ∇L(θ_g) + H·v, which is zero if the gradient's point is θ_g and the step v."""
        step = self.regression.estimate - theta_g
        return self.gradient(theta_g) + self.regression.hessian() @ step

    def anchor_at(self, theta: Array) -> None:
        """Put both anchors at a point, with the exact gradient and Hessian there."""
        self.regression.anchor_at(theta)
        self.theta_g = self.theta_h = theta
        assert self.regression.shift == 0.0
        hessian = self.hessian(theta)
        np.testing.assert_allclose(
            self.regression.hessian(), hessian, rtol=1e-12, atol=1e-12 * np.trace(hessian)
        )

    def gradient(self, theta: Array) -> Array:
        return self.phi.T @ (expit(self.phi @ theta) - self.differ) + self.ridge * theta

    def hessian(self, theta: Array) -> Array:
        z = self.phi @ theta
        weights = expit(z) * expit(-z)
        return (self.phi.T * weights) @ self.phi + self.ridge * np.eye(self.d)

    @property
    def exact(self) -> Array:
        return ridge_mle(self.phi, self.differ, self.ridge)

    def errors_and_bounds(self) -> tuple[Array, Array]:
        fresh = self.rng.normal(size=(20, self.d))
        fresh /= np.linalg.norm(fresh, axis=1, keepdims=True)
        asked = np.vstack([fresh, self.phi[-20:]])
        told = np.array([self.logit_and_bound(x) for x in asked])
        return np.abs(told[:, 0] - asked @ self.exact), told[:, 1]

    def logit_and_bound(self, x: Array) -> tuple[float, float]:
        return self.regression.logit(x), self.regression.uncertainty(x)


ROUNDING = 1e-10  # of the referee's own solve


def collect(n: int, offset: int = 0) -> tuple[Array, Array]:
    errors, bounds = [], []
    for seed in range(offset, offset + n):
        problem = Problem(seed)
        size = 10.0 ** problem.rng.uniform(-4, 0.5)
        problem.anchor_at(problem.exact + size * problem.rng.normal(size=problem.d))
        for _ in range(3):  # at the anchor; after new rows; after moving the gradient's point only
            e, b = problem.errors_and_bounds()
            errors.append(e)
            bounds.append(b)
            problem.learn(int(problem.rng.integers(1, 30)))
            if problem.rng.random() < 0.5:
                problem.refine(fresh_hessian=False)
    return np.concatenate(errors), np.concatenate(bounds)


def check(errors: Array, bounds: Array) -> None:
    assert (errors <= bounds + ROUNDING).all()
    told = np.isfinite(bounds) & (errors > 1e-7)
    assert told.sum() > 0.2 * len(bounds)  # most often there is something to bound …
    assert np.quantile(errors[told] / bounds[told], 0.99) > 0.1  # … and the bound is near it


def test_the_bound_holds_and_is_not_vacuous() -> None:
    check(*collect(120))


@pytest.mark.full
def test_the_bound_holds_on_thousands_of_problems() -> None:
    check(*collect(3000, offset=1000))


def test_an_unanchored_model_promises_nothing() -> None:
    problem = Problem(1)
    assert problem.logit_and_bound(problem.phi[0])[1] == math.inf


@pytest.mark.parametrize("seed", range(8))
def test_solving_leaves_nothing_uncertain(seed: int) -> None:
    problem = Problem(seed)
    assert problem.regression.solve()
    errors, bounds = problem.errors_and_bounds()
    assert bounds.max() <= EXACT * max(1.0, 1 / math.sqrt(problem.ridge))
    assert errors.max() <= 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_solving_with_a_fresh_hessian_gives_the_hessian_at_the_estimate(seed: int) -> None:
    problem = Problem(seed)
    assert problem.regression.solve(True)
    np.testing.assert_allclose(problem.regression.estimate, problem.exact, rtol=1e-8, atol=1e-9)
    hessian = problem.hessian(problem.exact)
    np.testing.assert_allclose(
        problem.regression.hessian(), hessian, rtol=1e-6, atol=1e-7 * np.trace(hessian)
    )


def test_the_reach_and_the_shift_bound_every_row_of_history() -> None:
    moved_without_hessian = 0
    for seed in range(40):
        problem = Problem(seed)
        problem.anchor_at(problem.exact + 0.3 * problem.rng.normal(size=problem.d))
        for _ in range(6):
            problem.learn(15)
            problem.refine(fresh_hessian=False)
            regression, phi = problem.regression, problem.phi
            hessian = problem.hessian(problem.theta_h)
            np.testing.assert_allclose(
                regression.hessian(), hessian, rtol=1e-9, atol=1e-11 * np.trace(hessian)
            )
            reach = np.sqrt(np.sum(phi.T * np.linalg.solve(hessian, phi.T), axis=0))
            assert regression.reach >= reach.max() * (1 - 1e-6)
            moved = np.abs(phi @ (problem.theta_g - problem.theta_h))
            assert regression.shift >= moved.max() - 1e-12
            moved_without_hessian += regression.shift > 0.0
            np.testing.assert_allclose(problem.left(problem.theta_g), 0.0, atol=1e-10)
    assert moved_without_hessian > 40  # both kinds of pass were seen
    assert moved_without_hessian < 200


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.1, 0.5])
@pytest.mark.parametrize("r", [1e-9, 1e-4, 0.01, 0.1, 0.5, 0.9])
def test_the_certificate_is_its_formula_or_a_little_above(r: float, shift: float) -> None:
    reach = 0.3
    found = certificate(r / reach, reach, shift)
    q = math.exp(shift + r) * (math.exp(shift) * math.expm1(r) - r)
    from_step = -math.log1p(-q) / reach if q < 1 else math.inf
    left = 1 - r * math.exp(shift)
    from_anchor = r / reach - math.log(left) / reach if left > 0 else math.inf
    formula = min(from_step, from_anchor)
    if formula == math.inf:
        assert found == math.inf
        return
    assert found >= formula * (1 - 1e-6)
    assert found <= formula * 1.5


# ------------------------------------------------------------ what is known before any estimate


def test_no_logit_of_the_estimate_is_beyond_what_the_ridge_allows() -> None:
    """‖θ̂‖ ≤ √(2n·ln 2/ridge), so |φᵀθ̂| is below it for every φ of norm one."""
    closest = 0.0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(1, 80)), int(rng.integers(1, 9))
        ridge = float(10.0 ** rng.uniform(-4, 2))
        phi = rng.normal(size=(n, d))
        if rng.random() < 0.5:
            phi[:] = phi[0]  # one context again and again
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        differ = rng.random(n) < rng.choice([0.0, 0.1, 0.5])  # now and then separable
        regression = Regression(d, ridge)
        assert regression.prior_bound == 0.0
        for x, told in zip(phi, differ, strict=True):
            regression.learn(x, bool(told))
        largest = float(np.linalg.norm(ridge_mle(phi, differ.astype(float), ridge)))
        assert largest <= regression.prior_bound
        formula = math.sqrt(2 * n * math.log(2) / ridge)
        assert formula <= regression.prior_bound <= 1.001 * formula
        closest = max(closest, largest / regression.prior_bound)
    assert closest > 0.4  # and it is not vacuous where the data are separable


def test_features_of_another_length_are_refused() -> None:
    regression = Regression(3, 1e-3)
    for asked in (
        lambda x: regression.learn(x, True),
        regression.logit,
        regression.anchor_at,
    ):
        with pytest.raises(ValueError, match="another length"):
            asked(np.zeros(2))
    assert regression.prior_bound == 0.0
