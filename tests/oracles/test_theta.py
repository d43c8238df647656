"""`theta` is the ridge-regularised logistic MLE, compared with two other solvers."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import stopwise as sw
from tests.oracles.solve_every_round import ridge_mle

Array = NDArray[np.float64]


def by_sklearn(
    phi: Array, differ: NDArray[np.bool_], ridge: float, weight: Array | None = None
) -> Array:
    model = LogisticRegression(
        C=1 / ridge, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    return model.fit(phi, differ, weight).coef_[0]


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 1.0, 20.0])
@pytest.mark.parametrize(
    ("n", "d", "levels", "features"),
    [(200, 2, 999, sw.Identity()), (900, 4, 3, sw.Identity()), (300, 8, 999, sw.Polynomial(2))],
    ids=["2", "4", "45"],
)
@pytest.mark.parametrize("answers", ["noisy", "never", "always", "separable"])
def test_theta_equals_two_other_solvers(
    n: int, d: int, levels: int, features: sw.Identity | sw.Polynomial, ridge: float, answers: str
) -> None:
    rng = np.random.default_rng(n)
    contexts = rng.choice(np.linspace(-1, 1, levels), (n, d))
    noisy = rng.random(n) < expit(contexts @ rng.normal(size=d) * 2 - 0.5)
    differ = {
        "noisy": noisy,
        "never": np.zeros(n, bool),
        "always": np.ones(n, bool),
        "separable": contexts[:, 0] > 0.1,
    }[answers]
    policy = sw.USSPD(sw.Cascade([0.1, 0.2]), features, d, ridge=ridge, forced_rounds=n)
    policy.run(contexts, differ=differ[:, None])
    phi, theta = policy.features.transform(contexts), policy.theta(0, 1)
    solutions = [ridge_mle(phi, differ.astype(float), ridge)]
    if answers == "noisy" and d < 8:
        solutions.append(by_sklearn(phi, differ, ridge))
    for expected in solutions:
        assert np.linalg.norm(theta - expected) <= 1e-6 * np.linalg.norm(expected)
