"""The loop behind the built-in feature maps refuses what does not fit."""

from typing import Any

import numpy as np
import pytest

from stopwise.engine.native import Monomials


@pytest.mark.parametrize(
    "misfit",
    [
        (0, [[2]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # a coordinate that is none
        (0, [[0]], 1.0, 1.0, [1.0], [0.0], [1.0] * 2),  # a center and a scale of another length
        (0, [[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 3),
        (2, [[0], [1]], 1.0, 1.0, [1.0] * 2, [0.0] * 2, [1.0] * 2),  # features beyond the row
        (0, [[0], [1]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # a factor too few
    ],
)
def test_maps_that_do_not_fit_are_refused(misfit: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Monomials(2, 3, [misfit])


@pytest.mark.parametrize(("x", "out"), [((4, 3), (4, 1)), ((4, 2), (4, 2)), ((4, 2), (3, 1))])
def test_arrays_of_another_length_are_refused(x: tuple[int, int], out: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="another length"):
        Monomials(2, 1, [(0, [[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2)]).rows(
            np.zeros(x), np.zeros(out)
        )
