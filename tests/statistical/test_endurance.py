"""Statistical tests of numerical stability: long runs on nearly degenerate data."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from stopwise.cascade import Cascade
from stopwise.features import Identity
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD
from stopwise.policies.uss_pd_ridge import USSPDRidge
from tests.helpers import archive

Drawn = tuple[NDArray[np.float64], NDArray[np.bool_]]  # contexts, disagreements
Contextual = USSPD | USSPDRidge | Thompson
D = 6


def collinear(rng: np.random.Generator, n: int, noise: float) -> Drawn:
    """Return contexts on a line, with little noise."""
    line = np.array([1.0, -0.7, 0.4, 0.2, -0.9, 0.5])
    x = rng.uniform(-0.9, 0.9, (n, 1)) * line + noise * rng.normal(size=(n, D))
    contexts = np.clip(x, -1.0, 1.0)
    return contexts, rng.random((n, 3)) < expit(contexts[:, :1] * [4.0, 3.0, 2.0] - 2.0)


def agreeing(rng: np.random.Generator, n: int) -> Drawn:
    """Return rounds in which arms 0 and 1 never disagree, so that their data are separable."""
    differ = rng.random((n, 3)) < 0.4
    differ[:, 0] = False
    return rng.uniform(-1, 1, (n, D)), differ


def assert_accurate_inverse(policy: Contextual) -> None:
    for i, j in policy.cascade.pairs():
        v, inverse = policy.gram(i, j)
        off = np.linalg.norm(v @ inverse - np.eye(len(v)))
        # Beyond a condition number of 1e9, no inverse has six digits in double precision.
        assert off < 1e-6 * max(1.0, float(np.linalg.cond(v)) / 1e9)


def assert_finite(policy: Contextual) -> None:
    for i, j in policy.cascade.pairs():
        assert np.isfinite(policy.theta(i, j)).all()
    for name, array in archive.numbers(policy).items():
        assert np.isfinite(array).all(), name


def play_and_check(
    policy: Contextual, rounds: int, checks: int, draw: Callable[[np.random.Generator, int], Drawn]
) -> None:
    """Play rounds with checks at random positions, unrelated to any period of the engine."""
    rng = np.random.default_rng(0)
    deep = 0
    cuts = rng.choice(np.arange(1, rounds), checks - 1, replace=False)
    for check, n in enumerate(np.diff(np.sort(np.concatenate([[0, rounds], cuts])))):
        contexts, differ = draw(rng, n)
        deep += int(policy.run(contexts, differ=differ).sum())
        assert_accurate_inverse(policy)
        if check % 50 == 0:
            assert_finite(policy)
    assert_finite(policy)
    assert policy.rounds == rounds
    assert 0 < deep < 2 * rounds  # rounds stop at different arms


def new_policy(kind: str) -> Contextual:
    cascade = Cascade([0.1, 0.3, 0.3])
    if kind == "uss-pd":
        return USSPD(cascade, context_dim=D)
    if kind == "uss-pd-ridge":
        return USSPDRidge(cascade, context_dim=D, lam=1e-3, S=1.0, ridge=1e-6)
    return Thompson(cascade, Identity(), D)


KINDS = ["uss-pd", "uss-pd-ridge", "thompson"]
LONG = pytest.mark.slow


@pytest.mark.parametrize(
    ("rounds", "checks"), [(10_000, 100), pytest.param(1_000_000, 1000, marks=LONG)]
)
@pytest.mark.parametrize("noise", [1e-4, 1e-7])
@pytest.mark.parametrize("kind", KINDS)
def test_nearly_collinear_contexts_stay_finite(
    kind: str, noise: float, rounds: int, checks: int
) -> None:
    play_and_check(new_policy(kind), rounds, checks, partial(collinear, noise=noise))


@pytest.mark.parametrize(
    ("rounds", "checks"), [(3_000, 20), pytest.param(100_000, 200, marks=LONG)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_that_never_disagrees_stays_finite(kind: str, rounds: int, checks: int) -> None:
    policy = new_policy(kind)
    play_and_check(policy, rounds, checks, agreeing)
    theta = policy.theta(0, 1)
    assert 0.0 < np.abs(np.random.default_rng(1).uniform(-1, 1, (50, D)) @ theta).max() < 1e3
