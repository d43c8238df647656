"""Tests of cascades: costs, exact storage and validation."""

import copy
import dataclasses
import json
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.cascade import Cascade
from stopwise.errors import CostUnitWarning, InvalidCascadeError, InvalidStopError

pytestmark = pytest.mark.filterwarnings("ignore::stopwise.errors.CostUnitWarning")  # round numbers
COSTS = st.lists(st.floats(0, 1e6), min_size=2, max_size=8)
NAMES = ["history", "glucose", "insulin"]


@st.composite
def cascades(draw: st.DrawFn) -> Cascade:
    costs = draw(COSTS)
    size: dict[str, Any] = {"min_size": len(costs), "max_size": len(costs)}
    weight = st.floats(1e-3, 1e3)
    name = st.text(min_size=1).filter(str.strip)
    weights = draw(st.none() | weight | st.lists(weight, **size))
    names = draw(st.none() | st.lists(name, unique=True, **size))
    if draw(st.booleans()):
        return Cascade(costs, names, weights)
    return Cascade.from_cumulative(sorted(costs), names, weights)


def test_costs_and_gaps_follow_the_definitions_of_the_paper() -> None:
    cascade = Cascade([1, 2, 4], NAMES, tradeoff=[0.5, 0.25, 0.125])
    assert (cascade.n_arms, cascade.names) == (3, tuple(NAMES))
    assert cascade.costs.tolist() == [1, 2, 4]
    assert cascade.tradeoff.tolist() == [0.5, 0.25, 0.125]
    assert cascade.cumulative.tolist() == [0.5, 0.75, 0.875]
    assert cascade.gaps.tolist() == [[0, 0.25, 0.375], [-0.25, 0, 0.125], [-0.375, -0.125, 0]]
    assert cascade.pairs() == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    "costs", [(1, 2), np.array([1, 2], "f4"), [Decimal(1), Decimal(2)], [Fraction(1), 2]]
)
def test_costs_may_have_any_numeric_type(costs: Any) -> None:
    assert Cascade(costs) == Cascade([1.0, 2.0])


def test_from_prices_divides_by_the_cost_of_an_error() -> None:
    cascade = Cascade.from_prices([10, 200, 3000], error_cost=4000)
    np.testing.assert_allclose(cascade.cumulative, [0.0025, 0.0525, 0.8025])


@pytest.mark.parametrize("error_cost", [0, -1, True, float("nan")])
def test_from_prices_rejects_an_invalid_error_cost(error_cost: float) -> None:
    with pytest.raises(InvalidCascadeError, match="error_cost must be a number > 0, got"):
        Cascade.from_prices([1, 2], error_cost=error_cost)


def test_costs_above_one_error_issue_a_warning() -> None:
    with pytest.warns(
        CostUnitWarning, match="arm 'glucose' costs as much as 200 wrong .*from_prices"
    ):
        Cascade([0.5, 200, 3000], NAMES)
    with pytest.warns(CostUnitWarning, match="arm 1.* 1.5 wrong"):
        Cascade.from_cumulative([0.5, 2.0])


def test_arms_are_identified_by_name_or_position() -> None:
    cascade = Cascade([1, 2, 4], NAMES)
    assert [cascade.index(arm) for arm in (*NAMES, np.int32(2))] == [0, 1, 2, 2]
    assert [cascade.cost(stop) for stop in (0, "glucose", 2)] == [1, 3, 7]
    assert type(cascade.cost(0)) is float


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (3, "an arm must be an integer from 0 to 2, got 3"),
        (-1, "an arm must be an integer from 0 to 2, got -1"),
        ("glucos", r"unknown arm 'glucos'; did you mean 'glucose'\?"),
        ("x", "unknown arm 'x'; choose from history, glucose, insulin"),
        (True, "a name or an integer, got True"),
        (1.5, "a name or an integer, got 1.5"),
    ],
)
def test_an_unknown_arm_is_rejected(stop: Any, message: str) -> None:
    with pytest.raises(InvalidStopError, match=message):
        Cascade([1, 2, 4], NAMES).cost(stop)


def test_a_cascade_is_immutable() -> None:
    costs = np.array([1.0, 2.0])
    cascade = Cascade(costs)
    costs[0] = 9
    assert cascade.costs.tolist() == [1, 2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        cascade.n_arms = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert costs.flags.writeable


@pytest.mark.parametrize("name", ["costs", "tradeoff", "cumulative", "gaps"])
def test_arrays_of_a_cascade_are_read_only(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(Cascade([1.0, 2.0]), name)[...] = 0


@given(cascades())
def test_copies_are_equal_immutable_and_have_the_same_hash(cascade: Cascade) -> None:
    for twin in (
        pickle.loads(pickle.dumps(cascade)),
        copy.deepcopy(cascade),
        Cascade.from_dict(json.loads(json.dumps(cascade.to_dict()))),
    ):
        assert twin == cascade
        assert hash(twin) == hash(cascade)
        assert np.array_equal(twin.cumulative, cascade.cumulative)
        assert np.array_equal(twin.gaps, cascade.gaps)
        assert not twin.costs.flags.writeable
        assert cascade.differences(twin) == []


@given(COSTS)
def test_cumulative_costs_are_stored_exactly_and_differences_ignores_rounding(
    costs: list[float],
) -> None:
    totals = sorted(costs)
    cascade = Cascade.from_cumulative(totals)
    assert cascade.cumulative.tolist() == totals
    assert np.allclose(np.cumsum(cascade.costs), totals, rtol=1e-12)
    assert Cascade(cascade.costs).differences(cascade) == []


def test_cascades_compare_by_value() -> None:
    others = [Cascade([1, 3]), Cascade([1, 2], ["a", "b"]), Cascade([1, 2], tradeoff=2), "Cascade"]
    assert Cascade([1, 2]) not in others
    assert len({Cascade([1, 2]), Cascade([1, 2]), *others}) == 5


def test_repr_shows_cumulative_costs_and_tradeoffs() -> None:
    assert repr(Cascade([1e-9, 2])) == "Cascade(arm 0 1e-09 → arm 1 2)"
    text = "Cascade(arm 0 0.5 → arm 1 1.5; trade-off 0.5, 0.5)"
    assert repr(Cascade([1, 2], tradeoff=0.5)) == text


def test_differences_describes_each_change() -> None:
    before = Cascade([0.01, 0.24, 0.25], NAMES)
    assert before.differences(Cascade([0.01, 0.24, 0.25], NAMES)) == []
    assert before.differences(Cascade([0.02, 0.24], ["age", "glucose"], tradeoff=[1, 2])) == [
        "number of arms: 3 vs 2",
        "name of arm 0: 'history' vs 'age'",
        "cost of 'history': 0.01 vs 0.02",
        "trade-off of 'glucose': 1 vs 2",
    ]
    large, other = Cascade([1e20, 1e20]), Cascade([1e20, 1e20], tradeoff=[1, 1.5])
    assert large.differences(other) == ["trade-off of 'arm 1': 1 vs 1.5"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"costs": []}, "at least two arms, got 0"),
        ({"costs": [1]}, "at least two arms, got 1"),
        ({"costs": [1, -2]}, r"costs\[1\] must be a number >= 0, got -2"),
        ({"costs": [True, 2]}, r"costs\[0\] .* got True"),
        ({"costs": [[1], [2, 3]]}, r"costs\[0\] .* got \[1\]"),
        ({"costs": [1e308, 1e308]}, "larger unit of cost"),
        ({"costs": [1e308, 0], "tradeoff": 10}, "larger unit of cost"),
        ({"costs": [1, 2], "names": ["a"]}, "one name per arm .2., got 1 name"),
        ({"costs": [1, 2], "names": "ab"}, "got the string 'ab'"),
        ({"costs": [1, 2], "names": ["a", "a"]}, "names must be unique, got 'a' twice"),
        ({"costs": [1, 2], "names": ["a", " "]}, r"names\[1\] must be a non-empty string, got ' '"),
        ({"costs": [1, 2], "names": ["a", 1]}, r"names\[1\] must be a non-empty string, got 1"),
        ({"costs": [1, 2], "tradeoff": 0}, r"tradeoff must be a number > 0, got 0"),
        ({"costs": [1, 2], "tradeoff": [1, 1, 1]}, r"flat list of 2 numbers, got shape \(3,\)"),
        ({"cumulative": [0.5, 0.25]}, r"got 0.5 for arm 0 and 0.25 for arm 1; .* Cascade\(costs\)"),
        ({"cumulative": [-0.1, 1]}, r"cumulative\[0\] must be"),
    ],
)
def test_an_invalid_cascade_is_rejected(arguments: dict[str, Any], message: str) -> None:
    create = Cascade.from_cumulative if "cumulative" in arguments else Cascade
    with pytest.raises(InvalidCascadeError, match=message):
        create(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"totals": None}, "totals|flat list"),
        ({"totals": [1.0, 4.0]}, "do not add up"),
        ({"extra": 1}, "must have the keys"),
    ],
)
def test_from_dict_rejects_inconsistent_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCascadeError, match=message):
        Cascade.from_dict(Cascade([1, 2]).to_dict() | change)
