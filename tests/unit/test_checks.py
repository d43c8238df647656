"""Tests of argument checks."""

import math
from typing import Any

import numpy as np
import pytest

from stopwise import checks
from stopwise.errors import InvalidContextError, InvalidParameterError


@pytest.mark.parametrize("value", [3, 3.0, np.int16(3), np.float32(3)])
def test_integer_accepts_integral_values_of_any_numeric_type(value: Any) -> None:
    assert checks.integer("rounds", value, least=1, most=3) == 3
    assert type(checks.integer("rounds", value)) is int


@pytest.mark.parametrize("value", [0, 4, 2.5, "3", True, None, float("nan"), float("inf"), [3]])
def test_integer_rejects_values_out_of_range_and_other_types(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match="rounds must be an integer from 1 to 3, got"):
        checks.integer("rounds", value, least=1, most=3)


@pytest.mark.parametrize(
    "value", [0.0, 1.5, "0.5", True, np.True_, None, math.nan, math.inf, 10**400]
)
def test_real_rejects_values_out_of_range_and_other_types(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"delta must be a number in \(0, 1\], got"):
        checks.real("delta", value, above=0, most=1)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"least": 0, "below": 1}, r"a number in \[0, 1\), got 'a'"),
        ({"above": 0}, "a number > 0, got"),
        ({"least": 0}, "a number >= 0, got"),
        ({"below": 1}, "a number < 1, got"),
        ({"most": 1}, "a number <= 1, got"),
        ({}, "a finite number, got"),
    ],
)
def test_real_names_the_limits(limits: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"x must be {expected}"):
        checks.real("x", "a", **limits)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([2, True], r"costs\[1\] must be a number > 0, got True"),
        (np.array([True, False]), r"costs\[0\] .* got True"),
        ([1, 0], r"costs\[1\] .* got 0"),
        ([[1, 2]], r"flat list of numbers, got shape \(1, 2\)"),
    ],
)
def test_vector_rejects_booleans_tables_and_values_out_of_range(values: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        checks.vector("costs", values, above=0)


def test_vector_broadcasts_a_scalar_to_a_size() -> None:
    assert checks.vector("C", 2, size=3).tolist() == [2.0, 2.0, 2.0]
    assert checks.vector("costs", [1, 2.5], least=0).tolist() == [1.0, 2.5]


def test_checks_raise_the_requested_error() -> None:
    with pytest.raises(InvalidContextError, match="x must be a finite number, got 'a'"):
        checks.real("x", "a", error=InvalidContextError)
    with pytest.raises(InvalidContextError, match="finite, got inf in row 1, column 0"):
        checks.table("contexts", [[0.0], [np.inf]], InvalidContextError)


def test_short_repr_falls_back_to_the_type() -> None:
    class WithoutRepr:
        def __repr__(self) -> str:
            raise RuntimeError

    assert checks.short_repr(WithoutRepr()) == "a WithoutRepr"
    assert len(checks.short_repr("x" * 1000)) == 80


@pytest.mark.parametrize(
    ("value", "size"),
    [("1.5 GB", 1_500_000_000), ("256mb", 256_000_000), (" 7 B ", 7), (4096, 4096)],
)
def test_size_in_bytes_accepts_units(value: Any, size: int) -> None:
    assert checks.size_in_bytes("memory", value) == size


def test_size_in_bytes_rejects_an_unknown_unit() -> None:
    with pytest.raises(
        InvalidParameterError, match='size such as "256 MB" or a number of bytes, got'
    ):
        checks.size_in_bytes("memory", "3k")
