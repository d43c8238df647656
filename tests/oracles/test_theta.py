"""`theta` is the ridge logistic MLE, as scikit-learn and the tests' own solver find it."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from stopwise.cascade import Cascade
from stopwise.features import Polynomial
from stopwise.policies.uss_pd import USSPD
from tests.oracles.solve_every_round import ridge_mle

Array = NDArray[np.float64]
CASCADE = Cascade([0.1, 0.2])


def by_sklearn(phi: Array, differ: NDArray[np.bool_], ridge: float) -> Array:
    model = LogisticRegression(
        C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    return model.fit(phi, differ).coef_[0]


def drawn(
    n: int, d: int, *, seed: int, levels: int | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n, d))
    if levels is not None:
        contexts = rng.choice(np.linspace(-1, 1, levels), (n, d))
    differ = rng.random(n) < expit(contexts @ rng.normal(size=d) * 2 - 0.5)
    return contexts, differ


def trained(
    contexts: Array, differ: NDArray[np.bool_], ridge: float, features: object = None
) -> USSPD:
    policy = USSPD(CASCADE, features, contexts.shape[1], ridge=ridge, forced_rounds=len(contexts))  # type: ignore[arg-type]
    policy.run_disagreements(contexts, differ[:, None])
    return policy


def assert_close(found: Array, expected: Array) -> None:
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 20.0])
@pytest.mark.parametrize(
    ("n", "d", "levels", "degree"), [(200, 2, None, 0), (900, 4, 3, 0), (300, 8, None, 2)]
)
def test_theta_is_that_of_two_other_solvers(
    n: int, d: int, levels: int | None, degree: int, ridge: float
) -> None:
    contexts, differ = drawn(n, d, seed=n, levels=levels)
    policy = trained(contexts, differ, ridge, Polynomial(degree=degree) if degree else None)
    phi = policy.features.transform(contexts)
    assert_close(policy.theta(0, 1), ridge_mle(phi, differ.astype(float), ridge))
    if not degree:
        assert_close(policy.theta(0, 1), by_sklearn(phi, differ, ridge))


@pytest.mark.parametrize("ridge", [1e-6, 1.0])
def test_theta_of_separable_pairs_is_finite_and_exact(ridge: float) -> None:
    contexts, _ = drawn(300, 3, seed=5)
    for differ in (np.zeros(300, bool), np.ones(300, bool), contexts[:, 0] > 0.1):
        expected = ridge_mle(contexts / np.sqrt(3), differ.astype(float), ridge)
        assert_close(trained(contexts, differ, ridge).theta(0, 1), expected)


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
