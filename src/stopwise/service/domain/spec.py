"""From a cascade as a person describes it to a policy that decides."""

import warnings
from collections.abc import Mapping
from inspect import signature
from itertools import combinations
from math import comb
from typing import Any, cast

from stopwise.cascade import Cascade
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

MAX_WORK = 1_000_000  # features² × pairs of arms: a decision takes a tenth of a second or so
NOT_OFFERED = ("cascade", "features", "context_dim")  # given elsewhere in a spec


def context_names(spec: CascadeSpec) -> tuple[str, ...] | None:
    """Return the names of a context's numbers, if they have any."""
    if isinstance(spec.context, dict):
        return Encoding.from_spec(spec.context).coordinates
    return None if isinstance(spec.context, int) else tuple(spec.context)


def context_size(spec: CascadeSpec) -> int:
    """Return how many numbers a complete context has."""
    return spec.context if isinstance(spec.context, int) else len(context_names(spec) or ())


def build(
    spec: CascadeSpec, *, max_context: int | None = None, max_features: int | None = None
) -> Policy:
    """Build the policy that a spec describes, or refuse it; limits are for new cascades."""
    try:
        size, names = context_size(spec), context_names(spec)
    except StopwiseError as error:
        raise _invalid("context", str(error)) from None
    if max_context is not None and size > max_context:
        raise _invalid("context", f"{size} numbers, and this service takes {max_context} at most")
    if names is not None and len(set(names)) < len(names):
        raise _invalid("context", "two numbers of the context have the same name")
    try:
        with warnings.catch_warnings():  # stderr is for the log
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
            words = f"{features.width} features, and this service takes {max_features} at most"
            raise _invalid("features", words)
        n, pairs = features.n_features, len(cascade.pairs())
        if max_features is not None and n**2 * pairs > MAX_WORK:
            words = (
                f"a decision would take too long: {n} features² × {pairs} pairs of arms are more"
            )
            raise _invalid("features", f"{words} than {MAX_WORK:,}; use fewer of either")
        parameters |= {"features": features.assignment, "context_dim": size}
    try:
        with warnings.catch_warnings():  # stderr is for the log; ``max_features`` is the limit here
            warnings.simplefilter("ignore", WideFeaturesWarning)
            policy = kind(cascade, **parameters)
    except (StopwiseError, TypeError, ValueError, OverflowError) as error:
        raise _invalid("policy", str(error)) from None
    policy.encoding = spec.context if isinstance(spec.context, dict) else None
    return policy


def _policy(given: Mapping[str, Any]) -> tuple[type[Policy], dict[str, Any]]:
    """Return the kind of policy and its parameters."""
    parameters = dict(given)
    chosen = parameters.pop("kind", None)
    if not isinstance(chosen, str) or chosen not in POLICIES:
        raise _invalid("policy.kind", f"must be one of {', '.join(POLICIES)}")
    known = [name for name in signature(POLICIES[chosen]).parameters if name not in NOT_OFFERED]
    for name, value in parameters.items():
        if name not in known:
            raise _invalid(
                f"policy.{name}", f"{chosen} has no such parameter; it has {', '.join(known)}"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        other = {"forced_rounds": value == "auto", "answers": isinstance(value, bool)}
        other["reveals"] = isinstance(value, list)
        if not number and not other.get(name):
            raise _invalid(f"policy.{name}", "must be a number")
    return POLICIES[chosen], parameters


def _stages(parameters: Mapping[str, Any], n_arms: int) -> Stages | None:
    try:
        return stages_of(parameters.get("reveals"), parameters.get("answers"), n_arms)
    except StopwiseError as error:
        raise _invalid("policy.reveals", str(error)) from None


def _check_degrees(given: object, size: int, most: int) -> None:
    """Refuse polynomials of more terms than there may be features, before any is built."""
    if isinstance(given, list):
        for one in cast(list[Any], given):
            _check_degrees(one, size, most)
    elif isinstance(given, dict):
        fields = cast(dict[str, Any], given)
        degree = fields.get("degree", 2)
        polynomial = fields.get("kind") == "polynomial" and isinstance(degree, int) and degree > 0
        # A huge degree would take long to compute with.
        if polynomial and (degree > most or comb(size + degree, degree) > most):
            words = f"degree {degree} of {size} numbers gives more than {most} features"
            raise _invalid("features", f"{words}, the limit of this service; lower the degree")
        for part in ("maps", "inner"):
            _check_degrees(fields.get(part), size, most)


def _features(
    given: Mapping[str, Any], size: int, n_arms: int, stages: Stages | None
) -> BoundFeatures:
    try:
        kind = given.get("kind")
        if kind in (PerStage.kind, PerPair.kind):
            if extra := set(given) - {"kind", "maps"}:
                raise _invalid("features", f"has no {', '.join(sorted(extra))}")
            maps = [map_from_spec(m) for m in cast(list[Any], given["maps"])]
            if kind == PerStage.kind:
                return bind(PerStage(maps), size, n_arms, stages)
            pairs = list(combinations(range(n_arms), 2))
            if len(maps) != len(pairs):
                raise _invalid("features", f"{len(maps)} maps for {len(pairs)} pairs of arms")
            return bind(PerPair(dict(zip(pairs, maps, strict=True))), size, n_arms, stages)
        if kind == "custom":
            raise _invalid("features.kind", "code of your own cannot be sent to a service")
        return bind(map_from_spec(given), size, n_arms, stages)
    except (StopwiseError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _invalid("features", f"{error}") from None


def _invalid(field: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {message}", field=field)


def table_bytes(policy: Policy) -> int:
    """Return about how many bytes a policy needs before it has seen anything."""
    # Each pair stores two tables of numbers at most: the factors of V and of H.
    n_features = 0 if policy.features is None else policy.features.n_features
    return 16 * len(policy.cascade.pairs()) * n_features**2
