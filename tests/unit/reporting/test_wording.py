"""Numbers are written with the digits that mean something; markup is only what is meant as such."""

import pytest

from stopwise.experiments.summary import Interval
from stopwise.reporting.pages import inline
from stopwise.reporting.wording import Value, format_value, hint, percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Interval(1037.2, 843.1, 1231.3, 3), "1,037 ± 194"),
        (Interval(0.72431, 0.72131, 0.72731, 3), "0.7243 ± 0.0030"),
        (Interval(-0.004, -0.104, 0.096, 9), "0.00 ± 0.10"),
        (Interval(0.687, 0.687 - 2.8e-16, 0.687 + 2.8e-16, 9), "0.687 ± 0"),
        (Interval(5.55e-17, 1e-17, 9e-17, 9), "0 ± 0"),
        (Interval(0.5, 0.2, 0.6, 9), "0.50 [0.20, 0.60]"),
        (Interval(2.0, float("-inf"), float("inf"), 1), "2"),
        (Interval(float("nan"), 0.0, 1.0, 1), "–"),
        (float("inf"), "–"),
        (-12345.6, "−12,346"),
        (-0.0, "0"),
        (5.55e-17, "0"),
        (-3, "−3"),
        (True, "yes"),
    ],
)
def test_values(value: Value, text: str) -> None:
    assert format_value(value) == text


def test_the_interval_is_there_for_those_who_ask() -> None:
    assert hint(Interval(2.0, float("-inf"), float("inf"), 1)) == "one value: no interval"
    assert hint(2.0) == hint("word") == ""


def test_shares() -> None:
    assert [percent(x) for x in (1.0, 0.99961, -0.2, 2e-5, 1e-17, float("nan"))] == [
        *("100\xa0%", "100\xa0%", "−20\xa0%", "0.002\xa0%", "0\xa0%", "–")
    ]


@pytest.mark.parametrize("text", ["a * b * c", "2*3*4", "*", "`", "``", "* x *", "a*b *c"])
def test_signs_that_are_no_markup_stay(text: str) -> None:
    assert inline(text) == text
