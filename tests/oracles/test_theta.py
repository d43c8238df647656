"""`theta` is the ridge logistic MLE, as scikit-learn and scipy find it."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from stopwise.cascade import Cascade
from stopwise.features import Polynomial
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD

Array = NDArray[np.float64]
CASCADE = Cascade([0.1, 0.2])


def by_sklearn(phi: Array, differ: NDArray[np.bool_], ridge: float) -> Array:
    model = LogisticRegression(
        C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    return model.fit(phi, differ).coef_[0]


def by_scipy(phi: Array, differ: NDArray[np.bool_], ridge: float) -> Array:
    def loss(theta: Array) -> float:
        z = phi @ theta
        return float(np.sum(np.logaddexp(0, z) - differ * z) + ridge / 2 * theta @ theta)

    def gradient(theta: Array) -> Array:
        return phi.T @ (expit(phi @ theta) - differ) + ridge * theta

    def hessian(theta: Array) -> Array:
        p = expit(phi @ theta)
        return (phi.T * (p * (1 - p))) @ phi + ridge * np.eye(phi.shape[1])

    found = minimize(
        loss,
        np.zeros(phi.shape[1]),
        jac=gradient,
        hess=hessian,
        method="trust-exact",
        options={"gtol": 1e-9, "maxiter": 5000},
    )
    # Loss differences are lost in rounding before the last digits of θ: two bare Newton steps.
    theta = found.x
    for _ in range(2):
        theta = theta - np.linalg.solve(hessian(theta), gradient(theta))
    return theta


def drawn(
    n: int, d: int, *, seed: int, levels: int | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n, d))
    if levels is not None:
        contexts = rng.choice(np.linspace(-1, 1, levels), (n, d))
    differ = rng.random(n) < expit(contexts @ rng.normal(size=d) * 2 - 0.5)
    return contexts, differ


def taught(
    contexts: Array, differ: NDArray[np.bool_], ridge: float, features: object = None
) -> USSPD:
    policy = USSPD(CASCADE, features, contexts.shape[1], ridge=ridge, forced_rounds=len(contexts))  # type: ignore[arg-type]
    policy.run_disagreements(contexts, differ[:, None])
    return policy


def assert_close(found: Array, expected: Array) -> None:
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 0.3, 20.0])
@pytest.mark.parametrize(("n", "d", "levels"), [(200, 2, None), (600, 9, None), (900, 4, 3)])
def test_theta_is_that_of_sklearn_and_scipy(
    n: int, d: int, levels: int | None, ridge: float
) -> None:
    contexts, differ = drawn(n, d, seed=n, levels=levels)
    theta = taught(contexts, differ, ridge).theta(0, 1)
    phi = contexts / np.sqrt(d)
    assert_close(theta, by_sklearn(phi, differ, ridge))
    assert_close(theta, by_scipy(phi, differ, ridge))


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_theta_of_wide_features(ridge: float) -> None:
    contexts, differ = drawn(300, 8, seed=1)
    policy = taught(contexts, differ, ridge, Polynomial(degree=2))
    phi = policy.features.transform(contexts)
    assert phi.shape[1] == 45
    assert_close(policy.theta(0, 1), by_scipy(phi, differ, ridge))


@pytest.mark.parametrize("n", [4000, 4097, 6000])
def test_theta_past_the_table_of_distinct_contexts(n: int) -> None:
    contexts, differ = drawn(n, 3, seed=n)
    policy = taught(contexts, differ, 1e-3)
    assert policy.effort["rows_kept"] == n
    assert_close(policy.theta(0, 1), by_sklearn(contexts / np.sqrt(3), differ, 1e-3))


def test_theta_when_old_contexts_return_after_the_table_is_full() -> None:
    contexts, differ = drawn(5000, 3, seed=8)
    again = np.concatenate([contexts, contexts[:2000], contexts[4500:]])
    told = np.concatenate([differ, ~differ[:2000], ~differ[4500:]])
    policy = taught(again, told, 1e-3)
    assert policy.effort["rows_kept"] == 5500  # the first 4096 are counted, the rest kept singly
    assert_close(policy.theta(0, 1), by_sklearn(again / np.sqrt(3), told, 1e-3))


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("n", [30, 3000])
def test_theta_of_separable_pairs_is_finite_and_exact(n: int, ridge: float) -> None:
    contexts, _ = drawn(n, 3, seed=5)
    phi = contexts / np.sqrt(3)
    for differ in (np.zeros(n, bool), np.ones(n, bool), contexts[:, 0] > 0.1):
        assert_close(taught(contexts, differ, ridge).theta(0, 1), by_scipy(phi, differ, ridge))


def test_theta_is_exact_at_any_moment_of_a_run_that_decides() -> None:
    contexts, differ = drawn(1500, 4, seed=6)
    policy = USSPD(Cascade([0.1, 0.5]), context_dim=4, sigma=0.05, forced_rounds=20)
    seen: list[int] = []
    for t in range(len(contexts)):
        stop = policy.decide(contexts[t]).stop
        policy.observe_disagreements(contexts[t], stop, {(0, 1): differ[t]} if stop else {})
        seen += [t] * stop
        if t % 300 == 299:
            expected = by_sklearn(contexts[seen] / 2, differ[seen], 1e-3)
            assert_close(policy.theta(0, 1), expected)
    assert 100 < len(seen) < 1400  # some rounds were hidden from the model


def test_theta_of_every_pair_sees_the_rounds_that_reached_it() -> None:
    rng = np.random.default_rng(7)
    policy = Thompson(Cascade([0.1, 0.1, 0.1, 0.1]), context_dim=3, ridge=0.01)
    contexts, stops = rng.uniform(-1, 1, (600, 3)), rng.integers(0, 4, 600)
    outputs = (rng.random((600, 4)) < expit(contexts @ rng.normal(size=(3, 4)))).astype(int)
    for x, y, stop in zip(contexts, outputs, stops, strict=True):
        policy.observe(x, y[: stop + 1].tolist())
    for i, j in policy.cascade.pairs():
        seen = stops >= j
        differ = outputs[seen, i] != outputs[seen, j]
        phi = contexts[seen] / np.sqrt(3)
        assert_close(policy.theta(i, j), by_sklearn(phi, differ, 0.01))


def test_theta_before_any_round_is_zero() -> None:
    assert USSPD(CASCADE, context_dim=3).theta(0, 1).tolist() == [0, 0, 0]
