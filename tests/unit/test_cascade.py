"""Cascades: what is computed, what is stored exactly, and what is refused."""

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


def test_holds_what_the_paper_defines() -> None:
    cascade = Cascade([1, 2, 4], NAMES, tradeoff=[0.5, 0.25, 0.125])
    assert (cascade.n_arms, cascade.names) == (3, tuple(NAMES))
    assert cascade.costs.tolist() == [1, 2, 4]
    assert cascade.tradeoff.tolist() == [0.5, 0.25, 0.125]
    assert cascade.cumulative.tolist() == [0.5, 0.75, 0.875]
    assert cascade.gaps.tolist() == [[0, 0.25, 0.375], [-0.25, 0, 0.125], [-0.375, -0.125, 0]]
    assert cascade.pairs() == [(0, 1), (0, 2), (1, 2)]
    same: list[Any] = [(1, 2), np.array([1, 2], "f4"), [Decimal(1), Decimal(2)], [Fraction(1), 2]]
    assert {Cascade(costs) for costs in same} == {Cascade([1.0, 2.0])}


def test_prices_become_costs_and_amounts_of_money_are_doubted() -> None:
    cascade = Cascade.from_prices([10, 200, 3000], error_cost=4000)
    np.testing.assert_allclose(cascade.cumulative, [0.0025, 0.0525, 0.8025])
    with pytest.warns(
        CostUnitWarning, match="arm 'glucose' costs as much as 200 wrong .*from_prices"
    ):
        Cascade([0.5, 200, 3000], NAMES)
    with pytest.warns(CostUnitWarning, match="arm 1.* 1.5 wrong"):
        Cascade.from_cumulative([0.5, 2.0])
    for wrong in (0, -1, True, float("nan")):
        with pytest.raises(InvalidCascadeError, match="error_cost must be a number above 0"):
            Cascade.from_prices([1, 2], error_cost=wrong)


def test_arms_are_found_by_name_and_by_position() -> None:
    cascade = Cascade([1, 2, 4], NAMES)
    assert [cascade.index(arm) for arm in (*NAMES, np.int32(2))] == [0, 1, 2, 2]
    assert [cascade.cost(stop) for stop in (0, "glucose", 2)] == [1, 3, 7]
    assert type(cascade.cost(0)) is float
    wrong: dict[Any, str] = {
        3: "no arm 3: the 3 arms count from 0 to 2",
        "sugar": "no arm is named 'sugar'; the arms are 'history', 'glucose', 'insulin'",
        True: "not True",
        1.5: "whole number, not 1.5",
    }
    for stop, words in wrong.items():
        with pytest.raises(InvalidStopError, match=words):
            cascade.cost(stop)


def test_cannot_be_changed() -> None:
    given_costs = np.array([1.0, 2.0])
    cascade = Cascade(given_costs)
    given_costs[0] = 9
    assert cascade.costs.tolist() == [1, 2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        cascade.n_arms = 3  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("costs", "tradeoff", "cumulative", "gaps"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(cascade, name)[...] = 0
    assert given_costs.flags.writeable


@given(cascades())
def test_copies_are_equal_frozen_and_hash_alike(cascade: Cascade) -> None:
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
def test_cumulative_costs_are_stored_to_the_last_bit_and_rounding_is_no_difference(
    costs: list[float],
) -> None:
    totals = sorted(costs)
    cascade = Cascade.from_cumulative(totals)
    assert cascade.cumulative.tolist() == totals
    assert np.allclose(np.cumsum(cascade.costs), totals, rtol=1e-12)
    assert Cascade(cascade.costs).differences(cascade) == []


def test_is_equal_by_content_only() -> None:
    others = [Cascade([1, 3]), Cascade([1, 2], ["a", "b"]), Cascade([1, 2], tradeoff=2), "Cascade"]
    assert Cascade([1, 2]) not in others
    assert len({Cascade([1, 2]), Cascade([1, 2]), *others}) == 5


def test_reads_well() -> None:
    assert repr(Cascade([1e-9, 2])) == "Cascade(arm 0 1e-09 → arm 1 2)"
    text = "Cascade(arm 0 0.5 → arm 1 1.5; trade-off 0.5, 0.5)"
    assert repr(Cascade([1, 2], tradeoff=0.5)) == text


def test_differences_are_sentences() -> None:
    was = Cascade([0.01, 0.24, 0.25], NAMES)
    assert was.differences(Cascade([0.01, 0.24, 0.25], NAMES)) == []
    assert was.differences(Cascade([0.02, 0.24], ["age", "glucose"], tradeoff=[1, 2])) == [
        "there were 3 arms, now 2",
        "arm 0 was named 'history', now 'age'",
        "arm 'history' cost 0.01, now 0.02",
        "arm 'glucose' had trade-off 1, now 2",
    ]
    large, other = Cascade([1e20, 1e20]), Cascade([1e20, 1e20], tradeoff=[1, 1.5])
    assert large.differences(other) == ["arm 'arm 1' had trade-off 1, now 1.5"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"costs": []}, "at least two arms; there are 0"),
        ({"costs": [1]}, "at least two arms; there are 1"),
        ({"costs": [1, -2]}, r"costs\[1\] must be a number at least 0, not -2"),
        ({"costs": [True, 2]}, r"costs\[0\] .* not True"),
        ({"costs": [[1], [2, 3]]}, r"costs\[0\] .* not \[1\]"),
        ({"costs": [1e308, 1e308]}, "larger unit of cost"),
        ({"costs": [1e308, 0], "tradeoff": 10}, "larger unit of cost"),
        ({"costs": [1, 2], "names": ["a"]}, "2 costs but 1 names"),
        ({"costs": [1, 2], "names": "ab"}, "not the string 'ab'"),
        ({"costs": [1, 2], "names": ["a", "a"]}, "name of arm 1 .* no other arm has, not 'a'"),
        ({"costs": [1, 2], "names": ["a", " "]}, "name of arm 1.*not empty"),
        ({"costs": [1, 2], "names": ["a", 1]}, "name of arm 1 must be a string"),
        ({"costs": [1, 2], "tradeoff": 0}, r"tradeoff\[0\] must be a number above 0, not 0"),
        ({"costs": [1, 2], "tradeoff": [1, 1, 1]}, r"flat list of 2 numbers; its shape is \(3,\)"),
        ({"cumulative": [0.5, 0.25]}, r"arm 0 costs 0.5 and arm 1 only 0.25; .* Cascade\(costs\)"),
        ({"cumulative": [-0.1, 1]}, r"cumulative\[0\] must be"),
    ],
)
def test_no_such_cascade(arguments: dict[str, Any], words: str) -> None:
    build = Cascade.from_cumulative if "cumulative" in arguments else Cascade
    with pytest.raises(InvalidCascadeError, match=words):
        build(**arguments)


def test_a_stored_cascade_that_makes_no_sense_is_refused() -> None:
    for change, words in (
        ({"totals": None}, "totals|flat list"),
        ({"totals": [1.0, 4.0]}, "do not add up"),
        ({"extra": 1}, "has the keys"),
    ):
        with pytest.raises(InvalidCascadeError, match=words):
            Cascade.from_dict(Cascade([1, 2]).to_dict() | change)
