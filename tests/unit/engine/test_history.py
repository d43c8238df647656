"""The stored history, compared with a dictionary and a list."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from tests.helpers import archive

Array = NDArray[np.float64]
MAX_DISTINCT = archive.MAX_DISTINCT


class UnscaledIdentity:
    """Φ(x) = x."""

    def __call__(self, x: Array) -> Array:
        return x


def new_policy(n_arms: int, d: int) -> sw.USSPD:
    cascade = sw.Cascade([0.1] * n_arms)
    return sw.USSPD(cascade, UnscaledIdentity(), d, forced_rounds=0)


class PythonHistory:
    """The history in Python containers."""

    def __init__(self, n_arms: int) -> None:
        self.pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
        self.counted: dict[tuple[tuple[float, ...], int], list[int]] = {}
        self.distinct: Counter[int] = Counter()
        self.single: list[archive.Row] = []

    def append(self, row: tuple[float, ...], stop: int, outputs: list[int]) -> None:
        if stop == 0:  # no pair was observed
            return
        answers = [int(j <= stop and outputs[i] != outputs[j]) for i, j in self.pairs]
        key = (row, stop)
        if key not in self.counted and self.distinct[stop] == MAX_DISTINCT:
            self.single.append(archive.Row(row, stop, 1, tuple(answers)))
            return
        self.distinct[stop] += key not in self.counted
        counts = self.counted.setdefault(key, [0] * (1 + len(self.pairs)))
        for k, count in enumerate([1, *answers]):
            counts[k] += count

    def rows(self) -> Counter[archive.Row]:
        counted = [
            archive.Row(row, stop, n, tuple(positives))
            for (row, stop), (n, *positives) in self.counted.items()
        ]
        return Counter([*counted, *self.single])


@pytest.mark.parametrize(
    ("n_arms", "rounds", "levels"),
    [(2, 1500, 4), (2, 20_000, 17), (5, 4000, 18)],
)
def test_history_stores_the_rows_of_python_containers(
    n_arms: int, rounds: int, levels: int
) -> None:
    rng = np.random.default_rng(n_arms)
    signs = [-0.0, 0.0]  # equal contexts
    policy, python = new_policy(n_arms, 3), PythonHistory(n_arms)
    for t in range(rounds):
        row = [x or signs[t % 2] for x in (rng.integers(0, levels, 3) / levels - 0.5).tolist()]
        stop = int(rng.integers(0, n_arms))
        outputs = rng.integers(0, 2, stop + 1).tolist()
        policy.observe(row, outputs)
        python.append(tuple(row), stop, outputs)
    assert policy.rounds == rounds
    assert policy.effort["rows_stored"] == len(python.counted) + len(python.single)
    assert Counter(archive.rows(policy)) == python.rows()
    if levels == 17:  # rows stored singly repeat, too
        assert len(python.single) > 20 + len({row.x for row in python.single})
