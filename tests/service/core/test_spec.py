"""From a description to a policy: what is refused, where, and before it costs anything."""

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
def test_a_polynomial_of_too_many_terms_is_refused_before_it_is_built(
    features: dict[str, object], size: int
) -> None:
    # (Built and then counted, some of these would take minutes, or all memory.)
    with pytest.raises(RequestError) as caught:
        build(CascadeSpec("x", ARMS, size, features=features), max_features=64)
    assert caught.value.field == "features"


def test_as_many_terms_as_there_may_be_features_are_taken() -> None:
    spec = CascadeSpec("x", ARMS, context=3, features={"kind": "polynomial", "degree": 2})
    build(spec, max_features=10)
    with pytest.raises(RequestError, match="features"):
        build(spec, max_features=9)


def test_many_arms_with_many_features_would_take_too_long() -> None:
    arms = [Arm(f"arm {k}", 0.1) for k in range(15)]
    spec = CascadeSpec("x", arms, context=98, features={"kind": "identity"})
    with pytest.raises(RequestError) as caught:
        build(spec, max_features=512)
    assert caught.value.field == "features"
    build(CascadeSpec("x", arms, context=97, features={"kind": "identity"}), max_features=512)
    build(CascadeSpec("x", ARMS, context=512, features={"kind": "identity"}), max_features=512)
