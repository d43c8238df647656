"""Argument checks of the native feature maps."""

from typing import Any

import numpy as np
import pytest

from stopwise.engine.native import FeatureMaps


@pytest.mark.parametrize(
    "invalid_map",
    [
        ([[2]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # coordinate out of range
        ([[0]], 1.0, 1.0, [1.0], [0.0], [1.0] * 2),  # center too short
        ([[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 3),  # scale too long
        ([[0], [1]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2),  # a missing factor
        (1, [0.0], [1.0], [], None),  # scale too short
    ],
)
def test_a_map_that_does_not_match_context_dim_is_rejected(invalid_map: Any) -> None:
    with pytest.raises(ValueError, match="does not match its context_dim"):
        FeatureMaps(2, 2, [invalid_map], [0], None)


@pytest.mark.parametrize(("x", "out"), [((4, 3), (4, 1)), ((4, 2), (4, 2)), ((4, 2), (3, 1))])
def test_rows_rejects_arrays_of_a_wrong_shape(x: tuple[int, int], out: tuple[int, int]) -> None:
    maps = FeatureMaps(2, 2, [([[0]], 1.0, 1.0, [1.0], [0.0] * 2, [1.0] * 2)], [0], None)
    with pytest.raises(ValueError, match="X or out has the wrong shape"):
        maps.rows(np.zeros(x), np.zeros(out))


@pytest.mark.parametrize(
    ("slot_of_pair", "stages"), [([0, 0], None), ([1], None), ([0], ([1, 2], True))]
)
def test_slots_that_do_not_match_the_cascade_are_rejected(slot_of_pair: Any, stages: Any) -> None:
    with pytest.raises(ValueError, match="do not match the cascade"):
        FeatureMaps(2, 2, [2], slot_of_pair, stages)
