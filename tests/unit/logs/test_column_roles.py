"""Roles of columns, from standard names and from `Columns`."""

import pytest

from stopwise.errors import InvalidLogError
from stopwise.logs.log import Columns, resolve_columns

STANDARD = (
    "id",
    "context.age",
    "context.bmi",
    "revealed.small.entropy",
    "output.small",
    "output.large",
    "stop",
    "failed",
    "label",
    "cost.large",
)


def test_standard_names_give_the_roles() -> None:
    layout = resolve_columns([*STANDARD, "revealed.large.late"], Columns(), "log.csv")
    assert (layout.stop, layout.rule_stop) == ("stop", None)
    assert layout.costs == (None, "cost.large")
    assert "id" not in layout.used
    assert "revealed.large.late" not in layout.used  # revealed too late for any decision


def test_chosen_columns_give_the_order_and_need_no_prefix() -> None:
    columns = Columns(context=("bmi", "age"), outputs=("large", "small"), label="truth")
    layout = resolve_columns(["age", "small", "large", "bmi", "truth"], columns, "log.csv")
    assert (layout.arms, layout.context) == (("large", "small"), ("bmi", "age"))
    assert (layout.label, any(layout.revealed)) == ("truth", False)
    layout = resolve_columns(
        STANDARD, Columns(context=("bmi",), outputs=("large", "small")), "log.csv"
    )
    assert (layout.arms, layout.base) == (("large", "small"), ("context.bmi",))


def test_with_chosen_outputs_other_standard_names_are_ignored() -> None:
    names = ["age", "small", "large", "stop", "failed", "rule_stop", "kind", "label"]
    layout = resolve_columns(
        names, Columns(context=("age",), outputs=("small", "large")), "log.csv"
    )
    assert (layout.stop, layout.failed, layout.rule_stop, layout.kind) == (None,) * 4
    assert layout.label == "label"
    named = Columns(context=("age",), outputs=("small", "large"), stop="stop", failed="failed")
    assert resolve_columns(names, named, "log.csv").stop == "stop"


def test_names_of_arms_may_contain_dots() -> None:
    names = ["context.x", "revealed.gpt-3.5.n", "output.gpt-3", "output.gpt-3.5", "output.gpt-4"]
    layout = resolve_columns(names, Columns(), "log.csv")
    assert layout.arms == ("gpt-3", "gpt-3.5", "gpt-4")
    assert layout.revealed == ((), ("revealed.gpt-3.5.n",))


def test_a_log_without_contexts_needs_an_empty_tuple() -> None:
    names = ["output.a", "output.b"]
    assert resolve_columns(names, Columns(context=()), "log.csv").context == ()
    with pytest.raises(
        InvalidLogError, match=r"context=…\), or pass an empty value .* if there are none"
    ):
        resolve_columns(names, Columns(), "log.csv")


@pytest.mark.parametrize(
    ("names", "columns", "message"),
    [
        (
            ["age", "small"],
            Columns(),
            r"log.csv has no column 'output.<name>'.*'age', 'small'.*Columns\(outputs=",
        ),
        (["output.a", "output.b", "age"], Columns(), r"'context.<name>'.*Columns\(context"),
        (["output.a", "context.x"], Columns(), "each of at least 2 arms, got 'output.a'"),
        (STANDARD, Columns(context=("weight",)), "no column 'weight'; its columns are 'id'"),
        (STANDARD, Columns(outputs=("small", "huge")), "no column 'huge'"),
        (STANDARD, Columns(label="truth"), r"no column 'truth'.*Columns\(label="),
        (STANDARD, Columns(outputs=("small", "small")), "duplicate outputs: 'output.small'"),
        ([*STANDARD, "context.age"], Columns(), "duplicate columns: 'context.age'"),
        (
            [*STANDARD, "revealed.tiny.x"],
            Columns(),
            "'revealed.tiny.x' does not belong to an arm.*'small'",
        ),
    ],
)
def test_invalid_roles_are_rejected(names: list[str], columns: Columns, message: str) -> None:
    with pytest.raises(InvalidLogError, match=message):
        resolve_columns(names, columns, "log.csv")
