"""The paper's bounds: by hand, against the policies' own radii, and how they grow."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.cascade import Cascade
from stopwise.errors import InvalidParameterError
from stopwise.policies.uss_pd import USSPD, USSPDRidge
from stopwise.theory.bounds import (
    alpha,
    beta,
    forced_rounds_bound,
    largest_regret,
    mixed_regret_bound,
    observations_needed,
    regret_bound,
)

# Chosen so that everything comes out whole: ln(K²/2δ) = 2, d'/2·ln(1 + 2n/d') = 2, 2σ/κ = 4.
SIZE: dict[str, Any] = {"n_features": 2, "n_arms": 2, "delta": 2 / math.e**2}
NOISE: dict[str, Any] = {"sigma": 0.25, "kappa": 0.125}
N = math.e**2 - 1
ROOT2 = math.sqrt(2)
INSTANCE: dict[str, Any] = {
    "min_eigenvalue": 0.5,
    "dominance_margin": 0.5,
    "R_max": 0.5,
    "C": 3.0,
    "C1": ROOT2,
    "C2": ROOT2,
}


def test_values_worked_out_by_hand() -> None:
    assert alpha(N, **SIZE, **NOISE) == pytest.approx(4 * math.sqrt(2 + 2))
    assert beta(N, **SIZE, **NOISE, lam=0.5, S=ROOT2) == pytest.approx(8 + 2)
    assert forced_rounds_bound(**SIZE, min_eigenvalue=0.5, C=3) == pytest.approx(3 * 4 * 4 + 4)
    assert forced_rounds_bound(**SIZE, min_eigenvalue=0.5, lam=2, C=3) == pytest.approx(64)
    # (2 + 2)/0.5 squared, and 2·3/0.5
    needed = observations_needed(3, **SIZE, min_eigenvalue=0.5, C1=ROOT2, C2=ROOT2)
    assert needed == pytest.approx(64 + 12)
    # 16/0.5·(0.25·0.25/(0.5·0.125))²·4 = 128; the proof has twice that
    assert regret_bound(N, **SIZE, **NOISE, **INSTANCE) == pytest.approx(0.5 * (52 + 64 + 128))
    proved = regret_bound(N, **SIZE, **NOISE, **INSTANCE, as_proved=True)
    assert proved == pytest.approx(0.5 * (52 + 64 + 256))
    # 32·0.5/0.5·1²·(2 + 2·√0.5·√2)² = 512; the proof has 8/0.5·(0.25·10/0.5)² = 400
    ridge: dict[str, Any] = {**SIZE, **NOISE, **INSTANCE, "lam": 0.5, "S": ROOT2}
    assert regret_bound(N, **ridge) == pytest.approx(0.5 * (52 + 64 + 512))
    assert regret_bound(N, **ridge, as_proved=True) == pytest.approx(0.5 * (52 + 64 + 400))


def test_the_printed_theorem_in_full_off_the_whole_numbers() -> None:
    d, k, delta, sigma, kappa, lam_sigma, mu, t = 7, 4, 0.3, 0.4, 0.02, 0.05, 0.2, 12_345
    xi = [0.3, math.inf, 0.07]
    union = math.log(k**2 / (2 * delta))
    first = ((1.5 * math.sqrt(d) + 0.7 * math.sqrt(union)) / lam_sigma) ** 2
    m = 2.5 / lam_sigma**2 * (d + union) + 2 / lam_sigma
    inner = d / 2 * math.log(1 + 2 * t / d) + union
    deep = sum(16 / lam_sigma * (mu * sigma / (x * kappa)) ** 2 * inner for x in xi)
    sizes: dict[str, Any] = {
        "n_features": d,
        "n_arms": k,
        "delta": delta,
        "sigma": sigma,
        "kappa": kappa,
        "min_eigenvalue": lam_sigma,
        "dominance_margin": xi,
        "R_max": 0.9,
        "lipschitz": mu,
        "C": 2.5,
        "C1": 1.5,
        "C2": 0.7,
    }
    assert regret_bound(t, **sizes) == pytest.approx(0.9 * (m + 3 * first + deep))

    lam, s = 0.03, 4.0
    m = 2.5 / lam_sigma**2 * (d + union) + 4 * lam / lam_sigma
    inner = (math.sqrt(d / 2 * math.log(1 + t / (d * lam)) + union) + 2 * math.sqrt(lam) * s) ** 2
    deep = sum(32 * lam / lam_sigma * (mu * sigma / (x * kappa)) ** 2 * inner for x in xi)
    expected = 0.9 * (m + 3 * first + deep)
    assert regret_bound(t, **sizes, lam=lam, S=s) == pytest.approx(expected)


def test_alpha_is_the_radius_of_the_policy() -> None:
    noise: dict[str, Any] = {"delta": 0.3, "sigma": 0.5, "kappa": 0.07}
    policy = USSPD(Cascade([0.1] * 5), context_dim=6, **noise)
    for n in range(3):
        theory = alpha(n, n_features=6, n_arms=5, **noise)
        assert policy.radius == pytest.approx(theory, rel=1e-14)
        policy.observe([0.5] * 6, [0])


@pytest.mark.parametrize(("lam", "bound"), [(1.0, 1.0), (0.01, 3.0), (7.0, 0.0)])
def test_beta_is_the_radius_of_the_policy_for_each_pair(lam: float, bound: float) -> None:
    noise: dict[str, Any] = {"delta": 0.2, "sigma": 0.3, "kappa": 0.1}
    policy = USSPDRidge(Cascade([0.1] * 3), context_dim=4, lam=lam, S=bound, **noise)
    for t in range(30):
        policy.observe([0.5] * 4, [0, 0, 0][: 1 + t % 3])
    for (i, j), n in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        theory = beta(n, n_features=4, n_arms=3, lam=lam, S=bound, **noise)
        assert policy.radius(i, j) == pytest.approx(theory, rel=1e-14)


def test_the_largest_regret_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 5):
        cascade = Cascade(rng.uniform(0, 0.3, k), tradeoff=rng.uniform(0.5, 2, k))
        rates = rng.random((50, k))
        worst = max(
            row[i] + cascade.cost(i) - min(row[j] + cascade.cost(j) for j in range(k))
            for row in rates
            for i in range(k)
        )
        assert largest_regret(cascade, rates) == pytest.approx(worst)


def test_the_share_without_dominance_is_paid_in_full() -> None:
    assert mixed_regret_bound(300.0, 1000, rho=0.25, R_max=0.8) == pytest.approx(225 + 200)
    assert mixed_regret_bound(300.0, 1000, rho=0.0, R_max=0.8) == 300.0
    assert mixed_regret_bound(300.0, 1000, rho=1.0, R_max=0.8) == 800.0


problems = st.fixed_dictionaries(
    {
        "n_features": st.integers(1, 20),
        "n_arms": st.integers(2, 8),
        "delta": st.floats(0.001, 0.9),
        "sigma": st.floats(0.05, 1.0),
        "kappa": st.floats(0.001, 0.25),
        "min_eigenvalue": st.floats(0.001, 1 / 21),
        "dominance_margin": st.floats(0.01, 0.5),
        "R_max": st.floats(0.1, 2.0),
    }
)


@given(s=problems, rounds=st.integers(1, 10**6), more=st.floats(1.01, 10), proved=st.booleans())
@pytest.mark.parametrize("ridge", [False, True])
def test_the_regret_bound_grows_with_what_makes_the_problem_hard(
    ridge: bool, s: dict[str, Any], rounds: int, more: float, proved: bool
) -> None:
    def bound(t: float, **changes: Any) -> float:
        call = {**s, "as_proved": proved, **({"lam": 0.3, "S": 2.0} if ridge else {}), **changes}
        return regret_bound(t, **call)

    base = bound(rounds)
    assert bound(rounds * more) > base
    assert bound(rounds, n_features=s["n_features"] + 1) > base
    assert bound(rounds, n_arms=s["n_arms"] + 1) > base
    assert bound(rounds, dominance_margin=s["dominance_margin"] / more) > base
    assert bound(rounds, min_eigenvalue=s["min_eigenvalue"] / more) > base
    assert bound(rounds, kappa=s["kappa"] / more) > base
    assert bound(rounds, sigma=s["sigma"] * more) > base
    assert bound(rounds, delta=s["delta"] / more) > base
    assert bound(rounds, R_max=s["R_max"] * more) == pytest.approx(base * more)
    for constant in ("C", "C1", "C2"):
        assert bound(rounds, **{constant: more}) > base


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_features": 2.5}, "n_features must be a whole number"),
        ({"n_arms": 1}, "n_arms must be a whole number, 2 or more"),
        ({"delta": 1.0}, "delta must be a number above 0 and below 1"),
        ({"sigma": 0.0}, "sigma"),
        ({"kappa": 0.3}, "kappa must be a number above 0 and at most 0.25"),
        ({"kappa": 0.2, "lipschitz": 0.1}, "lipschitz must be a number at least 0.2"),
        ({"min_eigenvalue": 0.6}, r"at most 1/n_features = 0\.5"),
        ({"dominance_margin": 0.0}, "mixed_regret_bound"),
        ({"dominance_margin": [0.1, 0.1]}, "one for each of the 1 arms"),
        ({"R_max": -0.1}, "R_max"),
        ({"C": 0.0}, "C must"),
        ({"C1": math.inf}, "C1 must"),
        ({"C2": "x"}, "C2 must"),
        ({"lam": 0.0}, "lam"),
        ({"lam": 0.5, "S": -1.0}, "S must"),
        ({"rounds": -1}, "rounds must be a number at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"rounds": 10, **SIZE, **NOISE, **INSTANCE}
    assert regret_bound(**call) > 0
    with pytest.raises(InvalidParameterError, match=message):
        regret_bound(**{**call, **changes})


@pytest.mark.parametrize("rates", [[[0.1, 1.2]], [[0.1]], [0.1, 0.2], np.empty((0, 2))])
def test_error_rates_out_of_range_are_refused(rates: Any) -> None:
    with pytest.raises(InvalidParameterError, match="error rates"):
        largest_regret(Cascade([0.1, 0.1]), rates)


@pytest.mark.parametrize(
    "wrong", [{"rho": 1.1}, {"rho": -0.1}, {"R_max": -1.0}, {"bound": -1.0}, {"rounds": -1}]
)
def test_mixing_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    call: dict[str, Any] = {"bound": 1.0, "rounds": 10, "rho": 0.5, "R_max": 1.0, **wrong}
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        mixed_regret_bound(call.pop("bound"), call.pop("rounds"), **call)
