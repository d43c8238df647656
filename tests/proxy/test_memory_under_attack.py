"""The memory of a proxy under attack is bounded."""

import sys

import pytest

from benchmarks.proxy_memory import ATTACKS, MB, results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_grows_by_at_most_100_megabytes_under_attack(name: str) -> None:
    ((_, memory),) = results([name])
    print(f"{name}: {memory.before / MB:.0f} → {memory.peak / MB:.0f} MB")
    assert memory.peak - memory.before <= 100 * MB
