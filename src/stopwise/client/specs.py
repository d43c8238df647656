"""A cascade and its policy as the service is told of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from stopwise.cascade import Cascade
from stopwise.client.plain import json_value
from stopwise.errors import InvalidCascadeError, InvalidParameterError
from stopwise.features import (
    FeatureMap,
    Identity,
    PerPair,
    PerStage,
    Polynomial,
    Scaled,
    Shared,
)
from stopwise.service.messages import Arm, CascadeSpec

Features = FeatureMap | Shared | PerStage | PerPair | Mapping[str, Any]
"""What `Client.create` takes for ``features``: a map, an arrangement, or plain JSON values."""


def describe(
    name: str,
    cascade: Cascade,
    *,
    context: int | Sequence[str],
    features: Features | None = None,
    policy: str = "uss-pd",
    keep_open: int | None = None,
    **settings: Any,
) -> CascadeSpec:
    """Describe a cascade to the service; see `Client.create` for the parameters.

    Examples
    --------
    >>> spec = describe("triage", Cascade([0.01, 0.24]), context=["age", "bmi"], sigma=0.2)
    >>> spec.arms[1], spec.policy
    (Arm(name='arm 1', cost=0.24), {'kind': 'uss-pd', 'sigma': 0.2})
    """
    weights = set(cascade.tradeoff.tolist())
    if len(weights) > 1:
        raise InvalidCascadeError(
            "the service knows one trade-off for all arms, and these have one each: fold them "
            "into the costs, and give the arms no trade-off"
        )
    arms = zip(cascade.names, cascade.costs.tolist(), strict=True)
    optional: dict[str, Any] = {}
    if features is not None:
        optional["features"] = _feature_spec(features)
    if keep_open is not None:
        optional["keep_open"] = keep_open
    return CascadeSpec(
        name=name,
        arms=[Arm(arm, cost) for arm, cost in arms],
        context=list(context) if isinstance(context, Sequence) else context,
        tradeoff=weights.pop(),
        policy={
            "kind": policy,
            **{
                key: json_value(value, f"the setting {key}", InvalidParameterError)
                for key, value in settings.items()
            },
        },
        **optional,
    )


def _feature_spec(features: Features) -> dict[str, Any]:
    match features:
        case Mapping():
            return dict(features)
        case Shared():
            return _map_spec(features.map)
        case PerStage():
            maps = [_map_spec(m) for m in features.maps]
            sees = {} if features.sees is None else {"sees": list(features.sees)}
            return {"kind": features.kind, "maps": maps, **sees}
        case PerPair():
            return {"kind": features.kind, "maps": [_map_spec(m) for _, m in features.maps]}
        case _:
            return _map_spec(features)


def _map_spec(given: FeatureMap) -> dict[str, Any]:
    if isinstance(given, Identity | Polynomial | Scaled):
        return given.to_spec()
    raise InvalidParameterError(
        f"{given!r} is code, which cannot be sent: compute these features yourself and send them "
        "as the context, or take Identity, Polynomial or Scaled"
    )
