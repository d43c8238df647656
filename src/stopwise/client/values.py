"""What callers pass, as the service's messages: numpy's arrays and numbers become JSON values."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise import checks
from stopwise.cascade import Cascade
from stopwise.checks import short_repr
from stopwise.errors import (
    InvalidCascadeError,
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
)
from stopwise.features import FeatureMap, PerPair, PerStage, Shared, bind, stages_of
from stopwise.service.domain.messages import Arm, CascadeSpec, Context, LabelReport

ContextLike = ArrayLike | Mapping[str, SupportsFloat | str | None]
OutputsLike = Sequence[Any] | Mapping[str, Any]
Features = FeatureMap | Shared | PerStage | PerPair | Mapping[str, Any]  # or plain JSON values


def context_value(given: ContextLike, where: str = "") -> Context:
    """Return a context as JSON: a list of numbers, or values by name."""
    if not isinstance(given, Mapping):
        return numbers(given, where)
    named = {str(name): cast(Any, value) for name, value in given.items()}
    plain = {k: v for k, v in named.items() if not isinstance(v, str | bool | None)}
    return named | dict(zip(plain, numbers(list(plain.values()), where), strict=True))


def numbers(given: ArrayLike, where: str = "") -> list[float]:
    """Return finite numbers as a list: a context, or what an arm adds to it."""
    array = checks.numbers(f"{where}a context", given, InvalidContextError)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InvalidContextError(f"{where}a context is a flat list of finite numbers")
    return array.tolist()


def context_values(
    given: ArrayLike | Iterable[ContextLike],
) -> list[Context]:
    """Return several contexts as JSON: the rows of a table, or one by one."""
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidContextError("give a list of contexts; for a single one there is `open`")
    rows = cast(Iterable[ContextLike], given)
    return [context_value(row, f"context {number}: ") for number, row in enumerate(rows)]


def output_values(given: OutputsLike) -> list[Any] | dict[str, Any]:
    """Return outputs as JSON; None is for an arm that has not answered yet."""
    if isinstance(given, np.ndarray):
        given = cast(list[Any], given.tolist())
    if isinstance(given, Mapping):
        return {str(arm): json_value(one, f"the output of {arm!r}") for arm, one in given.items()}
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            f"outputs are a list in the order of the arms, or a dict by their names, not a "
            f"{type(given).__name__}"
        )
    return [json_value(one, f"the output of arm {arm}") for arm, one in enumerate(given)]


def known_value(given: Any, what: str) -> Any:
    """Return one output or label as JSON; it cannot be None, which means "not known"."""
    if given is None:
        raise InvalidOutputsError(f"{what} is None, which means that it is not known")
    return json_value(given, what)


def label_value(label: Any, right: Mapping[str, bool] | None) -> LabelReport:
    """Return a label as the service takes it: the right answer, or which arms were right.

    Examples
    --------
    >>> label_value(None, {"small": True, "large": np.False_}).right
    {'small': True, 'large': False}
    """
    if right is None:
        return LabelReport(known_value(label, "the label"))
    if label is not None:
        raise InvalidOutputsError(
            "pass the right answer, or right=, which arms were right; not both"
        )
    if not isinstance(right, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            'right must be a dict such as {"small": True, "large": False}, got '
            f"{short_repr(right)}"
        )
    for arm, value in right.items():
        if not isinstance(value, bool | np.bool_):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
            raise InvalidOutputsError(
                f"right must be True or False for each arm, got {short_repr(value)} for {arm!r}"
            )
    return LabelReport(right={str(arm): bool(value) for arm, value in right.items()})


def json_value(given: Any, what: str, error: type[InvalidInputError] = InvalidOutputsError) -> Any:
    """Return a value as JSON has it, or refuse it.

    Only values with one JSON form are accepted: sets have no order, NaN would become null.

    Examples
    --------
    >>> json_value({"says": np.bool_(True), "box": (1, 2)}, "the output")
    {'says': True, 'box': [1, 2]}
    """
    match given:
        case np.generic() | np.ndarray():
            return json_value(cast(Any, given).tolist(), what, error)
        case None | bool():
            return given
        case str():
            return str(given)
        case int():
            return int(given)
        case float() if math.isfinite(given):
            return float(given)
        case list() | tuple():
            return [json_value(part, what, error) for part in cast(Sequence[Any], given)]
        case Mapping() if all(isinstance(key, str) for key in cast(Mapping[Any, Any], given)):
            pairs = cast(Mapping[str, Any], given).items()
            return {str(key): json_value(part, what, error) for key, part in pairs}
        case _:
            raise error(
                f"{what} holds {checks.short_repr(given)}, which JSON does not have: use text, "
                "finite numbers, lists, or dicts with text as keys"
            )


def described(
    name: str,
    cascade: Cascade | None,
    context: int | Sequence[str] | None,
    features: Features | None = None,
    policy: str = "uss-laplace",
    keep_open: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CascadeSpec:
    """Describe a cascade to the service; see `Requests.create` for the parameters."""
    if cascade is None or context is None:
        raise InvalidParameterError(
            'create needs a cascade and its context: create("triage", cascade, '
            'context=["age", "bmi"])'
        )
    weights = set(cascade.tradeoff.tolist())
    if len(weights) > 1:
        raise InvalidCascadeError(
            "the service has one trade-off for all arms, and these have one each: fold them "
            "into the costs, and give the arms no trade-off"
        )
    optional: dict[str, Any] = {} if keep_open is None else {"keep_open": keep_open}
    if features is not None:
        size = len(context) if isinstance(context, Sequence) else context
        optional["features"] = _feature_spec(features, size, cascade.n_arms, settings or {})
    given = {
        key: json_value(value, f"the setting {key}", InvalidParameterError)
        for key, value in (settings or {}).items()
    }
    return CascadeSpec(
        name=name,
        arms=[Arm(*arm) for arm in zip(cascade.names, cascade.costs.tolist(), strict=True)],
        context=list(context) if isinstance(context, Sequence) else context,
        tradeoff=weights.pop(),
        policy={"kind": policy, **given},
        **optional,
    )


def _feature_spec(
    features: Features, context_dim: int, n_arms: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    if isinstance(features, Mapping):
        return dict(features)
    stages = stages_of(settings.get("reveals"), settings.get("answers"), n_arms)
    spec = bind(features, context_dim, n_arms, stages).to_spec()
    if any(one["kind"] == "custom" for one in spec["maps"]):
        raise InvalidParameterError(
            f"{features!r} has code, which cannot be sent: compute these features yourself and "
            "send them as the context, or use Identity, Polynomial or Scaled"
        )
    if spec["kind"] == Shared.kind:
        return spec["maps"][0]
    return {key: spec[key] for key in ("kind", "maps")}
