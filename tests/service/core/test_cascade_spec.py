"""Invalid and oversized cascade specs are rejected before any work is done."""

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
