"""The loop behind the built-in feature maps, against products in plain numpy."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine.native import Monomials

Array = NDArray[np.float64]
Block = tuple[int, list[list[int]], float, float, float, list[float], list[float]]


def block(offset: int, monomials: list[list[int]], d: int) -> Block:
    rng = np.random.default_rng(offset)
    center, scale = rng.uniform(-0.1, 0.1, d).tolist(), rng.uniform(1.2, 3, d).tolist()
    return offset, monomials, 1.0, 1.0 + 1e-9, 0.5, center, scale


def plainly(given: Block, x: Array) -> Array:
    _, monomials, bound, _, factor, center, scale = given
    z = np.clip((x - center) / scale, -bound, bound)
    return np.array([factor * math.prod(z[c] for c in monomial) for monomial in monomials])


@pytest.mark.parametrize("d", [1, 2, 7, 64, 65])
def test_features_are_products_of_coordinates(d: int) -> None:
    degrees = [[], [0], [d - 1], [0, d - 1], [d // 2] * 2, [0, d // 2, d - 1], [d - 1] * 5]
    for most in (1, 2, 5):
        monomials = [m for m in degrees if len(m) <= most]
        n = len(monomials)
        first, second = block(0, monomials, d), block(n + 1, monomials[::-1], d)
        X = np.random.default_rng(d).uniform(-1, 1, (20, d))
        out = np.full((20, 2 * n + 1), 7.0)
        assert Monomials(d, 2 * n + 1, [first, second]).rows(X, out) == (20, 0)
        for x, row in zip(X, out, strict=True):
            np.testing.assert_allclose(row[:n], plainly(first, x), rtol=1e-14)
            np.testing.assert_allclose(row[n + 1 :], plainly(second, x), rtol=1e-14)
            assert row[n] == 7.0  # a place of no map is left alone


WIDE: Block = (0, [[0]], 1.0, 1.0 + 1e-9, 0.5, [0.0] * 3, [1.0, 1.0, math.inf])
NARROW: Block = (1, [[1]], 0.5, 0.5, 1.0, [0.0] * 3, [1.0, 1.0, math.inf])
CLIPS: Block = (0, [[0]], 1.0, math.inf, 0.25, [0.0] * 3, [1.0] * 3)


@pytest.mark.parametrize(
    ("blocks", "x", "status", "first"),
    [
        ([WIDE, NARROW], [0.5, -0.25, 1e300], 0, 0.25),  # an infinite scale: no influence
        ([WIDE, NARROW], [0.0, 0.7, 0.0], -1 - (1 * 3 + 1), None),  # block 1, coordinate 1
        ([WIDE, NARROW], [-1.1, 1.1, 0.0], -1 - 0, None),
        ([WIDE], [1 + 1e-10, 0.0, 0.0], 0, 0.5),  # a rounding error beyond the bound: clamped
        ([CLIPS], [5.0, 0.0, 0.0], 0, 0.25),
        ([CLIPS], [-1e300, 0.0, 0.0], 0, -0.25),
        *(([CLIPS], [0.0, 0.0, bad], 3, None) for bad in (math.nan, math.inf, -math.inf)),
    ],
)
def test_coordinates_beyond_the_bound_and_beyond_the_limit(
    blocks: list[Block], x: list[float], status: int, first: float | None
) -> None:
    """Beyond the limit: −1 − (block·d + coordinate). Not finite: 1 + coordinate."""
    out = np.zeros((4, 2))
    table = np.array([[0.0] * 3, [0.0] * 3, x, [0.0] * 3])
    assert Monomials(3, 2, blocks).rows(table, out) == ((2 if status else 4), status)
    assert first is None or out[2, 0] == first


@pytest.mark.parametrize(
    "misfit",
    [
        (0, [[2]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2),  # a coordinate that is none
        (0, [[0]], 1.0, 1.0, 1.0, [0.0], [1.0] * 2),  # a center and a scale of another length
        (0, [[0]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 3),
        (2, [[0], [1]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2),  # features beyond the row
    ],
)
def test_maps_that_do_not_fit_are_refused(misfit: Block) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Monomials(2, 3, [misfit])


@pytest.mark.parametrize(("x", "out"), [((4, 3), (4, 1)), ((4, 2), (4, 2)), ((4, 2), (3, 1))])
def test_arrays_of_another_length_are_refused(x: tuple[int, int], out: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="another length"):
        Monomials(2, 1, [(0, [[0]], 1.0, 1.0, 1.0, [0.0] * 2, [1.0] * 2)]).rows(
            np.zeros(x), np.zeros(out)
        )
