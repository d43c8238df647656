"""Recorded rounds as arrays: what a policy needs to play a log."""

import msgspec
import numpy as np
from numpy.typing import NDArray


class Rounds(msgspec.Struct, frozen=True, eq=False):
    """Rounds that were played before, perhaps not to the end.

    Attributes
    ----------
    contexts : ndarray of shape (n, context_dim)
        One context a round; zeros where a stage that never ran would have revealed something.
    differ : ndarray of uint8, shape (n, K(K−1)/2)
        Whether each pair of arms disagreed, in the order of ``cascade.pairs()``; 0 where that
        is not known.
    reach : ndarray of int64, shape (n,)
        The last arm whose output is known; −1 where none is.
    failed : ndarray of bool, shape (n,)
        Whether the arm after ``reach`` was asked and failed.
    wrong : ndarray of uint8, shape (n, K), or None
        1 where an arm was wrong, 0 where it was right, 2 where that is not known.
    audited : ndarray of bool, shape (n,), or None
        Rounds whose right answer the policy may see when they have ended; policies that do not
        learn from labels do not look.

    Examples
    --------
    >>> Rounds(
    ...     contexts=np.zeros((1, 2)),
    ...     differ=np.array([[1]], dtype=np.uint8),
    ...     reach=np.array([1]),
    ...     failed=np.array([False]),
    ... ).n
    1
    """

    contexts: NDArray[np.float64]
    differ: NDArray[np.uint8]
    reach: NDArray[np.int64]
    failed: NDArray[np.bool_]
    wrong: NDArray[np.uint8] | None = None
    audited: NDArray[np.bool_] | None = None

    @property
    def n(self) -> int:
        """How many rounds there are."""
        return len(self.reach)
