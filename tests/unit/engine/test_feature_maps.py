"""The loop behind the built-in feature maps refuses what does not fit."""

from typing import Any

import numpy as np
import pytest

from stopwise.engine.native import FeatureMaps


@pytest.mark.parametrize(
    "misfit",
    [
        ([[2]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # a coordinate that is none
        ([[0]], 1.0, 1.0, [1.0], [0.0], [1.0] * 2),  # a center and a scale of another length
        ([[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 3),
        ([[0], [1]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # a factor too few
        (1, [0.0], [1.0], [], None),  # a scale for contexts of another length
    ],
)
def test_maps_that_do_not_fit_are_refused(misfit: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        FeatureMaps(2, 2, [misfit], [0], None)


@pytest.mark.parametrize(("x", "out"), [((4, 3), (4, 1)), ((4, 2), (4, 2)), ((4, 2), (3, 1))])
def test_arrays_of_another_length_are_refused(x: tuple[int, int], out: tuple[int, int]) -> None:
    maps = FeatureMaps(2, 2, [([[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2)], [0], None)
    with pytest.raises(ValueError, match="another length"):
        maps.rows(np.zeros(x), np.zeros(out))


def test_slots_of_another_cascade_are_refused() -> None:
    for slot_of_pair, stages in (([0, 0], None), ([1], None), ([0], ([1, 2], True))):
        with pytest.raises(ValueError, match="another cascade"):
            FeatureMaps(2, 2, [2], slot_of_pair, stages)
