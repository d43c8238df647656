"""Fits of `Standard` features are bit-identical to numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.arrays import Floats
from stopwise.engine import native

FAR = 10.0  # clipping limit, in multiples of the distance of the quantiles


def numpy_fit(x: Floats) -> tuple[list[float], list[float], list[int]]:
    """Return means and standard deviations without extremes, and the two-valued coordinates."""
    two_valued = [c for c in range(x.shape[1]) if len(np.unique(x[:, c])) <= 2]
    with np.errstate(all="ignore"):  # numbers near the ends of float64 overflow
        low, high = np.quantile(x, [0.05, 0.95], axis=0)
        margin = np.where(high > low, FAR * (high - low), np.inf)
        x = np.clip(x, low - margin, high + margin)
        center = x.cumsum(axis=0)[-1] / len(x)  # in order: sum adds one column pairwise
        spread = np.sqrt(((x - center) ** 2).cumsum(axis=0)[-1] / len(x))
        usable = (spread > 1e-9 * (1.0 + np.abs(x).max(axis=0))) & np.isfinite(center + spread)
    scale = np.where(usable, spread, 1.0).tolist()
    return np.where(np.isfinite(center), center, 0.0).tolist(), scale, two_valued


def assert_same_bits(x: Floats) -> None:
    assert repr(native.fit_scaling(x)) == repr(numpy_fit(x))


KINDS = {
    "normal": lambda random, shape: random.normal(size=shape),
    "far apart": lambda random, shape: random.normal(size=shape) * 10.0 ** random.integers(-9, 9),
    "shifted": lambda random, shape: 1e9 + random.normal(size=shape),
    "constant": lambda random, shape: np.full(shape, random.normal()),
    "two-valued": lambda random, shape: random.integers(0, 2, shape).astype(np.float64),
    "few values": lambda random, shape: random.integers(-2, 3, shape) / 3,
    "skewed": lambda random, shape: np.exp(3 * random.normal(size=shape)),
    "unknown": lambda random, shape: np.where(
        random.random(shape) < 0.03, -999999.0, random.normal(size=shape)
    ),
    "extreme": lambda random, shape: random.choice([-1e308, 1e308, 0.0, -0.0, 5e-324], shape),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16, 64, 1024])
def test_the_fit_is_bit_identical_to_numpy(kind: str, n: int) -> None:
    random = np.random.default_rng([n, len(kind)])
    for dim in (0, 1, 2, 5, 12):
        assert_same_bits(np.ascontiguousarray(KINDS[kind](random, (n, dim)), dtype=np.float64))


@given(
    st.integers(1, 3).flatmap(
        lambda dim: st.lists(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=dim, max_size=dim),
            min_size=1,
            max_size=24,
        )
    )
)
def test_the_fit_of_any_finite_numbers_is_bit_identical_to_numpy(rows: list[list[float]]) -> None:
    assert_same_bits(np.array(rows))
