"""The engine's exp, log and logistic link, over the full range of doubles."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import logit as scipy_logit

from stopwise.engine import internals
from stopwise.engine.internals import logit, sigmoid

LARGEST, SMALLEST = float(np.finfo(float).max), 5e-324
SMALLEST_NORMAL = float(np.finfo(float).tiny)
N = 5_000


def log_uniform(low: float, high: float, seed: int) -> list[float]:
    """Draw log-uniform numbers from 10^low to 10^high."""
    return (10.0 ** np.random.default_rng(seed).uniform(low, high, N)).tolist()


random = np.random.default_rng
ARGUMENTS: dict[str, list[float]] = {
    "exp": [
        *random(1).uniform(-708, 709, N).tolist(),  # the arguments with a normal result
        *[x * (-1) ** k for k, x in enumerate(log_uniform(-323, 0, 2))],
        *[k * math.log(2) + e for k in range(-1021, 1023) for e in (-1e-13, 0.0, 1e-13)],
        *[(k + 0.5) * math.log(2) for k in range(-1020, 1022)],
        *[SMALLEST, -SMALLEST, -708.0, 709.0, 0.0, -0.0],
    ],
    "log": [
        *log_uniform(-307, 308, 3),
        *(random(4).integers(1, 2**52, N) * SMALLEST).tolist(),  # subnormal
        *(1 + random(5).uniform(-0.5, 1, N)).tolist(),
        *[x for e in log_uniform(-16, -1, 6) for s in (-1, 1) if (x := 1 + s * e) != 1.0],
        *[2.0**k for k in range(-1074, 1024) if k != 0],
        *[math.sqrt(2) * 2.0**k * (1 + e) for k in (-1, 0) for e in (0, 1e-15)],
        *[SMALLEST, SMALLEST_NORMAL, math.nextafter(SMALLEST_NORMAL, 0), LARGEST],
    ],
    "log1p": [
        *log_uniform(-323, 308, 7),
        *[-x for x in log_uniform(-323, -1e-9, 8)],
        *[-1 + x for x in log_uniform(-15.9, -1, 9)],
        *random(10).uniform(-0.9, 3, N).tolist(),
        *[LARGEST, SMALLEST, -SMALLEST, 1e-310, -1e-310],
    ],
}


@pytest.mark.parametrize(("name", "units"), [("exp", 1.0), ("log", 1.0), ("log1p", 2.0)])
def test_functions_match_the_standard_library(name: str, units: float) -> None:
    function, expected = getattr(internals, name), getattr(math, name)
    error = max(abs(function(x) - expected(x)) / math.ulp(expected(x)) for x in ARGUMENTS[name])
    assert error <= units


@pytest.mark.parametrize("x", [-math.inf, -LARGEST, -746.0])
def test_exp_underflows_to_zero(x: float) -> None:
    assert internals.exp(x) == 0.0


@pytest.mark.parametrize("x", [710.0, LARGEST, math.inf])
def test_exp_overflows_to_infinity(x: float) -> None:
    assert internals.exp(x) == math.inf


def test_logarithms_of_special_values() -> None:
    assert internals.log(1.0) == internals.log1p(0.0) == 0.0
    assert internals.log(0.0) == internals.log(-0.0) == internals.log1p(-1.0) == -math.inf
    assert internals.log(math.inf) == internals.log1p(math.inf) == math.inf


@pytest.mark.parametrize("x", [-SMALLEST, -1.0, -math.inf])
def test_logarithms_of_negative_numbers_are_nan(x: float) -> None:
    assert math.isnan(internals.log(x))
    assert math.isnan(internals.log1p(x - 1.0 - 1e-15))


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sigmoid", "logit"])
def test_functions_of_nan_are_nan(name: str) -> None:
    assert math.isnan(getattr(internals, name)(math.nan))


def test_sigmoid_matches_scipy() -> None:
    for z in np.concatenate([np.linspace(-40, 40, 401), [-700, -300, 300, 700]]).tolist():
        assert sigmoid(z) == pytest.approx(float(expit(z)), rel=4e-15, abs=0)
    assert sigmoid(-710.0) == math.exp(-710.0) > 0.0


@pytest.mark.parametrize("z", [-1e3, -750.0, 750.0, 1e3, -math.inf, math.inf])
def test_sigmoid_saturates(z: float) -> None:
    assert sigmoid(z) == (1.0 if z > 0 else 0.0)


@pytest.mark.parametrize("p", [5e-324, 1e-300, 1e-17, 0.2, 0.5, 1 - 1e-9, 1 - 2**-53])
def test_logit_inverts_sigmoid(p: float) -> None:
    assert logit(p) == pytest.approx(float(scipy_logit(p)), rel=1e-13, abs=1e-15)
    assert sigmoid(logit(p)) == pytest.approx(p, rel=1e-12)


def test_logit_is_infinite_outside_the_open_unit_interval() -> None:
    assert (logit(-3.0), logit(0.0), logit(1.0)) == (-math.inf, -math.inf, math.inf)
