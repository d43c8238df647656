"""Invalid and oversized cascade specs are rejected before any work is done."""

from typing import Any

import pytest

from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.spec import build

ARMS = [Arm("rule", 0.01), Arm("model", 0.3), Arm("expert", 0.5)]


@pytest.mark.parametrize(
    ("features", "size"),
    [
        ({"kind": "polynomial", "degree": 3}, 100),
        ({"kind": "per_stage", "maps": [{"kind": "polynomial", "degree": 9999}] * 2}, 2),
        ({"kind": "scaled", "inner": {"kind": "polynomial", "degree": 9999}}, 2),
        ({"kind": "polynomial", "degree": 10**30}, 2),
    ],
)
def test_polynomial_with_too_many_terms_is_rejected_before_it_is_built(
    features: dict[str, object], size: int
) -> None:
    # Building some of these would take minutes, or all memory.
    with pytest.raises(RequestError) as caught:
        build(CascadeSpec("x", ARMS, size, features=features), max_features=64)
    assert caught.value.field == "features"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "features",
            {"kind": "polinomial"},
            "unknown feature map 'polinomial'; did you mean 'polynomial'?",
        ),
        (
            "features",
            {"kind": "polynomial", "degre": 2},
            "unknown parameter 'degre' of feature map 'polynomial'; did you mean 'degree'?",
        ),
        (
            "features",
            {"kind": "scaled", "inner": {"kind": "identity"}, "scale": [1, 1]},
            "feature map 'scaled' requires the parameter 'center'",
        ),
        (
            "features",
            {"kind": "per_stage", "maps": [3, 4, 5]},
            'a feature map must be an object with a kind, such as {"kind": "identity"}, got 3',
        ),
        (
            "features",
            {"kind": "polynomial", "degree": 0},
            "degree must be an integer >= 1, got 0",
        ),
        (
            "policy",
            {"kind": "uss-dp"},
            "unknown policy 'uss-dp'; did you mean 'uss-pd'?",
        ),
        (
            "policy",
            {"kind": "thompson", "scael": 1},
            "unknown parameter of thompson; did you mean 'scale'?",
        ),
        (
            "policy",
            {"kind": "uss-pd", "delta": "0.05"},
            'must be a number, got "0.05"',
        ),
    ],
)
def test_error_messages_name_the_invalid_value_and_suggest_a_match(
    field: str, value: dict[str, Any], message: str
) -> None:
    changed: dict[str, Any] = {field: value}
    spec = CascadeSpec("x", ARMS, 2, **changed)
    with pytest.raises(RequestError) as caught:
        build(spec)
    assert str(caught.value) == f"{caught.value.field}: {message}"
    assert str(caught.value.field).startswith(field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", {"kind": "p" * 10_000}),
        ("features", {"kind": "m" * 10_000}),
        ("features", {"kind": "identity", "b" * 10_000: 1}),
        ("context", {"columns": [{"name": "day", "kind": "date", "first": "d" * 10_000}]}),
    ],
)
def test_error_messages_shorten_long_values(field: str, value: dict[str, Any]) -> None:
    changed: dict[str, Any] = {"context": 2, field: value}
    with pytest.raises(RequestError) as caught:
        build(CascadeSpec("x", ARMS, **changed))
    assert "…" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_max_features_is_the_largest_accepted_number_of_terms() -> None:
    spec = CascadeSpec("x", ARMS, context=3, features={"kind": "polynomial", "degree": 2})
    build(spec, max_features=10)
    with pytest.raises(RequestError, match="features"):
        build(spec, max_features=9)


def test_too_many_features_for_the_number_of_arms_are_rejected() -> None:
    arms = [Arm(f"arm {k}", 0.1) for k in range(15)]
    spec = CascadeSpec("x", arms, context=98, features={"kind": "identity"})
    with pytest.raises(RequestError) as caught:
        build(spec, max_features=512)
    assert caught.value.field == "features"
    build(CascadeSpec("x", arms, context=97, features={"kind": "identity"}), max_features=512)
    build(CascadeSpec("x", ARMS, context=512, features={"kind": "identity"}), max_features=512)
