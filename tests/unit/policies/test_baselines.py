"""Tests of fixed and random depth."""

from typing import Any

import numpy as np
import pytest

import stopwise as sw

THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])


def test_random_depth_is_uniform() -> None:
    """By Hoeffding, P(a share of 3000 draws is off by 0.05) ≤ 6·exp(-2·3000·0.05²) < 2e-6."""
    stops = sw.RandomDepth(THREE, seed=1).decide_many(np.zeros((3000, 1)))
    np.testing.assert_allclose(np.bincount(stops) / 3000, 1 / 3, atol=0.05)


@pytest.mark.parametrize(("depth", "stop"), [("model", 1), (0, 0), (np.int64(2), 2), (None, 2)])
def test_fixed_depth_accepts_a_name_or_a_position(depth: Any, stop: int) -> None:
    policy = sw.FixedDepth(THREE, depth=depth)
    assert policy.decide(0.0) == sw.Decision(stop, THREE.names[stop], THREE.cost(stop))
    assert policy.decide(0.0).evidence == ()
    assert policy.parameters() == {"depth": stop}


@pytest.mark.parametrize("depth", ["tree", 3, -1, 1.5, True])
def test_fixed_depth_rejects_an_unknown_arm(depth: Any) -> None:
    with pytest.raises(sw.errors.InvalidStopError):
        sw.FixedDepth(THREE, depth=depth)
