"""The certified bound on |φᵀ(θ̃ − θ̂)| holds, and is of use."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from stopwise.cascade import Cascade
from stopwise.engine import bank as banks
from stopwise.engine import logistic, rounds
from stopwise.policies.uss_pd import USSPD
from tests.oracles.solve_every_round import ridge_mle

Array = NDArray[np.float64]


class Problem:
    """A pair's data in a policy, its anchor put where we like, and the exact estimate."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.d = int(rng.integers(1, 9))
        self.ridge = float(10.0 ** rng.uniform(-6, 0))
        self.policy = USSPD(Cascade([0.1, 0.2]), context_dim=self.d, ridge=self.ridge)
        self.bank = self.policy._bank
        self.truth = rng.normal(size=self.d) * rng.uniform(0, 6)
        self.phi = np.zeros((0, self.d))
        self.differ = np.zeros(0)
        self.learn(int(rng.integers(1, 400)))

    def learn(self, n: int) -> None:
        contexts = self.rng.uniform(-1, 1, (n, self.d))
        if self.rng.random() < 0.3:
            contexts = np.round(contexts)
        phi = contexts / math.sqrt(self.d)
        differ = self.rng.random(n) < expit(phi @ self.truth)
        for x, told in zip(contexts, differ, strict=True):
            self.policy.observe_disagreements(x, 1, {(0, 1): bool(told)})
        self.phi = np.vstack([self.phi, phi])
        self.differ = np.concatenate([self.differ, differ])

    def refine(self, *, fresh_hessian: bool) -> None:
        """Move the gradient's point along the step and visit the history once."""
        logistic.refine(self.bank, 0, fresh_hessian, False)

    def anchor_at(self, theta: Array) -> None:
        """Put both anchors at a point, with the exact gradient and Hessian there."""
        vectors: Any = self.bank.vectors[0]
        vectors[...] = 0.0
        vectors[banks.THETA_G] = theta
        self.refine(fresh_hessian=True)
        np.testing.assert_array_equal(vectors[banks.THETA_H], theta)

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
        self.bank.row[...] = x  # the context at hand
        return rounds.logit_at(self.bank, 0), rounds.uncertainty(self.bank, 0)


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
    logistic.solve(problem.bank, 0, False)
    errors, bounds = problem.errors_and_bounds()
    assert bounds.max() <= logistic.EXACT * max(1.0, 1 / math.sqrt(problem.ridge))
    assert errors.max() <= 1e-9


def test_the_reach_and_the_shift_bound_every_row_of_history() -> None:
    for seed in range(40):
        problem = Problem(seed)
        problem.anchor_at(problem.exact + 0.3 * problem.rng.normal(size=problem.d))
        for _ in range(6):
            problem.learn(15)
            problem.refine(fresh_hessian=False)
            numbers, vectors = problem.bank.numbers[0], problem.bank.vectors[0]
            z = problem.phi @ vectors[banks.THETA_H]
            weights = expit(z) * expit(-z)
            hessian = (problem.phi.T * weights) @ problem.phi + problem.ridge * np.eye(problem.d)
            reach = np.sqrt(np.sum(problem.phi.T * np.linalg.solve(hessian, problem.phi.T), axis=0))
            assert numbers[banks.REACH] >= reach.max() * (1 - 1e-6)
            moved = np.abs(problem.phi @ (vectors[banks.THETA_G] - vectors[banks.THETA_H]))
            assert numbers[banks.SHIFT] >= moved.max() - 1e-12
            gradient = problem.phi.T @ (
                expit(problem.phi @ vectors[banks.THETA_G]) - problem.differ
            )
            gradient += problem.ridge * vectors[banks.THETA_G]
            np.testing.assert_allclose(vectors[banks.GRADIENT], gradient, atol=1e-10)


@pytest.mark.parametrize("shift", [0.0, 1e-3, 0.1, 0.5])
@pytest.mark.parametrize("r", [1e-9, 1e-4, 0.01, 0.1, 0.5, 0.9])
def test_the_certificate_is_its_formula_or_a_little_above(r: float, shift: float) -> None:
    reach = 0.3
    found = logistic.certificate(r / reach, reach, shift)
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
