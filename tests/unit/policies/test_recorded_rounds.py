"""Tests of recorded rounds: validation, labels and selection."""

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
        ({"failed": np.zeros(3, dtype=np.bool_)}, "failed must have 4 values"),
        ({"labelled": None}, "labelled is missing"),
        ({"right": None}, "right is missing"),
        ({"right": np.zeros((4, 2), dtype=np.bool_)}, r"right must be .* \(4, 3\), .* \(4, 2\)"),
        ({"right": np.zeros((4, 3), dtype=np.uint8)}, "right must be .* booleans .* uint8"),
        ({"labelled": np.zeros(3, dtype=np.bool_)}, r"labelled must be .* \(4,\), .* \(3,\)"),
    ],
)
def test_inconsistent_arrays_are_rejected(changes: dict[str, Any], message: str) -> None:
    untrained = policy()
    with pytest.raises(sw.errors.InvalidOutputsError, match=message):
        untrained.run_recorded(replace(ROUNDS, **changes))
    assert untrained.rounds == 0


def test_rounds_without_a_label_are_not_learned_as_labelled() -> None:
    assert ROUNDS.right is not None
    assert ROUNDS.labelled is not None
    original, changed = policy(), policy()
    original.run_recorded(replace(ROUNDS, answered=np.full(4, 3)))
    right = np.where(ROUNDS.labelled[:, None], ROUNDS.right, True)
    changed.run_recorded(replace(ROUNDS, answered=np.full(4, 3), right=right))
    assert original.labels.received == 2
    assert_same(original.state(), changed.state())


@pytest.mark.parametrize("rows", [slice(1, 3), [1, 2], [False, True, True, False]])
def test_rounds_are_selected_by_slices_indices_and_masks(rows: Any) -> None:
    selection = ROUNDS.select(rows if isinstance(rows, slice) else np.array(rows))
    assert selection.n == 2
    assert selection.contexts.tolist() == [[0.2], [0.3]]
    assert selection.answered.tolist() == [2, 1]
    assert selection.right is not None
    assert selection.right[:, 0].tolist() == [False, True]
    assert selection.labelled is not None
    assert selection.labelled.tolist() == [True, False]
    without = replace(ROUNDS, right=None, labelled=None).select(slice(2))
    assert (without.n, without.right, without.labelled) == (2, None, None)
