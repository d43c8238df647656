"""The checks of arguments, used wherever a value enters."""

import math
from typing import Any

import numpy as np
import pytest

from stopwise import checks
from stopwise.errors import InvalidContextError, InvalidParameterError


@pytest.mark.parametrize("given", [3, 3.0, np.int16(3), np.float32(3)])
def test_a_whole_number_may_have_any_type(given: Any) -> None:
    assert checks.integer("rounds", given, least=1, most=3) == 3
    assert type(checks.integer("rounds", given)) is int


@pytest.mark.parametrize("given", [0, 4, 2.5, "3", True, None, float("nan"), float("inf"), [3]])
def test_what_is_no_whole_number_in_range_is_refused(given: Any) -> None:
    with pytest.raises(InvalidParameterError, match="rounds must be a whole number from 1 to 3"):
        checks.integer("rounds", given, least=1, most=3)


@pytest.mark.parametrize(
    "given", [0.0, 1.5, "0.5", True, np.True_, None, math.nan, math.inf, 10**400]
)
def test_what_is_no_number_in_range_is_refused(given: Any) -> None:
    with pytest.raises(InvalidParameterError, match="delta must be a number above 0 and at most 1"):
        checks.real("delta", given, above=0, most=1)


def test_a_list_holds_numbers_in_range_and_no_booleans() -> None:
    assert checks.vector("C", 2, size=3).tolist() == [2, 2, 2]
    wrong: dict[str, Any] = {
        r"costs\[1\] must be a number above 0, not True": [2, True],
        r"costs\[0\] .* not True": np.array([True, False]),
        r"costs\[1\] .* not 0": [1, 0],
        r"flat list of numbers; its shape is \(1, 2\)": [[1, 2]],
    }
    for words, given in wrong.items():
        with pytest.raises(InvalidParameterError, match=words):
            checks.vector("costs", given, above=0)


def test_errors_are_of_the_given_kind() -> None:
    with pytest.raises(InvalidContextError, match="x must be a number, not 'a'"):
        checks.real("x", "a", error=InvalidContextError)
    with pytest.raises(InvalidContextError, match="contexts: row 1, column 0 is inf"):
        checks.table("contexts", [[0.0], [np.inf]], InvalidContextError)


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Hidden:
        def __repr__(self) -> str:
            raise RuntimeError

    assert checks.short_repr(Hidden()) == "a Hidden"
    assert len(checks.short_repr("x" * 1000)) == 80


@pytest.mark.parametrize(
    ("given", "found"),
    [("1.5 GB", 1_500_000_000), ("256mb", 256_000_000), (" 7 B ", 7), ("3k", None), (4096, 4096)],
)
def test_an_amount_of_memory_is_a_number_with_a_unit(given: Any, found: int | None) -> None:
    if found is not None:
        assert checks.size_in_bytes("memory", given) == found
        return
    with pytest.raises(InvalidParameterError, match='memory is a text like "256 MB"'):
        checks.size_in_bytes("memory", given)


def test_one_number_is_repeated_where_a_list_of_a_size_is_wanted() -> None:
    assert checks.vector("C", 2, size=3).tolist() == [2.0, 2.0, 2.0]
    assert checks.vector("costs", [1, 2.5], least=0).tolist() == [1.0, 2.5]
