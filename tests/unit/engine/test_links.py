"""The logistic link against scipy, finite differences, and the far ends of the number line."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import logit as scipy_logit

from stopwise.engine.links import log_loss, logit, sigmoid, slope


def test_sigmoid_is_scipys() -> None:
    for z in np.concatenate([np.linspace(-40, 40, 401), [-700, -300, 300, 700]]).tolist():
        assert sigmoid(z) == pytest.approx(float(expit(z)), rel=4e-15, abs=0)


def test_sigmoid_keeps_its_digits_where_scipys_is_zero() -> None:
    assert sigmoid(-710.0) == math.exp(-710.0) > 0.0


@pytest.mark.parametrize("z", [-1e3, -750.0, 750.0, 1e3, -math.inf, math.inf])
def test_far_out_the_links_saturate_quietly(z: float) -> None:
    assert sigmoid(z) == (1.0 if z > 0 else 0.0)
    assert slope(z) == 0.0


def test_slope_stays_positive_where_one_minus_sigmoid_is_zero() -> None:
    assert 1.0 - sigmoid(40.0) == 0.0
    assert slope(40.0) == pytest.approx(math.exp(-40.0), rel=1e-14)


def test_slope_is_the_derivative_of_sigmoid() -> None:
    h = 1e-4
    for z in np.linspace(-12, 12, 97).tolist():
        # five-point stencil; sigmoid(−|z|) carries full relative precision in the tail
        f = [sigmoid(-abs(z) + k * h) for k in (-2, -1, 1, 2)]
        numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        assert slope(z) == pytest.approx(numeric, rel=1e-10)


def test_the_second_derivative_never_exceeds_the_slope() -> None:
    h = 1e-5
    for z in np.linspace(-20, 20, 81).tolist():
        assert abs(slope(z + h) - slope(z - h)) / (2 * h) <= slope(z) * (1 + 1e-9)


@pytest.mark.parametrize("p", [5e-324, 1e-300, 1e-17, 1e-9, 0.2, 0.5, 0.75, 1 - 1e-9, 1 - 2**-53])
def test_logit_is_scipys_and_undoes_sigmoid(p: float) -> None:
    assert logit(p) == pytest.approx(float(scipy_logit(p)), rel=1e-13, abs=1e-15)
    assert sigmoid(logit(p)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(("p", "z"), [(-3.0, -math.inf), (0.0, -math.inf), (1.0, math.inf)])
def test_logit_extends_to_gaps_that_are_no_probability(p: float, z: float) -> None:
    assert logit(p) == z


@pytest.mark.parametrize("z", [-1e3, -30.0, -1.0, 0.0, 0.3, 25.0, 1e3])
@pytest.mark.parametrize("d", [0.0, 1.0, 0.25])
def test_log_loss_is_the_negative_log_likelihood(z: float, d: float) -> None:
    expected = d * np.logaddexp(0, -z) + (1 - d) * np.logaddexp(0, z)
    assert log_loss(z, d) == pytest.approx(float(expected), rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("z", [-5.0, -0.7, 0.0, 2.0])
@pytest.mark.parametrize("d", [0.0, 1.0])
def test_the_gradient_of_log_loss_is_the_residual(z: float, d: float) -> None:
    h = 1e-5
    numeric = (log_loss(z + h, d) - log_loss(z - h, d)) / (2 * h)
    assert numeric == pytest.approx(sigmoid(z) - d, abs=1e-9)
