"""The paper's bounds, computed by hand and from its formulas, and the radii of the policies."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.policies.uss_pd import USSPD
from stopwise.policies.uss_pd_ridge import USSPDRidge
from stopwise.reference import radius
from stopwise.research.theory.bounds import forced_rounds_bound, largest_regret, regret_bound

# Chosen for integer terms: ln(K²/2δ) = 2, d'/2·ln(1 + 2n/d') = 2, 2σ/κ = 4.
SIZE: dict[str, Any] = {"n_features": 2, "n_arms": 2, "delta": 2 / math.e**2}
NOISE: dict[str, Any] = {"sigma": 0.25, "kappa": 0.125}
INSTANCE: dict[str, Any] = {"min_eigenvalue": 0.5, "dominance_margin": 0.5, "R_max": 0.5}
N = math.e**2 - 1
ROOT2 = math.sqrt(2)


def test_bounds_match_values_computed_by_hand() -> None:
    shape = N, *SIZE.values(), *NOISE.values()
    assert radius(*shape, lam=0.0, S=0.0) == pytest.approx(4 * math.sqrt(2 + 2))
    assert radius(*shape, lam=0.5, S=ROOT2) == pytest.approx(8 + 2)
    assert forced_rounds_bound(**SIZE, min_eigenvalue=0.5, C=3) == pytest.approx(3 * 4 * 4 + 4)
    assert forced_rounds_bound(**SIZE, min_eigenvalue=0.5, lam=2, C=3) == pytest.approx(64)
    # 8/0.5·(0.25·8/0.5)² = 256
    call: dict[str, Any] = {**SIZE, **NOISE, **INSTANCE, "C": 3.0, "C1": ROOT2, "C2": ROOT2}
    assert regret_bound(N, **call) == pytest.approx(0.5 * (52 + 64 + 256))
    # 8/0.5·(0.25·10/0.5)² = 400
    assert regret_bound(N, **call, lam=0.5, S=ROOT2) == pytest.approx(0.5 * (52 + 64 + 400))


@given(
    d=st.integers(1, 20),
    xi=st.lists(st.floats(0.01, 0.5) | st.just(math.inf), min_size=1, max_size=7),
    delta=st.floats(0.001, 0.9),
    sigma=st.floats(0.05, 1.0),
    kappa=st.floats(0.001, 0.2),
    spread=st.floats(0.001, 1 / 20),
    t=st.integers(1, 10**6),
    c=st.tuples(*[st.floats(0.1, 10)] * 5),
    ridge=st.none() | st.tuples(st.floats(0.01, 2), st.floats(0, 5)),
)
def test_regret_bound_matches_the_proved_theorems(
    d: int,
    xi: list[float],
    delta: float,
    sigma: float,
    kappa: float,
    spread: float,
    t: int,
    c: tuple[float, ...],
    ridge: tuple[float, float] | None,
) -> None:
    k = len(xi) + 1
    union = math.log(k**2 / (2 * delta))
    first = ((c[0] * math.sqrt(d) + c[1] * math.sqrt(union)) / spread) ** 2
    if ridge is None:
        m, bias = 2 / spread, 0.0
        volume = d / 2 * math.log(1 + 2 * t / d)
    else:
        lam, s = ridge
        m, bias = 4 * lam / spread, 2 * math.sqrt(lam) * s
        volume = d / 2 * math.log(1 + t / (d * lam))
    reach = 2 * sigma / kappa * math.sqrt(volume + union) + bias
    deep = sum(8 / spread * (0.25 * reach / x) ** 2 for x in xi)
    m += c[2] / spread**2 * (d + union)
    call: dict[str, Any] = {"n_features": d, "n_arms": k, "delta": delta, "sigma": sigma}
    call |= {"kappa": kappa, "min_eigenvalue": spread, "dominance_margin": xi, "R_max": c[3]}
    call |= {"C": c[2], "C1": c[0], "C2": c[1]}
    call |= {} if ridge is None else {"lam": ridge[0], "S": ridge[1]}
    assert regret_bound(t, **call) == pytest.approx(c[3] * (m + (k - 1) * first + deep))


def test_radii_of_policies_match_the_reference() -> None:
    noise: dict[str, Any] = {"delta": 0.2, "sigma": 0.3, "kappa": 0.1}
    lam, bound = 0.01, 3.0
    plain = USSPD(Cascade([0.1] * 3), context_dim=4, **noise)
    ridge = USSPDRidge(Cascade([0.1] * 3), context_dim=4, lam=lam, S=bound, **noise)
    for t in range(30):
        for policy in (plain, ridge):
            policy.observe([0.5] * 4, [0, 0, 0][: 1 + t % 3])
    expected = radius(30, 4, 3, **noise, lam=0.0, S=0.0)
    assert plain.radius(0, 2) == pytest.approx(expected, rel=1e-14)
    for (i, j), n in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        expected = radius(n, 4, 3, **noise, lam=lam, S=bound)
        assert ridge.radius(i, j) == pytest.approx(expected, rel=1e-14)


def test_largest_regret_matches_brute_force() -> None:
    rng = np.random.default_rng(0)
    cascade = Cascade(rng.uniform(0, 0.3, 5), tradeoff=rng.uniform(0.5, 2, 5))
    rates = rng.random((50, 5))
    losses = rates + [cascade.cost(i) for i in range(5)]
    worst = max(max(row) - min(row) for row in losses.tolist())
    assert largest_regret(cascade, rates) == pytest.approx(worst)
    with pytest.raises(InvalidParameterError, match="must have 5 columns"):
        largest_regret(cascade, rates[:, :1])


@pytest.mark.parametrize("margin", [0.0, -0.1, [0.0]])
def test_regret_bound_requires_weak_dominance(margin: float | list[float]) -> None:
    with pytest.raises(InvalidParameterError, match="requires weak dominance"):
        regret_bound(10, **{**SIZE, **NOISE, **INSTANCE, "dominance_margin": margin})
