"""Conversion of arguments to JSON, and rejection of invalid ones before sending."""

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


@pytest.mark.parametrize(
    "context",
    [
        [0.1, 1],
        np.array([0.1, 1.0]),
        [np.float64(0.1), np.int8(1)],
        np.array([0.1, 1.0], dtype=object),
    ],
)
def test_a_context_is_sent_as_a_list_of_floats(context: Any) -> None:
    assert context_value(context) == [0.1, 1.0]
    assert all(type(value) is float for value in context_value(context))


def test_a_context_may_be_a_dict_of_numbers() -> None:
    assert context_value({"age": np.float32(0.5), "bmi": 1}) == {"age": 0.5, "bmi": 1.0}


@pytest.mark.parametrize(
    "context",
    [5, "12", ["1", "2"], [[1, 2]], [1, None], [np.nan], {"age": np.inf}, {"age": [1, 2]}],
)
def test_an_invalid_context_is_rejected(context: Any) -> None:
    with pytest.raises(sw.errors.InvalidContextError):
        context_value(context)


def test_an_invalid_row_is_reported_by_its_number() -> None:
    assert context_values([[1, 2], {"a": 3}]) == [[1.0, 2.0], {"a": 3.0}]
    with pytest.raises(sw.errors.InvalidContextError, match=r"contexts\[1\]"):
        context_values(np.array([[0.0], [np.nan]]))


@pytest.mark.parametrize("contexts", [5, {"a": 1}, "ab"])
def test_contexts_that_are_not_a_list_are_rejected(contexts: Any) -> None:
    with pytest.raises(sw.errors.InvalidContextError):
        context_values(contexts)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (["ill", None], ["ill", None]),
        ((np.int64(1), np.bool_(True), np.str_("a"), Colour.RED), [1, True, "a", "red"]),
        (np.array([1, 0]), [1, 0]),
        ({"rule": np.float32(0.5)}, {"rule": 0.5}),
        ([{"box": (1, np.array([2, 3]))}], [{"box": [1, [2, 3]]}]),
    ],
)
def test_outputs_are_converted_to_json(outputs: Any, expected: Any) -> None:
    sent = output_values(outputs)
    assert sent == msgspec.json.decode(msgspec.json.encode(sent)) == expected


@pytest.mark.parametrize(
    "outputs",
    ["ill", {1, 2}, [np.nan], [{"a"}], [{1: 2}], [b"ill"], [np.datetime64("2020-01-01")]],
)
def test_outputs_without_a_json_form_are_rejected(outputs: Any) -> None:
    with pytest.raises(sw.errors.InvalidOutputsError):
        output_values(outputs)


def test_a_required_value_must_not_be_none() -> None:
    with pytest.raises(sw.errors.InvalidOutputsError):
        required_value(None, "the label")


def test_a_label_is_an_answer_or_given_by_arm() -> None:
    encode = msgspec.json.encode
    assert encode(label_report("ill", None)) == b'{"label":"ill"}'
    right = {"history": np.False_, "glucose": True}
    assert encode(label_report(None, right)) == b'{"right":{"history":false,"glucose":true}}'


@pytest.mark.parametrize(
    ("label", "right", "message"),
    [
        ("ill", {"history": True}, "not both"),
        (None, None, "pass label"),
        (None, [True, False], "right must be a dict"),
        (None, {"history": 1}, "True or False for each arm, got 1 for 'history'"),
    ],
)
def test_an_invalid_label_is_rejected(label: Any, right: Any, message: str) -> None:
    with pytest.raises(sw.errors.InvalidOutputsError, match=message):
        label_report(label, right)


# ------------------------------------------------------------------------------------- cascades


def test_a_spec_has_the_arms_and_the_policy() -> None:
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
def test_features_survive_serialization(features: Any) -> None:
    spec = cascade_spec("triage", CASCADE, 2, features=features).features
    sent = msgspec.json.decode(msgspec.json.encode(spec))
    if "maps" in sent:
        received = BoundFeatures.from_spec({**sent, "context_dim": 2, "n_arms": 3})
    else:
        received = bind(map_from_spec(sent), 2, 3)
    assert received == bind(features, 2, 3)
    assert cascade_spec("triage", CASCADE, 2, features=sent).features == spec


def test_unsupported_cascades_features_and_settings_are_rejected() -> None:
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


def test_create_accepts_a_complete_spec_or_a_cascade() -> None:
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
    for spec_or_name, cascade, context in mistakes:
        with pytest.raises(sw.errors.InvalidParameterError):
            requests.create(spec_or_name, cascade, context=context)
