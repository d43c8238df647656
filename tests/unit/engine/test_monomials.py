"""The loop behind the built-in feature maps, against products in plain numpy."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine.native import Monomials

Array = NDArray[np.float64]
Block = tuple[int, list[list[int]], float, float, float, list[float], list[float]]


def block(
    offset: int,
    monomials: list[list[int]],
    d: int,
    *,
    bound: float = 1.0,
    limit: float = 1.0 + 1e-9,
    factor: float = 0.5,
    seed: int = 0,
) -> Block:
    rng = np.random.default_rng(seed)
    center, scale = rng.uniform(-0.1, 0.1, d).tolist(), rng.uniform(1.2, 3, d).tolist()
    return offset, monomials, bound, limit, factor, center, scale


def plainly(given: Block, x: Array) -> Array:
    _, monomials, bound, _, factor, center, scale = given
    z = np.clip((x - center) / scale, -bound, bound)
    return np.array([factor * math.prod(z[c] for c in monomial) for monomial in monomials])


@pytest.mark.parametrize("d", [1, 2, 7, 64, 65])
def test_features_are_products_of_coordinates(d: int) -> None:
    rng = np.random.default_rng(d)
    degrees = [[], [0], [d - 1], [0, d - 1], [d // 2] * 2, [0, d // 2, d - 1], [d - 1] * 5]
    for most in (1, 2, 5):
        monomials = [m for m in degrees if len(m) <= most]
        first = block(0, monomials, d, seed=1)
        second = block(len(monomials) + 1, monomials[::-1], d, seed=2)  # one feature between them
        width = 2 * len(monomials) + 1
        maps = Monomials(d, width, [first, second])
        X = rng.uniform(-1, 1, (20, d))
        out = np.full((20, width), 7.0)
        assert maps.rows(X, out) == (20, 0)
        for x, row in zip(X, out, strict=True):
            alone = np.full(width, 7.0)
            assert maps.row(x, alone) == 0
            np.testing.assert_array_equal(alone, row)
            np.testing.assert_allclose(row[: len(monomials)], plainly(first, x), rtol=1e-14)
            np.testing.assert_allclose(row[len(monomials) + 1 :], plainly(second, x), rtol=1e-14)
            assert row[len(monomials)] == 7.0  # a place of no map is left alone


def test_coordinates_beyond_the_bound_and_beyond_the_limit() -> None:
    """Just beyond the bound: clamped. Beyond the limit: −1 − (block·d + coordinate)."""
    out = np.zeros(2)
    wide: Block = (0, [[0]], 1.0, 1.0 + 1e-9, 0.5, [0.0] * 3, [1.0, 1.0, math.inf])
    narrow: Block = (1, [[1]], 0.5, 0.5, 1.0, [0.0] * 3, [1.0, 1.0, math.inf])
    maps = Monomials(3, 2, [wide, narrow])
    assert maps.row(np.array([0.5, -0.25, 1e300]), out) == 0  # an infinite scale: no influence
    assert out.tolist() == [0.25, -0.25]
    assert maps.row(np.array([0.0, 0.7, 0.0]), out) == -1 - (1 * 3 + 1)
    assert maps.row(np.array([-1.1, 1.1, 0.0]), out) == -1 - 0
    one = Monomials(3, 2, [wide])
    assert one.row(np.array([1 + 1e-10, 0.0, 0.0]), out) == 0
    assert out[0] == 0.5
    clipped = Monomials(1, 1, [(0, [[0]], 1.0, math.inf, 0.25, [0.0], [1.0])])
    for x, value in ((5.0, 0.25), (-1e300, -0.25)):
        assert clipped.row(np.array([x]), out[:1]) == 0
        assert out[0] == value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_coordinate_that_is_not_finite_is_refused(bad: float) -> None:
    maps = Monomials(3, 1, [(0, [[0]], 1.0, math.inf, 1.0, [0.0] * 3, [1.0] * 3)])
    assert maps.row(np.array([0.0, 0.0, bad]), np.zeros(1)) == 3
    table = np.zeros((5, 3))
    table[4, 1] = bad
    assert maps.rows(table, np.zeros((5, 1))) == (4, 2)


MISFITS: dict[str, Block] = {
    "a coordinate that is none": (0, [[2]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2),
    "a center of another length": (0, [[0]], 1.0, 1.0, 1.0, [0.0], [1.0] * 2),
    "a scale of another length": (0, [[0]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 3),
    "features beyond the row": (2, [[0], [1]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_maps_that_do_not_fit_are_refused(misfit: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Monomials(2, 3, [MISFITS[misfit]])


@pytest.mark.parametrize(("x", "out"), [((3,), (1,)), ((2,), (2,)), ((0,), (1,))])
def test_arrays_of_another_length_are_refused(x: Any, out: Any) -> None:
    maps = Monomials(2, 1, [(0, [[0]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2)])
    with pytest.raises(ValueError, match="another length"):
        maps.row(np.zeros(x), np.zeros(out))
    with pytest.raises(ValueError, match="another length"):
        maps.rows(np.zeros((4, *x)), np.zeros((4, *out)))
    with pytest.raises(ValueError, match="another length"):
        maps.rows(np.zeros((4, 2)), np.zeros((3, 1)))
