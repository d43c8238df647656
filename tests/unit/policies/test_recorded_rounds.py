"""Recorded rounds: checks of their arrays, and labels that are read only where they are known."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import stopwise as sw
from tests.helpers.archive import assert_same

CASCADE = sw.Cascade([0.01, 0.1, 0.2])
ROUNDS = sw.RecordedRounds(
    contexts=np.array([[0.1], [0.2], [0.3], [0.4]]),
    differ=np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=np.uint8),
    answered=np.array([3, 2, 1, 0]),
    failed=np.array([False, False, False, True]),
    right=np.array([[True, True, False], [False, True, False], [True, False, False], [False] * 3]),
    labelled=np.array([True, True, False, False]),
)


def policy() -> sw.USSLaplace:
    return sw.USSLaplace(CASCADE, context_dim=1, labels=50, explore=0, forced_rounds=50)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answered": np.array([3, 2, 1, -1])}, r"answered must be .* 0 to 3"),
        ({"answered": np.array([3, 2, 1, 4])}, r"answered must be .* 0 to 3"),
        ({"failed": np.zeros(3, dtype=np.bool_)}, "failed must be 4 values"),
        ({"labelled": None}, "labelled is missing"),
        ({"right": None}, "right is missing"),
        ({"right": np.zeros((4, 2), dtype=np.bool_)}, r"right must be .* \(4, 3\), .* \(4, 2\)"),
        ({"right": np.zeros((4, 3), dtype=np.uint8)}, "right must be .* booleans .* uint8"),
        ({"labelled": np.zeros(3, dtype=np.bool_)}, r"labelled must be .* \(4,\), .* \(3,\)"),
    ],
)
def test_arrays_that_contradict_the_cascade_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    empty = policy()
    with pytest.raises(sw.errors.InvalidOutputsError, match=message):
        empty.run_recorded(replace(ROUNDS, **changes))
    assert empty.rounds == 0


def test_only_labels_that_are_known_are_learned() -> None:
    assert ROUNDS.right is not None
    assert ROUNDS.labelled is not None
    one, other = policy(), policy()
    one.run_recorded(replace(ROUNDS, answered=np.full(4, 3)))
    changed = np.where(ROUNDS.labelled[:, None], ROUNDS.right, True)
    other.run_recorded(replace(ROUNDS, answered=np.full(4, 3), right=changed))
    assert one.labels.came == 2
    assert_same(one.state(), other.state())


@pytest.mark.parametrize("which", [slice(1, 3), [1, 2], [False, True, True, False]])
def test_rounds_are_selected_by_slices_indices_and_masks(which: Any) -> None:
    part = ROUNDS.select(which if isinstance(which, slice) else np.array(which))
    assert part.n == 2
    assert part.contexts.tolist() == [[0.2], [0.3]]
    assert part.answered.tolist() == [2, 1]
    assert part.right is not None
    assert part.right[:, 0].tolist() == [False, True]
    assert part.labelled is not None
    assert part.labelled.tolist() == [True, False]
    without = replace(ROUNDS, right=None, labelled=None).select(slice(2))
    assert (without.n, without.right, without.labelled) == (2, None, None)
