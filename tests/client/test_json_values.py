"""What callers pass becomes JSON values, or is refused before it is sent."""

import enum
from typing import Any

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.client.json_values import (
    cascade_spec,
    context_value,
    context_values,
    label_report,
    output_values,
    required_value,
)
from stopwise.client.requests import Requests
from stopwise.client.retries import Retries, Send
from stopwise.features import BoundFeatures, bind, map_from_spec
from stopwise.service.domain.messages import Arm, CascadeSpec

CASCADE = sw.Cascade([0.01, 0.24, 0.25], names=["history", "glucose", "insulin"], tradeoff=0.5)


class Colour(enum.StrEnum):
    RED = "red"


def test_a_context_is_a_list_of_numbers() -> None:
    for given in (
        [0.1, 1],
        np.array([0.1, 1.0]),
        [np.float64(0.1), np.int8(1)],
        np.array([0.1, 1.0], dtype=object),
    ):
        assert context_value(given) == [0.1, 1.0]  # to the last bit
        assert all(type(value) is float for value in context_value(given))
    assert context_value({"age": np.float32(0.5), "bmi": 1}) == {"age": 0.5, "bmi": 1.0}


@pytest.mark.parametrize(
    "given",
    [5, "12", ["1", "2"], [[1, 2]], [1, None], [np.nan], {"age": np.inf}, {"age": [1, 2]}],
)
def test_what_is_no_context_is_refused_before_it_is_sent(given: Any) -> None:
    with pytest.raises(sw.errors.InvalidContextError):
        context_value(given)


def test_the_row_that_is_wrong_is_named() -> None:
    assert context_values([[1, 2], {"a": 3}]) == [[1.0, 2.0], {"a": 3.0}]
    with pytest.raises(sw.errors.InvalidContextError, match="context 1"):
        context_values(np.array([[0.0], [np.nan]]))
    for wrong in (5, {"a": 1}, "ab"):
        with pytest.raises(sw.errors.InvalidContextError):
            context_values(wrong)  # pyright: ignore[reportArgumentType] (the mistake tested)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["ill", None], ["ill", None]),
        ((np.int64(1), np.bool_(True), np.str_("a"), Colour.RED), [1, True, "a", "red"]),
        (np.array([1, 0]), [1, 0]),
        ({"rule": np.float32(0.5)}, {"rule": 0.5}),
        ([{"box": (1, np.array([2, 3]))}], [{"box": [1, [2, 3]]}]),
    ],
)
def test_outputs_are_json(given: Any, expected: Any) -> None:
    sent = output_values(given)
    assert sent == msgspec.json.decode(msgspec.json.encode(sent)) == expected


@pytest.mark.parametrize(
    "given",
    ["ill", {1, 2}, [np.nan], [{"a"}], [{1: 2}], [b"ill"], [np.datetime64("2020-01-01")]],
)
def test_outputs_that_json_does_not_have_are_refused(given: Any) -> None:
    with pytest.raises(sw.errors.InvalidOutputsError):
        output_values(given)
    with pytest.raises(sw.errors.InvalidOutputsError):
        required_value(None, "the label")


def test_a_label_is_the_right_answer_or_which_arms_were_right() -> None:
    encode = msgspec.json.encode
    assert encode(label_report("ill", None)) == b'{"label":"ill"}'
    right = {"history": np.False_, "glucose": True}
    assert encode(label_report(None, right)) == b'{"right":{"history":false,"glucose":true}}'
    refused: list[tuple[Any, Any, str]] = [
        ("ill", {"history": True}, "not both"),
        (None, None, "label must not be None"),
        (None, [True, False], "right must be a dict"),
        (None, {"history": 1}, "True or False for each arm, got 1 for 'history'"),
    ]
    for label, given, words in refused:
        with pytest.raises(sw.errors.InvalidOutputsError, match=words):
            label_report(label, given)


# ------------------------------------------------------------------------------------- cascades


def test_the_arms_and_the_policy_are_those_given() -> None:
    settings = {"forced_rounds": np.int64(20)}
    spec = cascade_spec("triage", CASCADE, ["age", "bmi"], None, "thompson", 10, settings)
    assert spec == CascadeSpec(
        "triage",
        [Arm("history", 0.01), Arm("glucose", 0.24), Arm("insulin", 0.25)],
        ["age", "bmi"],
        tradeoff=0.5,
        policy={"kind": "thompson", "forced_rounds": 20},
        keep_open=10,
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=CascadeSpec) == spec


@pytest.mark.parametrize(
    "features",
    [
        sw.Identity(bound=2),
        sw.Scaled(sw.Polynomial(bias=False), [1, 2], [3, 4], outside="clip"),
        sw.PerStage([sw.Identity(), sw.Polynomial()]),
        sw.PerPair({(0, 1): sw.Identity(), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}),
    ],
)
def test_features_that_were_sent_are_the_same(features: Any) -> None:
    spec = cascade_spec("triage", CASCADE, 2, features=features).features
    sent = msgspec.json.decode(msgspec.json.encode(spec))
    if "maps" in sent:
        there = BoundFeatures.from_spec({**sent, "context_dim": 2, "n_arms": 3})
    else:
        there = bind(map_from_spec(sent), 2, 3)
    assert there == bind(features, 2, 3)
    assert cascade_spec("triage", CASCADE, 2, features=sent).features == spec


def test_what_the_service_cannot_have_is_refused() -> None:
    def function(x: Any) -> Any:
        return x

    wrong: list[tuple[sw.Cascade, Any, dict[str, Any]]] = [
        (CASCADE, sw.Custom(function, name="mine"), {}),
        (CASCADE, function, {}),
        (sw.Cascade([0.1, 0.2], tradeoff=[1, 2]), None, {}),
        (CASCADE, None, {"sigma": float("nan")}),
    ]
    for cascade, features, settings in wrong:
        with pytest.raises((sw.errors.InvalidParameterError, sw.errors.InvalidCascadeError)):
            cascade_spec("triage", cascade, 2, features=features, settings=settings)


def test_create_takes_a_complete_spec_or_a_cascade() -> None:
    requests = Requests(None, None, Retries(1, 1, None))
    spec = cascade_spec("triage", CASCADE, 2)
    steps = next(requests.create(spec)), next(requests.create("triage", CASCADE, context=2))
    assert len({step.content for step in steps if isinstance(step, Send)}) == 1
    mistakes: list[tuple[CascadeSpec | str, sw.Cascade | None, int | None]] = [
        ("triage", None, 2),
        ("triage", CASCADE, None),
        (spec, CASCADE, None),
        (spec, None, 2),
    ]
    for given, cascade, context in mistakes:
        with pytest.raises(sw.errors.InvalidParameterError):
            requests.create(given, cascade, context=context)
