"""A cascade and its policy, from Stopwise's own values to the description that is sent."""

import msgspec
import numpy as np
import pytest

import stopwise as sw
from stopwise.client.requests import Requests
from stopwise.client.retries import Send
from stopwise.client.values import Features, described
from stopwise.features import BoundFeatures, bind, map_from_spec
from stopwise.service.messages import Arm, CascadeSpec

CASCADE = sw.Cascade([0.01, 0.24, 0.25], names=["history", "glucose", "insulin"], tradeoff=0.5)


def test_the_arms_and_the_policy_are_those_given() -> None:
    spec = described(
        "triage",
        CASCADE,
        ["age", "bmi"],
        policy="thompson",
        keep_open=10,
        settings={"forced_rounds": np.int64(20)},
    )
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
        sw.Polynomial(degree=3, bias=False),
        sw.Scaled(sw.Polynomial(), [1, 2], [3, 4], outside="clip"),
        sw.Shared(sw.Polynomial(degree=2)),
    ],
)
def test_a_map_that_was_sent_is_the_same_map(features: Features) -> None:
    sent = described("triage", CASCADE, 2, features=features).features
    there = map_from_spec(msgspec.json.decode(msgspec.json.encode(sent)))
    assert bind(there, 2, 3) == bind(features, 2, 3)  # pyright: ignore[reportArgumentType] (no dict is among them)


@pytest.mark.parametrize(
    "features",
    [
        sw.PerStage([sw.Identity(), sw.Polynomial()], sees=[1, 2]),
        sw.PerStage([sw.Identity(), sw.Polynomial()]),
        sw.PerPair({(0, 1): sw.Identity(), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}),
    ],
)
def test_an_arrangement_that_was_sent_is_the_same(features: sw.PerStage | sw.PerPair) -> None:
    sent = described("triage", CASCADE, 2, features=features).features
    there = BoundFeatures.from_spec({**sent, "context_dim": 2, "n_arms": 3})
    assert there == bind(features, 2, 3)


def test_code_cannot_be_sent() -> None:
    with pytest.raises(sw.InvalidParameterError):
        described("triage", CASCADE, 2, features=sw.Custom(lambda x: x, name="mine"))
    with pytest.raises(sw.InvalidParameterError):
        described("triage", CASCADE, 2, features=lambda x: x)  # pyright: ignore[reportArgumentType] (the mistake tested)


def test_one_tradeoff_for_all_arms() -> None:
    uneven = sw.Cascade([0.1, 0.2], tradeoff=[1, 2])
    with pytest.raises(sw.InvalidCascadeError):
        described("triage", uneven, 2)


def test_a_setting_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(sw.InvalidParameterError):
        described("triage", CASCADE, 2, settings={"sigma": float("nan")})


def test_create_takes_a_whole_spec_or_a_cascade() -> None:
    requests = Requests(None, None, timeout=1, deadline=1, rng=None)
    spec = described("triage", CASCADE, 2)
    whole = next(requests.create(spec))
    parts = next(requests.create("triage", CASCADE, context=2))
    assert isinstance(whole, Send)
    assert isinstance(parts, Send)
    assert whole.content == parts.content
    mistakes: list[tuple[CascadeSpec | str, sw.Cascade | None, int | None]] = [
        ("triage", None, 2),
        ("triage", CASCADE, None),
        (spec, CASCADE, None),
        (spec, None, 2),
    ]
    for given, cascade, context in mistakes:
        with pytest.raises(sw.InvalidParameterError):
            requests.create(given, cascade, context=context)
