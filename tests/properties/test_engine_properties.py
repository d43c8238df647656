"""Properties for any data: V⁻¹ inverts V, and a larger radius never stops earlier."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.policies.uss_pd import USSPD
from stopwise.policies.uss_pd_ridge import USSPDRidge

Array = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)


def world(
    seed: int, n: int, d: int, k: int, levels: int | None = None
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n, d))
    if levels:
        contexts = np.round(contexts * levels) / levels
    return contexts, (rng.random((n, k)) < rng.random(k)).astype(np.int64)


@given(
    seed=seeds,
    d=st.integers(1, 12),
    n=st.integers(1, 300),
    lam=st.floats(1e-6, 1e4),
    decide_every=st.integers(1, 40),
    levels=st.none() | st.integers(1, 3),
)
def test_v_times_its_inverse_is_the_identity(
    seed: int, d: int, n: int, lam: float, decide_every: int, levels: int | None
) -> None:
    contexts, outputs = world(seed, n, d, 3, levels)
    policy = USSPDRidge(Cascade([0.1] * 3), context_dim=d, lam=lam)
    reached = np.zeros(3, dtype=np.int64)
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        if t % decide_every == 0:
            policy.decide(x)  # interleaves norms with updates of the factors
        stop = t % 3
        policy.observe(x, y[: stop + 1].tolist())
        reached[: stop + 1] += 1
    for i, j in policy.cascade.pairs():
        v, inverse = policy.gram(i, j)
        phi = contexts[np.arange(n) % 3 >= j] / np.sqrt(d)
        np.testing.assert_allclose(v, lam * np.eye(d) + phi.T @ phi, rtol=1e-9, atol=1e-9)
        assert np.linalg.norm(v @ inverse - np.eye(d)) < 1e-6
        assert policy.observations(i, j) == reached[j]


@given(
    seed=seeds,
    k=st.integers(2, 5),
    n=st.integers(20, 200),
    sigmas=st.lists(st.floats(1e-4, 2.0), min_size=2, max_size=4, unique=True),
    regularized=st.booleans(),
)
def test_a_larger_radius_never_stops_earlier(
    seed: int, k: int, n: int, sigmas: list[float], regularized: bool
) -> None:
    contexts, outputs = world(seed, n, 3, k)
    costs = np.random.default_rng(seed).uniform(0.05, 0.5, k)
    queries, _ = world(seed + 1, 50, 3, k)
    earlier = np.zeros(50, dtype=np.int64)
    for sigma in sorted(sigmas):
        kind = USSPDRidge if regularized else USSPD
        policy = kind(Cascade(costs), context_dim=3, sigma=sigma, forced_rounds=0)
        for x, y in zip(contexts, outputs, strict=True):
            policy.observe(x, y.tolist())
        stops = policy.decide_many(queries)
        assert (stops >= earlier).all()
        earlier = stops
