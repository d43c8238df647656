"""Validate the definition of a cascade and build its policy."""

import json
import warnings
from collections.abc import Mapping
from inspect import signature
from itertools import combinations
from math import comb
from typing import Any, cast

from stopwise.cascade import Cascade
from stopwise.checks import short_repr
from stopwise.errors import CostUnitWarning, StopwiseError, WideFeaturesWarning
from stopwise.features import (
    BoundFeatures,
    PerPair,
    PerStage,
    Stages,
    bind,
    map_from_spec,
    stages_of,
)
from stopwise.logs.encoding import Encoding
from stopwise.policies.protocol import Policy
from stopwise.policies.registry import POLICIES, takes
from stopwise.service.domain.errors import InvalidRequest
from stopwise.service.domain.messages import CascadeSpec
from stopwise.text import shorten, suggestion

MAX_WORK = 1_000_000  # features² × pairs of arms; a decision then takes about 0.1 s
DEFINED_ELSEWHERE = ("cascade", "features", "context_dim")  # by other fields of a spec


def context_names(spec: CascadeSpec) -> tuple[str, ...] | None:
    """Return the names of the numbers in a context; None if they have no names."""
    if isinstance(spec.context, dict):
        return Encoding.from_spec(spec.context).coordinates
    return None if isinstance(spec.context, int) else tuple(spec.context)


def context_size(spec: CascadeSpec) -> int:
    """Return how many numbers a complete context has."""
    return spec.context if isinstance(spec.context, int) else len(context_names(spec) or ())


def build(
    spec: CascadeSpec, *, max_context: int | None = None, max_features: int | None = None
) -> Policy:
    """Build the policy of a spec; pass the limits only for a new cascade."""
    try:
        size, names = context_size(spec), context_names(spec)
    except StopwiseError as error:
        raise _invalid("context", str(error)) from None
    if max_context is not None and size > max_context:
        raise _invalid(
            "context", f"at most {max_context} numbers are allowed (max_context), got {size}"
        )
    if names is not None and len(set(names)) < len(names):
        duplicate = next(name for k, name in enumerate(names) if name in names[:k])
        raise _invalid("context", f"duplicate name {duplicate!r}")
    try:
        with warnings.catch_warnings():  # stderr is reserved for the log
            warnings.simplefilter("ignore", CostUnitWarning)
            cascade = Cascade(
                [arm.cost for arm in spec.arms], [arm.name for arm in spec.arms], spec.tradeoff
            )
    except StopwiseError as error:
        raise _invalid("arms", str(error)) from None
    kind, parameters = _policy(spec.policy)
    if takes(kind, "features"):
        stages = _stages(parameters, cascade.n_arms)
        if max_features is not None:
            _check_degrees(spec.features, size, max_features)
        features = _features(spec.features, size, cascade.n_arms, stages)
        if max_features is not None and features.width > max_features:
            message = f"at most {max_features} are allowed (max_features), got {features.width}"
            raise _invalid("features", message)
        n, pairs = features.n_features, len(cascade.pairs())
        if max_features is not None and n**2 * pairs > MAX_WORK:
            raise _invalid(
                "features",
                f"a decision would take too long: (number of features)² × (pairs of arms) must be "
                f"at most {MAX_WORK:,}, got {n}² × {pairs}; use fewer features or arms",
            )
        parameters |= {"features": features.assignment, "context_dim": size}
    try:
        with warnings.catch_warnings():  # stderr is reserved for the log; `max_features` applies
            warnings.simplefilter("ignore", WideFeaturesWarning)
            policy = kind(cascade, **parameters)
    except (StopwiseError, TypeError, ValueError, OverflowError) as error:
        raise _invalid("policy", str(error)) from None
    policy.encoding = spec.context if isinstance(spec.context, dict) else None
    return policy


def _policy(definition: Mapping[str, Any]) -> tuple[type[Policy], dict[str, Any]]:
    """Return the class of a policy and the parameters in its definition."""
    parameters = dict(definition)
    kind = parameters.pop("kind", None)
    if kind is None:
        raise _invalid("policy.kind", f"missing; choose from {', '.join(POLICIES)}")
    if not isinstance(kind, str) or kind not in POLICIES:
        hint = suggestion(kind, POLICIES)
        raise _invalid("policy.kind", f"unknown policy {short_repr(kind)}; {hint}")
    options = [
        name for name in signature(POLICIES[kind]).parameters if name not in DEFINED_ELSEWHERE
    ]
    for name, value in parameters.items():
        if name not in options:
            message = f"unknown parameter of {kind}; {suggestion(name, options)}"
            raise _invalid(f"policy.{name}", message)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        also_allowed = {
            "forced_rounds": value == "auto",
            "answers": isinstance(value, bool),
            "reveals": isinstance(value, list),
        }
        if not is_number and not also_allowed.get(name):
            expected = {
                "forced_rounds": 'a number or "auto"',
                "answers": "true or false",
                "reveals": "a number or a list",
            }.get(name, "a number")
            text = shorten(json.dumps(value, ensure_ascii=False, default=str), 60)
            raise _invalid(f"policy.{name}", f"must be {expected}, got {text}")
    return POLICIES[kind], parameters


def _stages(parameters: Mapping[str, Any], n_arms: int) -> Stages | None:
    try:
        return stages_of(parameters.get("reveals"), parameters.get("answers"), n_arms)
    except StopwiseError as error:
        raise _invalid("policy.reveals", str(error)) from None


def _check_degrees(definition: object, size: int, max_features: int) -> None:
    """Reject polynomials with too many terms before building them, which could take minutes."""
    if isinstance(definition, list):
        for item in cast(list[Any], definition):
            _check_degrees(item, size, max_features)
    elif isinstance(definition, dict):
        fields = cast(dict[str, Any], definition)
        degree = fields.get("degree", 2)
        polynomial = fields.get("kind") == "polynomial" and isinstance(degree, int) and degree > 0
        # `comb` is slow for a huge degree, so compare the degree first.
        if polynomial and (degree > max_features or comb(size + degree, degree) > max_features):
            raise _invalid(
                "features",
                f"a polynomial of degree {degree} in {size} numbers has more than {max_features} "
                "features (max_features); lower the degree",
            )
        for name in ("maps", "inner"):
            _check_degrees(fields.get(name), size, max_features)


def _features(
    definition: Mapping[str, Any], size: int, n_arms: int, stages: Stages | None
) -> BoundFeatures:
    try:
        kind = definition.get("kind")
        if kind in (PerStage.kind, PerPair.kind):
            if extra := set(definition) - {"kind", "maps"}:
                raise _invalid("features", f"unknown fields: {', '.join(sorted(extra))}")
            if "maps" not in definition:
                raise _invalid("features", "maps is required")
            if not isinstance(definition["maps"], list):
                got = shorten(json.dumps(definition["maps"], default=str), 60)
                raise _invalid("features", f"maps must be a list of feature maps, got {got}")
            maps = [map_from_spec(m) for m in cast(list[Any], definition["maps"])]
            if kind == PerStage.kind:
                return bind(PerStage(maps), size, n_arms, stages)
            pairs = list(combinations(range(n_arms), 2))
            if len(maps) != len(pairs):
                message = f"maps must have one map for each of the {len(pairs)} pairs of arms"
                message += f", got {len(maps)}"
                raise _invalid("features", message)
            return bind(PerPair(dict(zip(pairs, maps, strict=True))), size, n_arms, stages)
        if kind == "custom":
            raise _invalid(
                "features.kind",
                "custom feature maps are code, which cannot be sent to a service; compute the "
                "features yourself and send them as the context",
            )
        return bind(map_from_spec(definition), size, n_arms, stages)
    except (StopwiseError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _invalid("features", f"{error}") from None


def _invalid(field: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {message}", field=field)


def table_bytes(policy: Policy) -> int:
    """Estimate the bytes that the tables of a new policy will need."""
    # Each pair stores at most two matrices: the factors of V and of H.
    n_features = 0 if policy.features is None else policy.features.n_features
    return 16 * len(policy.cascade.pairs()) * n_features**2
