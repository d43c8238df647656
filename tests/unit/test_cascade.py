"""Cascades: what is computed, what is kept exactly, and what is refused in which words."""

import copy
import dataclasses
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stopwise.cascade import Cascade
from stopwise.errors import InvalidCascadeError, InvalidStopError

COSTS = st.lists(st.floats(0, 1e6), min_size=2, max_size=8)
NAMES = ["history", "glucose", "insulin"]


@st.composite
def cascades(draw: st.DrawFn) -> Cascade:
    costs = draw(COSTS)
    weights = draw(
        st.none()
        | st.floats(1e-3, 1e3)
        | st.lists(st.floats(1e-3, 1e3), min_size=len(costs), max_size=len(costs))
    )
    names = draw(
        st.none()
        | st.lists(
            st.text(min_size=1).filter(str.strip),
            min_size=len(costs),
            max_size=len(costs),
            unique=True,
        )
    )
    if draw(st.booleans()):
        return Cascade(costs, names, weights)
    return Cascade.from_cumulative(sorted(costs), names, weights)


# ------------------------------------------------------------------------------------ what it holds


def test_holds_what_the_paper_defines() -> None:
    cascade = Cascade([1, 2, 4], NAMES, tradeoff=[0.5, 0.25, 0.125])
    assert cascade.n_arms == 3
    assert cascade.costs.tolist() == [1, 2, 4]
    assert cascade.names == tuple(NAMES)
    assert cascade.tradeoff.tolist() == [0.5, 0.25, 0.125]
    assert cascade.cumulative.tolist() == [0.5, 0.75, 0.875]
    assert cascade.gaps.tolist() == [[0, 0.25, 0.375], [-0.25, 0, 0.125], [-0.375, -0.125, 0]]
    assert cascade.pairs() == [(0, 1), (0, 2), (1, 2)]


@given(COSTS)
def test_cumulative_costs_are_kept_to_the_last_bit(costs: list[float]) -> None:
    totals = sorted(costs)
    cascade = Cascade.from_cumulative(totals)
    assert cascade.cumulative.tolist() == totals
    assert np.allclose(np.cumsum(cascade.costs), totals, rtol=1e-12)


@pytest.mark.parametrize(
    "costs", [(1, 2), np.array([1, 2], "f4"), [Decimal(1), Decimal(2)], [Fraction(1), 2]]
)
def test_any_kind_of_number_will_do(costs: Any) -> None:
    assert Cascade(costs) == Cascade([1.0, 2.0])


def test_arms_are_found_by_name_and_by_position() -> None:
    cascade = Cascade([1, 2, 4], NAMES)
    assert [cascade.index(name) for name in NAMES] == [0, 1, 2]
    assert cascade.index(np.int32(2)) == 2
    assert [cascade.cost(stop) for stop in (0, "glucose", 2)] == [1, 3, 7]
    assert type(cascade.cost(0)) is float


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (3, "no arm 3: the 3 arms count from 0 to 2"),
        ("sugar", "no arm is named 'sugar'; the arms are 'history', 'glucose', 'insulin'"),
        (True, "not True"),
        (1.0, "whole number, not 1.0"),
    ],
)
def test_a_stop_that_is_no_arm_is_refused(stop: Any, words: str) -> None:
    cascade = Cascade([1, 2, 4], NAMES)
    with pytest.raises(InvalidStopError, match=words):
        cascade.index(stop)
    with pytest.raises(InvalidStopError, match=words):
        cascade.cost(stop)


# ------------------------------------------------------------------------------------ it is a value


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


def test_copies_keep_cumulative_costs_that_their_differences_do_not_add_up_to() -> None:
    totals = np.array([0.03, 0.29])
    cascade = Cascade.from_cumulative(totals)
    assert not np.array_equal(np.cumsum(cascade.costs), totals)  # or this would test nothing
    for twin in (pickle.loads(pickle.dumps(cascade)), Cascade.from_dict(cascade.to_dict())):
        assert np.array_equal(twin.cumulative, totals)
        assert twin == cascade


@pytest.mark.parametrize(
    "other", [Cascade([1, 3]), Cascade([1, 2], ["a", "b"]), Cascade([1, 2], tradeoff=2), "Cascade"]
)
def test_is_equal_by_content_only(other: object) -> None:
    assert Cascade([1, 2]) != other
    assert Cascade([1, 2]) == Cascade([1, 2])
    assert len({Cascade([1, 2]), Cascade([1, 2]), other}) == 2


@pytest.mark.parametrize(
    ("cascade", "text"),
    [
        (
            Cascade([0.01, 0.24, 0.25], NAMES),
            "Cascade(history 0.01 → glucose 0.25 → insulin 0.50)",
        ),
        (Cascade([1, 2]), "Cascade(arm 0 1 → arm 1 3)"),
        (Cascade([1e-9, 2]), "Cascade(arm 0 1e-09 → arm 1 2)"),
        (Cascade([1, 2], tradeoff=0.5), "Cascade(arm 0 0.5 → arm 1 1.5; trade-off 0.5, 0.5)"),
    ],
)
def test_reads_well(cascade: Cascade, text: str) -> None:
    assert repr(cascade) == text


# --------------------------------------------------------------------------------- what has changed


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Cascade([0.01, 0.24, 0.25], NAMES), []),
        (Cascade([0.01, 0.3, 0.25], NAMES), ["arm 'glucose' cost 0.24, now 0.3"]),
        (
            Cascade([0.01, 0.24, 0.25], ["history", "sugar", "insulin"]),
            ["arm 1 was named 'glucose', now 'sugar'"],
        ),
        (
            Cascade([0.01, 0.24, 0.25], NAMES, tradeoff=[1, 1, 2]),
            ["arm 'insulin' had trade-off 1, now 2"],
        ),
        (Cascade([0.01, 0.24], NAMES[:2]), ["there were 3 arms, now 2"]),
        (
            Cascade([0.02, 0.24], ["age", "glucose"]),
            [
                "there were 3 arms, now 2",
                "arm 0 was named 'history', now 'age'",
                "arm 'history' cost 0.01, now 0.02",
            ],
        ),
    ],
)
def test_differences_are_told_in_words(now: Cascade, words: list[str]) -> None:
    assert Cascade([0.01, 0.24, 0.25], NAMES).differences(now) == words


@given(COSTS)
def test_rounding_is_no_difference(costs: list[float]) -> None:
    one = Cascade(costs)
    assert one.differences(Cascade.from_cumulative(one.cumulative)) == []


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"costs": []}, "at least two arms"),
        ({"costs": [1]}, "one arm leaves nothing to decide"),
        ({"costs": [1, -2]}, "cost of arm 1 is -2.0; it must be a finite number, zero or more"),
        ({"costs": [math.nan, 2]}, "cost of arm 0 is nan"),
        ({"costs": [[1, 2]]}, r"flat list.*\(1, 2\)"),
        ({"costs": [[1], [2, 3]]}, "must be real numbers"),
        ({"costs": ["1", "2"]}, "must be real numbers"),
        ({"costs": [1e308, 1e308]}, "larger unit of cost"),
        ({"costs": [1e308, 0], "tradeoff": 10}, "larger unit of cost"),
        ({"costs": [1, 2], "names": ["a"]}, "2 costs but 1 names"),
        ({"costs": [1, 2], "names": "ab"}, "not the string 'ab'"),
        ({"costs": [1, 2], "names": ["a", "a"]}, "arms 0 and 1 are both named 'a'"),
        ({"costs": [1, 2], "names": ["a", " "]}, "name of arm 1.*not empty"),
        ({"costs": [1, 2], "names": ["a", 1]}, "name of arm 1 must be a string"),
        ({"costs": [1, 2], "tradeoff": 0}, "weight of arm 0 is 0.0"),
        ({"costs": [1, 2], "tradeoff": [1, math.inf]}, "weight of arm 1 is inf"),
        ({"costs": [1, 2], "tradeoff": [1, 1, 1]}, "2 arms but 3 trade-off weights"),
        ({"cumulative": [0.5, 0.25]}, r"arm 0 costs 0.5 and arm 1 only 0.25; .* Cascade\(costs\)"),
        ({"cumulative": [-0.1, 1]}, "cumulative cost of arm 0 is -0.1"),
    ],
)
def test_no_such_cascade(arguments: dict[str, Any], words: str) -> None:
    build = Cascade.from_cumulative if "cumulative" in arguments else Cascade
    with pytest.raises(InvalidCascadeError, match=words):
        build(**arguments)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"totals": None}, "must be numbers|flat list|must be a finite"),
        ({"totals": [1.0, 4.0]}, "do not add up"),
        ({"extra": 1}, "has the keys"),
    ],
)
def test_a_stored_cascade_that_makes_no_sense_is_refused(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidCascadeError, match=words):
        Cascade.from_dict(Cascade([1, 2]).to_dict() | change)


def test_a_tradeoff_is_not_judged_by_the_scale_of_the_costs() -> None:
    was, now = Cascade([1e20, 1e20]), Cascade([1e20, 1e20], tradeoff=[1, 1.5])
    assert was.differences(now) == ["arm 'arm 1' had trade-off 1, now 1.5"]
