"""How often arms disagree: overall, and by groups of contexts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import GroupDisagreement, PairDisagreement
from stopwise.logs.diagnosis.intervals import wilson

# A coordinate with no more different values than this is grouped by value.
FEW_VALUES = 5


def pair_disagreements(
    cascade: Cascade, rows: NDArray[np.int64], differ: NDArray[np.int64]
) -> tuple[PairDisagreement, ...]:
    """Return the rate of every pair from counts, in the order of ``cascade.pairs()``.

    Examples
    --------
    >>> found = pair_disagreements(Cascade([0.1, 0.2]), np.array([100]), np.array([10]))
    >>> print(found[0].rate)
    0.100 (0.055 to 0.174)
    """
    return tuple(
        PairDisagreement(i, j, float(cascade.gaps[i, j]), int(n), wilson(int(d), int(n)))
        for (i, j), n, d in zip(cascade.pairs(), rows, differ, strict=True)
    )


def group_disagreements(
    names: Sequence[str], contexts: NDArray[np.float64], differ: NDArray[np.uint8]
) -> tuple[GroupDisagreement, ...]:
    """Return the rates by group of each coordinate: its few values, or its thirds.

    Examples
    --------
    >>> x = np.array([[0.0], [0.0], [1.0]])
    >>> found = group_disagreements(["old"], x, np.array([[0], [0], [1]], dtype=np.uint8))
    >>> [(g.coordinate, g.group, g.rows, g.rates[0].value) for g in found]
    [('old', '0', 2, 0.0), ('old', '1', 1, 1.0)]
    """
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
