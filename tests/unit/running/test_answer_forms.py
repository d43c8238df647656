"""Normal forms of text answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.errors import InvalidOutputsError
from stopwise.running.answer_forms import normalised_text


@pytest.mark.parametrize(
    "written",
    ["Paris", " paris\n", "PARIS.", '"Paris"', "**Paris**!", "“Paris”…", "(paris)", "Ｐａｒｉｓ"],
)
def test_spellings_of_an_answer_become_equal(written: str) -> None:
    assert normalised_text(written) == "paris"
    assert normalised_text("new\t \n york ") == "new york"
    assert normalised_text("STRASSE") == normalised_text("Straße")
    assert normalised_text("cafe\u0301") == normalised_text("CAFÉ")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("-5", "5"),
        (".5", "5"),
        ("5%", "5"),
        ("<5", "5"),
        ("C#", "C"),
        ("C++", "C"),
        ("a b", "ab"),
        ("1,5", "15"),
    ],
)
def test_different_answers_stay_different(first: str, second: str) -> None:
    assert normalised_text(first) != normalised_text(second)


@given(st.text())
def test_normalisation_is_idempotent(text: str) -> None:
    once = normalised_text(text)
    assert normalised_text(once) == once


@given(st.text(alphabet="aB .,\"'*ß-", max_size=8))
def test_case_and_surrounding_space_are_ignored(text: str) -> None:
    assert normalised_text(f"\n {text.upper()} ") == normalised_text(text)


def test_other_types_are_rejected() -> None:
    with pytest.raises(InvalidOutputsError, match="needs a string, got 42"):
        normalised_text(42)  # pyright: ignore[reportArgumentType]
