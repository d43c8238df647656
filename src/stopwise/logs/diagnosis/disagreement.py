"""How often arms disagree, by groups of contexts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stopwise.logs.diagnosis.findings import GroupDisagreement
from stopwise.logs.diagnosis.intervals import wilson

# A coordinate with no more different values than this is grouped by value.
FEW_VALUES = 5


def group_disagreements(
    names: Sequence[str], contexts: NDArray[np.float64], differ: NDArray[np.uint8]
) -> tuple[GroupDisagreement, ...]:
    """Return the rates by group of each coordinate: its few values, or its thirds."""
    found: list[GroupDisagreement] = []
    for c, name in enumerate(names):
        for words, mine in _groups(contexts[:, c]):
            n, hits = int(mine.sum()), differ[mine].sum(axis=0, dtype=np.int64)
            rates = tuple(wilson(int(h), n) for h in hits)
            found.append(GroupDisagreement(name, words, n, rates))
    return tuple(found)


def _groups(values: NDArray[np.float64]) -> list[tuple[str, NDArray[np.bool_]]]:
    distinct = np.unique(values)
    if len(distinct) <= FEW_VALUES:
        return [(f"{v:.6g}", values == v) for v in distinct.tolist()]
    low, high = np.quantile(values, [1 / 3, 2 / 3]).tolist()
    groups = [
        (f"low (up to {low:.4g})", values <= low),
        (f"middle (to {high:.4g})", (values > low) & (values <= high)),
        (f"high (above {high:.4g})", values > high),
    ]
    return [(words, mine) for words, mine in groups if mine.any()]
