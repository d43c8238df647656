"""Recorded rounds as arrays: what a policy needs to play a log."""

from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.records import Round


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


def audited_round(
    rounds: Rounds, t: int, end: int, differ: NDArray[np.bool_], rule_stop: int
) -> tuple[Round, int] | None:
    """Return an audited round and its label, an output being named by the first arm that gave it.

    None if it was not audited, or if it is not known of all arms whether they were wrong.
    """
    if rounds.audited is None or rounds.wrong is None or not rounds.audited[t]:
        return None
    wrong = cast(list[int], rounds.wrong[t, : end + 1].tolist())
    if 2 in wrong:
        return None
    outputs = tuple(int(differ[: k + 1, k].argmin()) for k in range(end + 1))
    label = outputs[wrong.index(0)] if 0 in wrong else -1
    context = tuple(rounds.contexts[t].tolist())
    done = Round(str(t), 0.0, context, outputs, outputs, stop=end, rule_stop=rule_stop)
    return done, label
