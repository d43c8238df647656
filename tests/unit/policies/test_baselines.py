"""Fixed and random depth."""

import numpy as np
import pytest

import stopwise as sw

THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])


def test_random_depth_takes_every_depth_equally_often() -> None:
    """Hoeffding: a share off by 0.05 in 3000 draws has chance ≤ 6·exp(-2·3000·0.05²) < 2e-6."""
    stops = sw.RandomDepth(THREE, seed=1).decide_many(np.zeros((3000, 1)))
    np.testing.assert_allclose(np.bincount(stops) / 3000, 1 / 3, atol=0.05)


def test_fixed_depth_by_name_or_number() -> None:
    for depth, stop in (("model", 1), (0, 0), (np.int64(2), 2), (None, 2)):
        policy = sw.FixedDepth(THREE, depth=depth)  # pyright: ignore[reportArgumentType]
        assert policy.decide(0.0) == sw.Decision(stop, THREE.names[stop], THREE.cost(stop))
        assert policy.decide(0.0).evidence == ()
        assert policy.parameters() == {"depth": stop}
    for depth in ("tree", 3, -1, 1.5, True):
        with pytest.raises(sw.errors.InvalidStopError):
            sw.FixedDepth(THREE, depth=depth)  # pyright: ignore[reportArgumentType]
