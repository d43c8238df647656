"""What callers pass becomes JSON values, or is refused before it is sent."""

import enum
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.client import values


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "given",
    [
        [0.5, 1],
        np.array([0.5, 1.0]),
        np.array([0.5, 1.0], dtype=np.float32),
        [np.float64(0.5), np.int8(1)],
        np.array([0.5, 1.0], dtype=object),
    ],
)
def test_a_context_is_a_list_of_numbers(given: Any) -> None:
    assert values.context_value(given) == [0.5, 1.0]
    assert all(type(value) is float for value in values.context_value(given))


def test_a_context_by_name_keeps_its_names() -> None:
    assert values.context_value({"age": np.float32(0.5), "bmi": 1}) == {"age": 0.5, "bmi": 1.0}


def test_numbers_arrive_to_the_last_bit() -> None:
    numbers = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-300, 300, 0.6)
    sent = msgspec.json.decode(msgspec.json.encode(values.context_value(numbers)))
    assert np.array_equal(np.array(sent), numbers)


@pytest.mark.parametrize(
    "given",
    [
        5,
        "12",
        ["1", "2"],
        [[1, 2]],
        [1, None],
        [float("nan")],
        {"age": float("inf")},
        {"age": [1, 2]},
        np.array(["a"]),
    ],
)
def test_what_is_no_context_is_refused_before_it_is_sent(given: Any) -> None:
    with pytest.raises(sw.InvalidContextError):
        values.context_value(given)


def test_the_row_that_is_wrong_is_named() -> None:
    assert values.context_values([[1, 2], {"a": 3}]) == [[1.0, 2.0], {"a": 3.0}]
    with pytest.raises(sw.InvalidContextError, match="context 1"):
        values.context_values(np.array([[0.0], [np.nan]]))
    for wrong in (5, {"a": 1}, "ab"):
        with pytest.raises(sw.InvalidContextError):
            values.context_values(wrong)  # pyright: ignore[reportArgumentType] (the mistake tested)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["ill", None], ["ill", None]),
        ((np.int64(1), np.bool_(True), np.str_("a"), Colour.RED), [1, True, "a", "red"]),
        (np.array([1, 0]), [1, 0]),
        ({"rule": np.float32(0.5)}, {"rule": 0.5}),
        ([{"box": (1, np.array([2, 3]))}], [{"box": [1, [2, 3]]}]),
    ],
)
def test_outputs_are_json(given: Any, wanted: Any) -> None:
    sent = values.output_values(given)
    assert sent == wanted
    assert msgspec.json.decode(msgspec.json.encode(sent)) == wanted


@pytest.mark.parametrize(
    "given",
    [
        "ill",
        {1, 2},
        [float("nan")],
        [{"a", "b"}],
        [{1: 2}],
        [b"ill"],
        [np.datetime64("2020-01-01")],
        [object()],
    ],
)
def test_outputs_that_json_does_not_have_are_refused(given: Any) -> None:
    with pytest.raises(sw.InvalidOutputsError):
        values.output_values(given)


def test_a_label_cannot_be_none() -> None:
    with pytest.raises(sw.InvalidOutputsError):
        values.known_value(None, "the label")
