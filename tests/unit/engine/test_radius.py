"""α and β are the paper's."""

import math

import pytest

from stopwise.cascade import Cascade
from stopwise.features import Identity, PerStage, Polynomial
from stopwise.policies.uss_pd import USSPD, USSPDRidge


@pytest.mark.parametrize("n", [0, 1, 7, 60])
@pytest.mark.parametrize(
    ("k", "d", "delta", "sigma", "kappa"), [(2, 1, 0.05, 0.1, 0.25), (5, 6, 0.3, 0.5, 0.07)]
)
def test_alpha_is_the_confidence_ellipsoid_of_the_paper(
    n: int, k: int, d: int, delta: float, sigma: float, kappa: float
) -> None:
    policy = USSPD(Cascade([0.1] * k), context_dim=d, delta=delta, sigma=sigma, kappa=kappa)
    for _ in range(n):
        policy.observe([0.5] * d, [0])  # α counts rounds, not observations of a pair
    inside = d / 2 * math.log(1 + 2 * n / d) + math.log(k**2 / (2 * delta))
    assert policy.radius == pytest.approx(2 * sigma / kappa * math.sqrt(inside), rel=1e-14)


@pytest.mark.parametrize(("lam", "bound"), [(1.0, 1.0), (0.01, 3.0), (7.0, 0.0)])
def test_beta_counts_the_observations_of_its_pair(lam: float, bound: float) -> None:
    policy = USSPDRidge(
        Cascade([0.1] * 3), context_dim=4, lam=lam, S=bound, delta=0.2, sigma=0.3, kappa=0.1
    )
    for t in range(30):
        policy.observe([0.5] * 4, [0, 0, 0][: 1 + t % 3])
    for (i, j), n in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        assert policy.observations(i, j) == n
        inside = 2 * math.log(1 + n / (4 * lam)) + math.log(9 / 0.4)
        expected = 6 * math.sqrt(inside) + 2 * math.sqrt(lam) * bound
        assert policy.radius(i, j) == pytest.approx(expected, rel=1e-14)


def test_the_dimension_of_the_radius_is_the_largest_of_all_pairs() -> None:
    wide = USSPD(Cascade([0.1] * 3), PerStage([Identity(), Polynomial()]), 2)
    expected = 0.8 * math.sqrt(math.log(9 / 0.1))
    assert wide.radius == pytest.approx(expected)
    wide.observe([0.1, 0.2], [0])
    assert wide.radius == pytest.approx(0.8 * math.sqrt(3 * math.log(1 + 2 / 6) + math.log(90)))
