"""Suggestions for unknown names."""

from stopwise.text import suggestion


def test_a_long_name_is_not_compared() -> None:
    assert suggestion("uss-dp", ["uss-pd"]) == "did you mean 'uss-pd'?"
    assert suggestion("uss-pd" * 200, ["uss-pd" * 199]).startswith("choose from")
