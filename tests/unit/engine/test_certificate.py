"""The certified bound on |φᵀ(θ̃ − θ̂)| holds and is tight."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import stopwise as sw
from stopwise.engine.internals import Regression, certificate
from tests.helpers.labels import label_of
from tests.oracles.solve_every_round import hessian, ridge_mle

Array = NDArray[np.float64]

EXACT = 1e-12  # the engine treats logits closer than this as equal
ROUNDING = 1e-10  # of the reference solution


class Problem:
    """A regression with explicitly set anchor points, and its exact estimate."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.d = int(rng.integers(1, 9))
        self.ridge = float(10.0 ** rng.uniform(-6, 0))
        self.regression = Regression(self.d, self.ridge)
        self.truth = rng.normal(size=self.d) * rng.uniform(0, 6)
        self.phi, self.differ = np.zeros((0, self.d)), np.zeros(0)
        self.theta_g = self.theta_h = np.zeros(self.d)  # the points of g and H
        self.learn(int(rng.integers(1, 400)))

    def learn(self, n: int) -> None:
        contexts = self.rng.uniform(-1, 1, (n, self.d))
        if self.rng.random() < 0.3:
            contexts = np.round(contexts)
        phi = contexts / math.sqrt(self.d)
        differ = self.rng.random(n) < expit(phi @ self.truth)
        for x, answer in zip(phi, differ, strict=True):
            self.regression.learn(x, bool(answer))
        self.phi = np.vstack([self.phi, phi])
        self.differ = np.concatenate([self.differ, differ])

    def refine(self) -> None:
        """Move θ_g along the step, damped far from the minimum, and read the rows."""
        step = self.regression.estimate() - self.theta_g
        moved = max(float(np.abs(self.phi @ step).max()), 1e-300)
        self.regression.refine(False)
        candidates = [self.theta_g + share * step for share in (1.0, math.log1p(moved) / moved)]
        self.theta_g = min(
            candidates, key=lambda theta: float(np.abs(self.residual_gradient(theta)).max())
        )
        if self.regression.shift == 0.0:  # H was recomputed at θ_g
            self.theta_h = self.theta_g

    def residual_gradient(self, theta_g: Array) -> Array:
        """∇L(θ_g) + H·v: zero if the engine's gradient is at θ_g and its step is v."""
        gradient = self.phi.T @ (expit(self.phi @ theta_g) - self.differ) + self.ridge * theta_g
        return gradient + self.regression.hessian() @ (self.regression.estimate() - theta_g)

    def anchor_at(self, theta: Array) -> None:
        self.regression.anchor_at(theta)
        self.theta_g = self.theta_h = theta
        self.check_hessian(theta, 1e-12)

    def check_hessian(self, theta: Array, rounding: float) -> Array:
        right = hessian(self.phi, theta, self.ridge)
        np.testing.assert_allclose(
            self.regression.hessian(), right, rtol=rounding, atol=rounding * np.trace(right)
        )
        return right

    @property
    def exact(self) -> Array:
        return ridge_mle(self.phi, self.differ, self.ridge)

    def errors_and_bounds(self) -> tuple[Array, Array]:
        fresh = self.rng.normal(size=(20, self.d))
        fresh /= np.linalg.norm(fresh, axis=1, keepdims=True)
        queries = np.vstack([fresh, self.phi[-20:]])
        logits, bounds = np.array([self.regression.logit(x) for x in queries]).T
        return np.abs(logits - queries @ self.exact), bounds


@pytest.mark.parametrize(
    "seeds", [range(80), pytest.param(range(1000, 4000), marks=pytest.mark.slow)], ids=len
)
def test_the_bound_holds_and_is_tight(seeds: range) -> None:
    collected: list[tuple[Array, Array]] = []
    for seed in seeds:
        problem = Problem(seed)
        size = 10.0 ** problem.rng.uniform(-4, 0.5)
        problem.anchor_at(problem.exact + size * problem.rng.normal(size=problem.d))
        for _ in range(3):  # at the anchor; after new rows; after moving the gradient's point only
            collected.append(problem.errors_and_bounds())
            problem.learn(int(problem.rng.integers(1, 30)))
            if problem.rng.random() < 0.5:
                problem.refine()
    errors, bounds = (np.concatenate(part) for part in zip(*collected, strict=True))
    assert (errors <= bounds + ROUNDING).all()
    proved = np.isfinite(bounds) & (errors > 1e-7)
    assert proved.sum() > 0.2 * len(bounds)  # enough errors are measurable …
    assert np.quantile(errors[proved] / bounds[proved], 0.99) > 0.1  # … and close to their bounds


@pytest.mark.parametrize("seed", range(8))
def test_solve_is_exact(seed: int) -> None:
    problem = Problem(seed)
    assert problem.regression.logit(problem.phi[0])[1] == math.inf  # before the first pass
    assert problem.regression.solve()
    errors, bounds = problem.errors_and_bounds()
    assert bounds.max() <= EXACT * max(1.0, 1 / math.sqrt(problem.ridge))
    assert errors.max() <= 1e-9
    assert problem.regression.solve(True)  # with H at the estimate
    np.testing.assert_allclose(problem.regression.estimate(), problem.exact, rtol=1e-8, atol=1e-9)
    problem.check_hessian(problem.exact, 1e-6)


def test_the_reach_and_the_shift_bound_all_rows() -> None:
    moved_without_hessian = 0
    for seed in range(40):
        problem = Problem(seed)
        regression = problem.regression
        problem.anchor_at(problem.exact + 0.3 * problem.rng.normal(size=problem.d))
        for step in range(12):
            problem.learn(15) if step % 2 == 0 else problem.refine()
            np.testing.assert_allclose(problem.residual_gradient(problem.theta_g), 0.0, atol=1e-9)
            phi, h = problem.phi, problem.check_hessian(problem.theta_h, 1e-9)
            reach = np.sqrt(np.sum(phi.T * np.linalg.solve(h, phi.T), axis=0))
            assert regression.reach >= reach.max() * (1 - 1e-6)
            moved = np.abs(phi @ (problem.theta_g - problem.theta_h))
            assert regression.shift >= moved.max() - 1e-12
            moved_without_hessian += step % 2 == 1 and regression.shift > 0.0
    assert 40 < moved_without_hessian < 200  # both kinds of pass occur


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.1, 0.5])
@pytest.mark.parametrize("r", [1e-9, 1e-4, 0.01, 0.1, 0.5, 0.9])
def test_the_certificate_is_at_or_slightly_above_its_formula(r: float, shift: float) -> None:
    reach = 0.3
    q = math.exp(shift + r) * (math.exp(shift) * math.expm1(r) - r)
    from_step = -math.log1p(-q) / reach if q < 1 else math.inf
    left = 1 - r * math.exp(shift)
    from_anchor = r / reach - math.log(left) / reach if left > 0 else math.inf
    formula = min(from_step, from_anchor)
    bound = certificate(r / reach, reach, shift)
    assert bound == formula or formula * (1 - 1e-6) <= bound <= formula * 1.5


def test_the_prior_bound_holds() -> None:
    """‖θ̂‖ ≤ √(2n·ln 2/ridge), so |φᵀθ̂| is below it for every φ of norm one."""
    closest = 0.0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, d, ridge = int(rng.integers(1, 80)), int(rng.integers(1, 9)), 10.0 ** rng.uniform(-4, 2)
        phi = rng.normal(size=(n, d))
        if rng.random() < 0.5:
            phi[:] = phi[0]  # a repeated context
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        differ = rng.random(n) < rng.choice([0.0, 0.1, 0.5])  # sometimes separable
        regression = Regression(d, ridge)
        for x, answer in zip(phi, differ, strict=True):
            regression.learn(x, bool(answer))
        bound, formula = regression.prior_bound, math.sqrt(2 * n * math.log(2) / ridge)
        assert formula <= bound <= 1.001 * formula
        share = float(np.linalg.norm(ridge_mle(phi, differ.astype(float), ridge))) / bound
        assert share <= 1.0
        closest = max(closest, share)
    assert closest > 0.4  # it is tight for separable data


# ------------------------------------------------------------------ minimal inputs of past bugs


def test_a_row_of_tiny_weight_counts_in_the_reach() -> None:
    model = Regression(1, 1.0)
    model.anchor_at(np.array([40.0]))  # a row has weight 4e-18 there
    model.learn(np.ones(1), True)
    assert model.reach == 1.0


def test_the_bound_covers_a_large_row_after_many_tiny_rows() -> None:
    model, unit = Regression(1, 1e-3), np.ones(1)
    for _ in range(2000):
        model.learn(1e-4 * unit, True)
    assert model.solve()
    model.learn(unit, False)
    logit, bound = model.logit(unit)
    assert abs(logit - -2.1731894) <= bound
    assert model.solve()
    assert model.logit(unit)[0] == pytest.approx(-2.1731894, rel=1e-6)


@pytest.mark.parametrize("ridge", [1e-9, 1e-7])
def test_separable_rows_with_a_small_ridge_are_solved(ridge: float) -> None:
    model = Regression(2, ridge)
    for row in 0.7071 * np.eye(2):
        model.learn(row, False)
        assert model.solve()
    first, second = model.estimate()
    assert first == pytest.approx(second, rel=1e-9)


def test_labels_apply_if_the_deeper_arm_is_free() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.0]), context_dim=1, forced_rounds=10)
    for t in range(300):
        outputs = ("a", "b" if t % 2 else "a")
        policy.observe([1.0], outputs)
        if t % 2:
            policy.learn_label(label_of([1.0], outputs, "a" if t % 20 != 1 else "b"))
    assert policy.decide([1.0]).stop == 0
    assert policy.decide([1.0]).evidence[0].gap_won
