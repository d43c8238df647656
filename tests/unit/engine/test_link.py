"""The engine's own exp and log, and the logistic link, at both ends of the number line."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import logit as scipy_logit

from stopwise.engine import native
from stopwise.engine.native import logit, sigmoid, slope

LARGEST = float(np.finfo(float).max)
SMALLEST = 5e-324  # the least subnormal
SMALLEST_NORMAL = float(np.finfo(float).tiny)
N = 20_000


# ------------------------------------------------------------------------- exp, log and log1p


def furthest(
    found: Callable[[float], float], right: Callable[[float], float], at: Iterable[float]
) -> float:
    """Return how far the two functions are apart, in units in the last place of the right one."""
    return max(abs(found(x) - right(x)) / math.ulp(right(x)) for x in at)


def sizes(low: float, high: float, seed: int) -> list[float]:
    """Draw positive numbers of any size: 10 to a power between the two."""
    return (10.0 ** np.random.default_rng(seed).uniform(low, high, N)).tolist()


def signed(values: list[float]) -> list[float]:
    return [x * (-1) ** k for k, x in enumerate(values)]


EXPONENTS = {
    "all that have a normal result": np.random.default_rng(1).uniform(-708, 709, N).tolist(),
    "near zero, subnormal numbers too": [*signed(sizes(-323, 0, 2)), SMALLEST, -SMALLEST],
    "near multiples of ln 2": [
        k * math.log(2) + e for k in range(-1021, 1023) for e in (-1e-13, 0.0, 1e-13)
    ],
    "halfway between them": [(k + 0.5) * math.log(2) for k in range(-1020, 1022)],
    "the ends": [-708.0, 709.0, 0.0, -0.0],
}


@pytest.mark.parametrize("where", EXPONENTS)
def test_exp_is_the_standard_librarys_to_the_last_place(where: str) -> None:
    assert furthest(native.exp, math.exp, EXPONENTS[where]) <= 1.0


@pytest.mark.parametrize(
    ("x", "value"),
    [
        (-math.inf, 0.0),
        (-LARGEST, 0.0),
        (-746.0, 0.0),
        (710.0, math.inf),
        (LARGEST, math.inf),
        (math.inf, math.inf),
    ],
)
def test_far_out_exp_is_zero_or_infinite(x: float, value: float) -> None:
    assert native.exp(x) == value


NUMBERS = {
    "of any size": sizes(-307, 308, 3),
    "subnormal": [*(np.random.default_rng(4).integers(1, 2**52, N) * SMALLEST).tolist(), SMALLEST],
    "around one": (1 + np.random.default_rng(5).uniform(-0.5, 1, N)).tolist(),
    "next to one": [x for e in signed(sizes(-16, -1, 6)) if (x := 1 + e) != 1.0],
    "powers of two": [2.0**k for k in range(-1074, 1024) if k != 0],
    "where the halves meet": [math.sqrt(2) * 2.0**k * (1 + e) for k in (-1, 0) for e in (0, 1e-15)],
    "the ends": [SMALLEST_NORMAL, math.nextafter(SMALLEST_NORMAL, 0), LARGEST],
}


@pytest.mark.parametrize("where", NUMBERS)
def test_log_is_the_standard_librarys_to_the_last_place(where: str) -> None:
    assert furthest(native.log, math.log, NUMBERS[where]) <= 1.0


def test_log_at_the_limits() -> None:
    assert native.log(1.0) == 0.0
    assert native.log(0.0) == native.log(-0.0) == -math.inf
    assert native.log(math.inf) == math.inf


SUMMANDS = {
    "of any size": [*sizes(-323, 308, 7), LARGEST],
    "negative": [-x for x in sizes(-323, -1e-9, 8)],
    "next to minus one": [-1 + x for x in sizes(-15.9, -1, 9)],
    "around zero": np.random.default_rng(10).uniform(-0.9, 3, N).tolist(),
    "subnormal": [SMALLEST, -SMALLEST, 1e-310, -1e-310],
}


@pytest.mark.parametrize("where", SUMMANDS)
def test_log1p_is_the_standard_librarys_to_two_units_in_the_last_place(where: str) -> None:
    assert furthest(native.log1p, math.log1p, SUMMANDS[where]) <= 2.0


def test_log1p_at_the_limits() -> None:
    assert native.log1p(0.0) == 0.0
    assert native.log1p(-1.0) == -math.inf
    assert native.log1p(math.inf) == math.inf


@pytest.mark.parametrize("function", ["exp", "log", "log1p", "sigmoid", "slope", "logit"])
def test_nan_stays_nan(function: str) -> None:
    assert math.isnan(getattr(native, function)(math.nan))


@pytest.mark.parametrize("x", [-SMALLEST, -1.0, -math.inf])
def test_the_logarithm_of_a_negative_number_is_nan(x: float) -> None:
    assert math.isnan(native.log(x))
    assert math.isnan(native.log1p(x - 1.0 - 1e-15))


# --------------------------------------------------------------------------------------- the link


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
