"""Formats of numbers and names, and inline markup."""

from math import inf, nan
from typing import Any

import pytest

from stopwise.intervals import Interval
from stopwise.reporting import wording as w
from stopwise.reporting.pages import inline

CASES: list[tuple[Any, tuple[Any, ...], str]] = [
    (w.format_value, (Interval(1037.2, 843.1, 1231.3, 3),), "1,037 ± 194"),
    (w.format_value, (Interval(0.72431, 0.72131, 0.72731, 3),), "0.7243 ± 0.0030"),
    (w.format_value, (Interval(-0.004, -0.104, 0.096, 9),), "0.00 ± 0.10"),
    (w.format_value, (Interval(0.687, 0.687 - 2.8e-16, 0.687 + 2.8e-16, 9),), "0.687 ± 0"),
    (w.format_value, (Interval(5.55e-17, 1e-17, 9e-17, 9),), "0 ± 0"),
    (w.format_value, (Interval(0.5, 0.2, 0.6, 9),), "0.50 [0.20, 0.60]"),
    (w.format_value, (Interval(2e-8, 1e-8, 3e-8, 9),), "2e-08 ± 1e-08"),
    (w.format_value, (Interval(2.0, -inf, inf, 1),), "2"),
    (w.format_value, (Interval(nan, 0.0, 1.0, 1),), "–"),
    (w.format_value, (inf,), "–"),
    (w.format_value, (-12345.6,), "−12,346"),
    (w.format_value, (-0.0,), "0"),
    (w.format_value, (5.55e-17,), "0"),
    (w.format_value, (-3,), "−3"),
    (w.format_value, (True,), "yes"),
    (w.format_value, (0.06923,), "0.06923"),
    (w.format_value, ("a",), "a"),
    (w.count, (12345,), "12,345"),
    (w.count, (-3,), "−3"),
    (w.plural, (1, "round"), "1 round"),
    (w.plural, (1200, "round"), "1,200 rounds"),
    (w.plural, (2, "entry", "entries"), "2 entries"),
    (w.number, (0.24712,), "0.247"),
    (w.number, (247.12,), "247"),
    (w.number, (-0.005,), "−0.005"),
    (w.number, (0.0,), "0"),
    (w.number, (2e-7,), "2e-07"),
    (w.number, (nan,), "–"),
    (w.number, (0.24712, 2), "0.25"),
    (w.percent, (0.4912,), "49 %"),
    (w.percent, (0.0612,), "6.1 %"),
    (w.percent, (0.00041,), "0.04 %"),
    (w.percent, (0.9971,), "99.7 %"),
    (w.percent, (1.0,), "100 %"),
    (w.percent, (0.99961,), "100 %"),
    (w.percent, (-0.2,), "−20 %"),
    (w.percent, (2e-5,), "0.002 %"),
    (w.percent, (1e-17,), "0 %"),
    (w.percent, (nan,), "–"),
    (w.percent_interval, (Interval(0.061, 0.058, 0.064),), "6.1 % (5.8 to 6.4)"),
    (w.percent_interval, (Interval(0.5, 0.4, 0.6),), "50 % (40 to 60)"),
    (w.percent_interval, (Interval(0.5, 0.5, 0.5),), "50 %"),
    (w.duration, (7.44,), "7.4 s"),
    (w.duration, (61,), "1 min 1 s"),
    (w.duration, (7322,), "2 h 2 min"),
    (w.duration, (200_000,), "2 d 7 h"),
    (w.duration, (7322, 1), "2 h"),
    (w.join_list, (["a"],), "a"),
    (w.join_list, (["a", "b", "c"],), "a, b and c"),
    (w.plain, ("a\nb\x00",), "a b"),
    (w.short, ("a-very-long-name-indeed", 12), "a-very-long…"),
    (w.code, ("glucose",), "`glucose`"),
    (w.code, ("a`b",), "`a'b`"),
    (w.code, ("",), "`?`"),
]


@pytest.mark.parametrize(("write", "arguments", "text"), CASES)
def test_values_are_formatted_as_text(write: Any, arguments: tuple[Any, ...], text: str) -> None:
    assert write(*arguments).replace("\xa0", " ") == text


def test_percent_signs_follow_a_non_breaking_space() -> None:
    assert w.percent(0.5) == "50\xa0%"


@pytest.mark.parametrize("text", ["a * b * c", "2*3*4", "*", "`", "``", "* x *", "a*b *c"])
def test_signs_outside_markup_are_literal(text: str) -> None:
    assert inline(text) == text
